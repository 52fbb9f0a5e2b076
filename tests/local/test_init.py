"""`init`: what it makes runs, as it is and on one's own file."""

import subprocess
import sys
from pathlib import Path

import pytest

from memray_eval.results.run_folder import RunFolder
from tests.build import run_command


def means(folder: Path) -> dict[str, float | None]:
    (run,) = (folder / "results").glob("*/summary.json")
    return {row.metric: row.mean for row in RunFolder(str(run.parent)).read_summary().metrics}


def test_what_it_makes_runs_and_its_test_passes(tmp_path: Path) -> None:
    created = run_command("init", "demo", cwd=tmp_path)
    assert created.returncode == 0, created.stderr
    job = Path("demo", "job.yaml")
    assert f"  memray-eval run {job}\n" in created.stderr
    done = run_command("run", str(job), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    figures = means(tmp_path)
    assert figures.keys() == {"brief", "readability_score"}
    assert figures["brief"] == 1.0
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "demo"]
    tested = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert tested.returncode == 0, tested.stdout
    again = run_command("init", "demo", cwd=tmp_path)
    expected = (2, "error: demo is there already; name another folder\n")
    assert (again.returncode, again.stderr) == expected


@pytest.mark.parametrize("head", ["question,answer,ticket", "query,response,ticket"])
def test_a_file_of_ones_own_is_taken_where_it_lies(tmp_path: Path, head: str) -> None:
    (tmp_path / "my file.csv").write_text(f"{head}\nHi?,Hello you.,7\nWhy?,Because.,8\n")
    assert run_command("init", "a/b", "--from", "my file.csv", cwd=tmp_path).returncode == 0
    done = run_command("run", "a/b/job.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert means(tmp_path)["brief"] == 1.0


def test_a_file_that_is_not_there_or_says_nothing_is_told(tmp_path: Path) -> None:
    missing = run_command("init", "a", "--from", "nope.csv", cwd=tmp_path)
    assert (missing.returncode, missing.stderr) == (2, "error: no file nope.csv\n")
    (tmp_path / "odd.csv").write_text("x,y\n1,2\n")
    odd = run_command("init", "a", "--from", "odd.csv", cwd=tmp_path)
    assert odd.returncode == 2
    assert "Its columns: x, y. Say which is which" in odd.stderr
    assert not (tmp_path / "a").exists()


def test_columns_may_be_mapped(tmp_path: Path) -> None:
    (tmp_path / "odd.csv").write_text('"Frage, lang",Text\nWie?,So.\n', "utf-8")
    pair = "query=Frage, lang,response=Text"
    created = run_command("init", "a", "--from", "odd.csv", "--map", pair, cwd=tmp_path)
    assert created.returncode == 0, created.stderr
    done = run_command("run", "a/job.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert means(tmp_path)["brief"] == 1.0
