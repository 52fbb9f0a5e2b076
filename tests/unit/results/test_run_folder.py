import re
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import Mock

import pytest

from memray_eval.errors import ConfigError, DataError, ResourceError
from memray_eval.execution.runs import check_run_id, lock_new_folder, run
from memray_eval.results.run_folder import FORMAT, RunFolder, new_run_id
from memray_eval.results.schema import from_table, to_table
from memray_eval.storage.paths import locate
from memray_eval.types import Record
from tests.build import build_config


def test_blocks_written_again_by_a_retry_are_the_same_file(tmp_path: Path, record: Record) -> None:
    folder = RunFolder(str(tmp_path / "run"))
    folder.create()
    names = {folder.write_part(to_table([record])) for _ in range(2)}
    assert len(names) == 1
    assert [path.name for path in (tmp_path / "run" / "records").iterdir()] == list(names)
    assert list(from_table(folder.records().to_table())) == [record]


def test_what_is_not_a_finished_run_of_this_version_is_said(tmp_path: Path) -> None:
    folder = RunFolder(str(tmp_path))
    with pytest.raises(DataError, match=r"has no summary\.json; give the folder of a finished run"):
        folder.read_summary()
    with pytest.raises(DataError, match="holds no records"):
        folder.records()
    (tmp_path / "summary.json").write_text('{"run_id": 1}')
    with pytest.raises(DataError, match="is not a summary of this version"):
        folder.read_summary()
    folder.write_manifest({"format": FORMAT})
    assert folder.read_manifest() == {"format": FORMAT}
    folder.write_manifest({"format": FORMAT + 1})
    with pytest.raises(DataError, match="use the version of memray-eval that wrote it"):
        folder.read_manifest()


def test_a_place_that_cannot_be_written_or_held_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    cannot_make = r"cannot make the run folder .*; name another place with --out"
    with pytest.raises(ConfigError, match=cannot_make):
        RunFolder(str(tmp_path / "file" / "run")).create()
    (tmp_path / ".lock").mkdir()
    held = RunFolder(str(tmp_path)).held()
    with pytest.raises(ConfigError, match=r"cannot keep .* to this process"), held:
        pytest.fail("held")


def test_a_run_that_another_process_began_meanwhile_is_not_begun_again(tmp_path: Path) -> None:
    folder = RunFolder(str(tmp_path / "run"))
    with lock_new_folder(folder):
        folder.write_manifest({"status": "running"})
    with (
        pytest.raises(ConfigError, match=r"began the run in .* start again to go on with it"),
        lock_new_folder(folder),
    ):
        pytest.fail("begun twice")


def test_who_lost_the_folder_in_the_cloud_writes_nothing_over_the_next_ones() -> None:
    is_lost = Mock(return_value=False)
    folder = RunFolder("mock:///run")
    folder.create()
    with folder.held(lambda *_: nullcontext(is_lost)):
        folder.write_manifest({"status": "running"})
        is_lost.return_value = True
        with pytest.raises(ResourceError, match="another process took over mock:///run"):
            folder.write_manifest({"status": "interrupted"})
    assert folder.read_manifest()["status"] == "running"


def test_a_config_with_a_key_in_it_is_not_written(tmp_path: Path) -> None:
    keyed = build_config(out=str(tmp_path), engine={"engine_kwargs": {"hf_token": "hush"}})
    looks = r"engine\.engine_kwargs\.hf_token looks like a key, and a config is written"
    with pytest.raises(ConfigError, match=looks) as refused:
        run(keyed, print)
    assert "hush" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_run_ids_are_readable_and_distinct() -> None:
    own = "hf://org/some.data.v2.jsonl", ["/at/home/my_metrics.py:tone", "empathy", "safety"]
    first, second = new_run_id(*own), new_run_id(*own)
    assert re.fullmatch(r"\d{8}-\d{6}-some-data-v2-tone-and-2-[0-9a-f]{4}", first)
    assert first != second
    again = new_run_id(f"results/{first}/", ["memory"])
    assert re.fullmatch(r"\d{8}-\d{6}-some-data-v2-tone-and-2-memory-[0-9a-f]{4}", again)
    for dataset, metric in (("/", "?"), ("-.csv", "my.py"), ("x" * 500, "y" * 500)):
        check_run_id(new_run_id(dataset, [metric]))


def test_an_unknown_scheme_is_a_message(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot open nowhere://x"):
        locate("nowhere://x")
    filesystem, path = locate(f"file://{tmp_path}")
    assert (filesystem.type_name, path) == ("local", str(tmp_path))
