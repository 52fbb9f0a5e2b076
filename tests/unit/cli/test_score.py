"""memray-eval score: the JSON of seed 004, messages and exit codes."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from memray_eval.cli import main


@pytest.fixture
def score(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["memray-eval", "score", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        out = capsys.readouterr()
        return int(ended.value.code or 0), out.out, out.err

    return call


def test_the_seeds_json(score) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = score(
        "--type",
        "simple",
        "--prompt",
        "Say hello in exactly 3 words",
        "--response",
        "Hello there friend",
    )
    assert code == 0
    assert json.loads(out) == {
        "overall_score": 100.0,
        "subscores": {"word_count": 100, "completeness": 100, "error_free": 100},
        "issues": [],
        "passed_checks": ["Word count: 3 (target: 3)", "Complete response", "No errors detected"],
    }


def test_files_expected_answers_and_weights(
    score, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # type: ignore[no-untyped-def]
    prompt, response = tmp_path / "p.txt", tmp_path / "r.txt"
    prompt.write_text("Which? A) left B) right")
    response.write_text("B) It is free.")
    files = ("--type", "reasoning", "--prompt-file", str(prompt), "--response-file")
    scores = json.loads(score(*files, str(response), "--expected", "A", "--expected", "B")[1])
    assert scores["subscores"]["exact_match"] == 100
    assert (
        json.loads(score(*files, str(response), "--weight", "answer_present=1")[1])["overall_score"]
        == 100.0
    )
    monkeypatch.setattr("sys.stdin", io.StringIO("A) It is free."))
    assert json.loads(score(*files, "-", "--expected", "B")[1])["subscores"]["exact_match"] == 0


def test_the_quality_of_a_text(score) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = score("--type", "text", "--response", "First, we test. However, it works.")
    assert code == 0
    assert 0 < json.loads(out)["overall_score"] <= 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--type", "poem", "--response", "x"],
            "no prompt type 'poem'; there are: simple, navigation, reasoning, text",
        ),
        (["--type", "simple", "--response", "x"], "no prompt: give --prompt or --prompt-file"),
        (["--type", "simple", "--prompt", "x"], "no response: give --response or --response-file"),
        (
            ["--type", "simple", "--response", "x", "--response-file", "y"],
            "--response and --response-file: give one of them",
        ),
        (
            ["--type", "simple", "--prompt", "x", "--response-file", "absent"],
            "absent: cannot be read",
        ),
        (
            ["--type", "simple", "--prompt", "x", "--response", "y", "--weight", "word_count"],
            "write CHECK=SHARE",
        ),
        (
            ["--type", "simple", "--prompt", "x", "--response", "y", "--weight", "word_count=0.5"],
            "they sum to 0.5, not 1",
        ),
        (["--type", "text", "--response", "x", "--expected", "y"], "compares with no answer"),
    ],
)
def test_wrong_usage_is_code_2(score, words: list[str], message: str) -> None:  # type: ignore[no-untyped-def]
    code, out, err = score(*words)
    assert (code, out) == (2, "")
    assert message in err


@pytest.mark.heavy
def test_no_ray_is_imported() -> None:
    script = (
        "import sys; from memray_eval.cli import app\n"
        "try: app(['score', '--type', 'navigation', '--prompt', 'p', '--response', '{}'])\n"
        "except SystemExit: pass\n"
        "assert 'ray' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
