"""The command line's messages and exit codes, for all that needs no Ray."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from memray_eval import __version__
from memray_eval.cli import main
from tests.conftest import REPOSITORY, SAMPLES

QUICKSTART = str(REPOSITORY / "jobs" / "quickstart.yaml")


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["memray-eval", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        out = capsys.readouterr()
        return int(ended.value.code or 0), out.out, out.err

    return call


def test_help_and_version(cli) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = cli("--help")
    assert code == 0
    assert all(word in out for word in ("run", "report", "doctor", "dataset", "list", "Exit codes"))
    assert cli("--version")[:2] == (0, f"{__version__}\n")
    assert cli("run", "--help")[0] == 0


def test_lists(cli) -> None:  # type: ignore[no-untyped-def]
    assert "prefers anthropic/claude-opus-4-5" in cli("list", "metrics")[1]
    assert cli("list", "suites")[1].startswith("memory ")
    judges = cli("list", "judges")[1]
    assert "openai/gpt-4o                   2.5     10  undated     no key   requests 500, tokens 30,000" in judges
    assert "preferred for coherence, emotional_congruence, empathy, politeness" in judges


def test_a_good_dataset_validates(cli) -> None:  # type: ignore[no-untyped-def]
    assert cli("dataset", "validate", str(SAMPLES))[:2] == (0, f"{SAMPLES}: 100 valid samples\n")


def test_every_problem_of_a_bad_dataset_is_printed_and_the_code_is_2(cli, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "d.jsonl"
    path.write_text('{"id": "a"}\n{"id": "b", "query": "q"}\nbroken\n')
    code, out, _ = cli("dataset", "validate", str(path))
    assert code == 2
    assert f"{path}, line 1: sample a: query: missing" in out
    assert f"{path}, line 3: broken JSON at line 1, column 1" in out
    assert out.endswith("1 valid samples, 2 invalid\n")


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["run", "absent.yaml"], 2, "error: no file absent.yaml"),
        (["run", QUICKSTART, "--metrics", "sparkle"], 2, "error: no metric 'sparkle'"),
        (["run", QUICKSTART, "--judge", "gpt"], 2, "no judge 'gpt'; write auto, rules, embedded or PROVIDER/MODEL"),
        (
            ["run", QUICKSTART, "--judge", "openai/gpt-4o"],
            2,
            "judge openai/gpt-4o needs a key in the environment variable OPENAI_API_KEY",
        ),
        (["run", QUICKSTART, "--set", "suite=poetry"], 2, "error: no suite 'poetry'"),
        (["run", QUICKSTART, "--limit", "0"], 2, "--limit"),
        (["run", QUICKSTART, "--set", "engine.replicas=50"], 3, "it would wait for ever, so it is not started"),
        (["run", QUICKSTART, "--dataset", "absent"], 2, "error: no dataset at"),
        (["report", "absent"], 2, "has no summary.json"),
        (["dataset", "validate", "absent"], 2, "error: no dataset at absent"),
        (["frobnicate"], 2, "No such command"),
    ],
)
def test_wrong_use_is_a_message_and_an_exit_code(  # type: ignore[no-untyped-def]
    cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], code: int, told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ended, _, err = cli(*words)
    assert ended == code
    assert told in err
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "broken", ["duplicate", "conflict", "absent", "type", "json", "utf8", "empty", "folder", "list", "nan"]
)
def test_ten_kinds_of_broken_dataset_stop_a_run_with_nothing_written(  # type: ignore[no-untyped-def]
    cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raw_sample: dict, broken: str
) -> None:
    good = json.dumps(raw_sample).encode()
    files = {
        "duplicate": [good, good],
        "conflict": [json.dumps(raw_sample | {"forbidden_keys": ["known_condition"]}).encode()],
        "absent": [json.dumps(raw_sample | {"required_keys": ["weight"]}).encode()],
        "type": [json.dumps(raw_sample | {"query": 5}).encode()],
        "json": [good[:-5]],
        "utf8": [good.replace(b"Jason", b"Jos\xe9")],
        "empty": [b""],
        "folder": [],
        "list": [b"[]"],
        "nan": [good.replace(b'"5.5"', b"NaN")],
    }[broken]
    data = tmp_path / "data"
    for index, content in enumerate(files or [good]):
        (data / f"s{index}").mkdir(parents=True)
        (data / f"s{index}" / "sample.json").write_bytes(content)
    if broken == "folder":
        (data / "s9").mkdir()
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    code, out, err = cli("run", QUICKSTART, "--dataset", str(data))
    assert (code, out) == (2, "")
    assert "nothing was run:\n" in err
    assert str(data) in err
    assert "sample.json" in err
    assert "Traceback" not in err
    assert list(work.iterdir()) == []
