"""memray-eval report on runs that are damaged: a message and exit code 2, never a traceback."""

from pathlib import Path

import pytest

from tests.conftest import Call
from tests.runs import plain_records, write_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return Path(write_run(tmp_path / "run", plain_records(3), 3).path)


@pytest.mark.parametrize("manifest", ["{", "[1]", "3"])
def test_a_manifest_that_is_none_is_said(cli: Call, run: Path, manifest: str) -> None:
    (run / "manifest.json").write_text(manifest)
    code, _, error = cli("report", str(run), "--html")
    assert (code, "manifest.json is not JSON of a run" in error) == (2, True)


def test_a_run_that_has_not_finished_names_the_way_on(cli: Call, run: Path) -> None:
    (run / "summary.json").unlink()
    code, _, error = cli("report", str(run))
    assert (code, f"`memray-eval resume {run}`" in error) == (2, True)


@pytest.mark.parametrize("form", ["--csv", "--parquet", "--evaluation", "--benchmark"])
def test_records_that_cannot_be_read_are_said_and_what_was_there_stays(
    cli: Call, run: Path, tmp_path: Path, form: str
) -> None:
    (part,) = (run / "records").iterdir()
    part.write_bytes(b"PAR1 cut off")
    out = tmp_path / "out"
    out.write_text("before")
    code, _, error = cli("report", str(run), form, str(out))
    assert (code, f"the records of {run} cannot be read" in error) == (2, True)
    assert out.read_text() == "before"
    assert not [file.name for file in tmp_path.iterdir() if "pending" in file.name]


@pytest.mark.parametrize(
    "words", [["--csv"], ["--benchmark"], ["--evaluation"], ["--html", "--out"]]
)
def test_a_folder_is_no_place_for_a_file(cli: Call, run: Path, words: list[str]) -> None:
    code, _, error = cli("report", str(run), *words, str(run.parent))
    assert (code, f"{run.parent} is a folder" in error) == (2, True)
