"""What stands beside a figure that no judge, or not only judges, gave."""

import re
from pathlib import Path
from typing import get_args

import pytest

import memray_eval
from memray_eval.analysis.marks import format_figure, mark
from memray_eval.config.sections import OnJudgeFailure
from memray_eval.types import FALLBACKS, Figure, is_estimate
from tests.build import build_metric


@pytest.mark.parametrize(
    ("n_scored", "estimates", "fallbacks", "text"),
    [
        (4, 0, 0, ""),
        (0, 0, 0, ""),
        (4, 4, 0, "estimate"),
        (4, 1, 0, "estimate for 1 of 4"),
        (4, 0, 2, "2 of 4 by fallback"),
        (4, 1, {"string_match": 2}, "estimate for 1 of 4, 2 of 4 by string match"),
        (4, 0, {"zero": 1, "default": 1}, "1 of 4 set to zero, 1 of 4 set to the default"),
    ],
)
def test_the_mark_of_a_figure(n_scored: int, estimates: int, fallbacks: int, text: str) -> None:
    assert mark(n_scored, estimates, fallbacks) == text


def test_every_way_on_failure_has_its_words() -> None:
    assert set(FALLBACKS) == set(get_args(OnJudgeFailure)) - {"error"}


def test_only_rules_of_a_judged_metric_estimate() -> None:
    others = ("rules (empty response)", "computed", "qa_f1, v1", "openai/rules", "")
    estimates = [of for of in ("rules", "rules+minilm", *others) if is_estimate(of)]
    assert estimates == ["rules", "rules+minilm"]
    older = build_metric("m", 6, judges={"rules": 2, "zero": 1, "openai/x": 3})
    assert (older.n_estimated, older.n_fallbacks) == (2, 1)


def test_no_format_of_a_report_writes_a_negative_zero() -> None:
    assert format_figure(Figure(value=-0.0001), (-1, 1)) == "0.000"
    signed = re.compile(r"[\"':]\+(?!z)[,.]")  # "z" writes what rounds to zero as 0
    written = [
        f"{path}:{number}"
        for path in sorted(Path(memray_eval.__file__).parent.rglob("*.py"))
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1)
        if signed.search(line)
    ]
    assert written == []
