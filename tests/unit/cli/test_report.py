"""memray-eval report on runs that are damaged: a message and exit code 2, never a traceback."""

from pathlib import Path

import pytest

from tests.conftest import Call
from tests.runs import plain_records, write_run


@pytest.mark.parametrize("manifest", ["{", "[1]", "3"])
def test_a_manifest_that_is_none_is_said(cli: Call, tmp_path: Path, manifest: str) -> None:
    write_run(tmp_path / "run", plain_records(3), 3)
    (tmp_path / "run" / "manifest.json").write_text(manifest)
    code, _, error = cli("report", str(tmp_path / "run"), "--html")
    assert (code, "manifest.json is not JSON of a run" in error) == (2, True)


def test_a_run_that_has_not_finished_names_the_way_on(cli: Call, tmp_path: Path) -> None:
    write_run(tmp_path / "run", plain_records(3), 3)
    (tmp_path / "run" / "summary.json").unlink()
    code, _, error = cli("report", str(tmp_path / "run"))
    assert (code, f"`memray-eval resume {tmp_path / 'run'}`" in error) == (2, True)


@pytest.mark.parametrize("form", ["--csv", "--parquet", "--evaluation", "--benchmark"])
def test_records_that_cannot_be_read_are_said_and_what_was_there_stays(
    cli: Call, tmp_path: Path, form: str
) -> None:
    write_run(tmp_path / "run", plain_records(3), 3)
    (part,) = (tmp_path / "run" / "records").iterdir()
    part.write_bytes(b"PAR1 cut off")
    out = tmp_path / "out"
    out.write_text("before")
    code, _, error = cli("report", str(tmp_path / "run"), form, str(out))
    assert (code, f"the records of {tmp_path / 'run'} cannot be read" in error) == (2, True)
    assert out.read_text() == "before"


@pytest.mark.parametrize(
    "words", [["--csv"], ["--benchmark"], ["--evaluation"], ["--html", "--out"]]
)
def test_a_folder_is_no_place_for_a_file(cli: Call, tmp_path: Path, words: list[str]) -> None:
    write_run(tmp_path / "run", plain_records(3), 3)
    code, _, error = cli("report", str(tmp_path / "run"), *words, str(tmp_path))
    assert (code, f"{tmp_path} is a folder" in error) == (2, True)
