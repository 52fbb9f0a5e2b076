"""memray-eval score: the JSON of seed 004, messages and exit codes."""

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.conftest import Call

SIMPLE = ("score", "--type", "simple")


def test_the_seeds_json_and_the_quality_of_a_text(cli: Call) -> None:
    texts = ("--prompt", "Say hello in exactly 3 words", "--response", "Hello there friend")
    code, out, _ = cli(*SIMPLE, *texts)
    assert code == 0
    assert json.loads(out) == {
        "overall_score": 100.0,
        "subscores": {"word_count": 100, "completeness": 100, "error_free": 100},
        "issues": [],
        "passed_checks": ["Word count: 3 (target: 3)", "Complete response", "No errors detected"],
    }
    text = "First, we test. However, it works."
    code, out, _ = cli("score", "--type", "text", "--response", text)
    assert (code, 0 < json.loads(out)["overall_score"] <= 1) == (0, True)


def test_expected_answers_and_weights(cli: Call) -> None:
    def score(response: str, *words: str) -> Any:
        texts = ("--prompt", "Which? A) left B) right", "--response", response)
        return json.loads(cli("score", "--type", "reasoning", *texts, *words)[1])

    right = "B) It is free."
    scores = score(right, "--expected", "A", "--expected", "B")
    assert scores["subscores"]["exact_match"] == 100
    assert score(right, "--weight", "answer_present=1")["overall_score"] == 100.0
    wrong = score("A) It is free.", "--expected", "B")
    assert wrong["subscores"]["exact_match"] == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("poem --response x", "no prompt type 'poem'; there are: simple, navigation"),
        ("simple --response x", "no prompt: give --prompt"),
        ("simple --prompt x", "no response: give --response"),
        ("simple --response x --response-file y", "--response-file was withdrawn: write"),
        ("simple --prompt x --response y --weight word_count", "write CHECK=SHARE"),
        ("simple --prompt x --response y --weight word_count=0.5", "they sum to 0.5, not 1"),
        ("text --response x --expected y", "compares with no answer"),
    ],
)
def test_wrong_usage_is_code_2(cli: Call, words: str, message: str) -> None:
    code, out, err = cli("score", "--type", *words.split())
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
