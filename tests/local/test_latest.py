"""`latest` and `latest~1` stand for a run in every command that takes one."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyarrow import fs
from typer.main import get_command

from memray_eval.cli import app
from memray_eval.errors import DataError
from memray_eval.results.lookup import find_run
from memray_eval.storage.paths import did_you_mean
from tests.build import run_command, write_lines
from tests.conftest import Call

Called = Callable[..., tuple[int, str]]
TAKES_A_RUN = {"calibrate", "report", "compare", "evaluate", "pairwise", "resume", "send", "view"}


class Runs(NamedTuple):
    folder: Path
    newest: str
    before: str


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Two runs by rules of the same three answers, and a folder that is none."""
    work = tmp_path_factory.mktemp("latest")
    rows = [{"id": f"q{k}", "query": "How are you?", "response": f"Fine, {k}."} for k in range(3)]
    write_lines(work / "rows.jsonl", rows)
    (work / "results" / "zz-notes").mkdir(parents=True)
    words = ["evaluate", "rows.jsonl", "--suite", "memory", "--judge", "rules"]
    words += ["--metrics", "readability_score,lexical_diversity"]
    for _ in range(2):
        done = run_command(*words, cwd=work)
        assert done.returncode == 0, done.stderr
    paths = sorted((work / "results").glob("*-rows-*"), key=lambda run: run.stat().st_mtime_ns)
    for age, run in enumerate(reversed(paths)):  # the newest manifest is the newest run
        moment = paths[0].stat().st_mtime - 100.0 * age
        os.utime(run / "manifest.json", (moment, moment))
    return Runs(work, paths[1].name, paths[0].name)


@pytest.fixture
def call(runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Call) -> Called:
    monkeypatch.chdir(runs.folder)
    monkeypatch.setenv("MEMRAY_EVAL_CACHE", str(tmp_path / "cache"))  # knows of no other folder

    def called(*words: str) -> tuple[int, str]:
        code, out, err = cli(*words)
        return code, out + err

    return called


def arguments() -> Iterator[tuple[str, Any, str]]:
    """Every argument of every command, with the help that it shows."""
    commands = get_command(app).commands  # type: ignore[attr-defined]
    for name, command in commands.items():
        for parameter in command.params:
            if parameter.param_type_name == "argument":
                yield name, parameter, parameter.help or ""


def test_every_argument_that_names_a_run_s_folder_says_latest() -> None:
    assert {command for command, _, text in arguments() if "latest" in text} == TAKES_A_RUN
    for command, argument, text in arguments():
        if argument.name in ("run", "runs", "run_folder", "folder"):
            assert "latest" in text, command


@pytest.mark.parametrize("command", ["report", "evaluate", "resume"])
@pytest.mark.parametrize("named", ["latest", "latest~1"])
def test_a_command_takes_latest(call: Called, runs: Runs, command: str, named: str) -> None:
    wanted = runs.newest if named == "latest" else runs.before
    more = ["--out", "elsewhere", "--judge", "rules"] if command == "evaluate" else []
    manifest = runs.folder / "results" / wanted / "manifest.json"
    kept = manifest.stat()
    code, output = call(command, named, *more)
    assert code == 0, output
    assert wanted in output or command == "evaluate"
    if command == "evaluate":
        configs = (runs.folder / "elsewhere").glob("*/run.yaml")
        assert sum(wanted in config.read_text() for config in configs) == 1
    os.utime(manifest, (kept.st_atime, kept.st_mtime))  # a resume writes it again


def test_compare_takes_latest_on_both_sides_and_with_a_candidate(call: Called, runs: Runs) -> None:
    for sides in (("latest~1", "latest"), ("latest~1:rows", "latest:rows")):
        code, output = call("compare", *sides)
        assert code == 0, output
        assert runs.newest in output
        assert runs.before in output


@pytest.mark.parametrize("command", sorted(TAKES_A_RUN))
def test_a_run_that_is_not_there_is_said_in_a_line(call: Called, command: str) -> None:
    more = {"compare": ["latest"], "calibrate": ["--sheet"]}.get(command, [])
    code, output = call(command, "latest~7", *more)
    assert (code, "latest~7: results holds only 2 runs" in output) == (2, True), output


def test_a_name_that_is_nearly_right_is_suggested(call: Called, runs: Runs) -> None:
    code, output = call("view", f"results/{runs.newest[:-1]}")
    assert (code, f"did you mean results/{runs.newest}?" in output) == (2, True), output
    code, output = call("view", "reslts")
    assert (code, "did you mean results?" in output) == (2, True), output
    assert did_you_mean("nowhere/near/it", [fs.FileType.Directory]) == ""
    for command, name, meant in (
        ("report", "lates", "latest"),
        ("compare", f"{runs.newest[:-1]} latest", f"results/{runs.newest}"),
        ("resume", f"results/{runs.newest[:-1]}", f"results/{runs.newest}"),
        ("evaluate", "rows.json", f"{os.getcwd()}/rows.jsonl"),
        ("run", "quikstart", "'quickstart'"),
    ):
        code, output = call(command, *name.split())
        assert (code, f"did you mean {meant}?" in output) == (2, True), output
    code, output = call("report", runs.newest)  # by its id alone
    assert (code, runs.newest in output) == (0, True), output


def test_a_run_folder_called_latest_is_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="results holds no run"):
        find_run("latest")
    (tmp_path / "latest").mkdir()
    (tmp_path / "latest" / "manifest.json").write_text("{}")
    assert find_run("latest") == "latest"


def test_latest_is_the_newest_of_the_folders_that_runs_here_were_written_to(
    call: Called, runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = str(runs.folder / "rows.jsonl")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    command = ["evaluate", answers, "--judge", "rules", "--metrics", "lexical_diversity"]
    code, output = call(*command, "--out", str(tmp_path / "far"), "--run-id", "one")
    assert code == 0, output
    code, output = call("report", "latest")
    assert (code, f"The run is in {tmp_path}/far/one" in output) == (0, True), output
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    code, output = call("report", "latest")
    assert code != 0
    assert f"runs of another folder are in {tmp_path}/far" in output
