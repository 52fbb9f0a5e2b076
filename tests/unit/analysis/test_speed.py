"""What answers took beside what they were worth: small cases worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from memray_eval.analysis.recommendation import measure_speed
from memray_eval.benchmarks import Suite
from memray_eval.metric import ComputedMetric, MetricValue
from memray_eval.types import Candidate, Performance, Prompt, Record, Response, Sample, Score
from tests.build import build_dataset

FIVE = ComputedMetric(
    name="quality",
    title="QUALITY",
    value_label="Quality",
    scale=(1, 5),
    measure=lambda s, r: MetricValue(value=1),
)


def unit(
    number: int, value: float | None = None, task: str = "", candidate: str = "c", **fields: Any
) -> Record:
    status = "error" if value is None else "scored"
    other = Score(metric="other", status="scored", value=0.25)
    return Record(
        unit_id=f"{number:016x}",
        sample=Sample(
            id=f"s{number}", query="q", task=task, prompt_type=fields.pop("prompt_type", "")
        ),
        candidate=Candidate(name=candidate, model="m"),
        response=Response(**{"text": "an answer"} | fields),
        scores=(other, Score(metric="quality", status=status, value=value)),
    )


def measured(
    folder: Path, *parts: Sequence[Record], headline: ComputedMetric | None = FIVE
) -> list[Performance]:
    return list(measure_speed(build_dataset(folder, *parts), headline))


def test_the_figures_of_a_candidate_and_its_tasks(tmp_path: Path) -> None:
    units = [
        unit(1, 5.0, "a", output_tokens=10, duration_s=1.0, ttft_s=0.1),
        unit(2, 3.0, "a", output_tokens=50, duration_s=2.0, ttft_s=0.3),
        unit(3, 1.0, "b", output_tokens=40, duration_s=2.0, ttft_s=0.2),
    ]
    whole, a, b = measured(tmp_path, units[:2], units[2:])
    assert (whole.candidate, whole.task, whole.n, whole.n_scored) == ("c", None, 3, 3)
    assert (whole.duration_s_total, whole.duration_s_mean) == (5.0, pytest.approx(5 / 3))
    assert (whole.output_tokens, whole.tokens_per_s) == (100, 20.0)
    assert (whole.ttft_s_mean, whole.ttft_s_p95) == (pytest.approx(0.2), pytest.approx(0.29))
    # 5, 3 and 1 of 1-5 are 100, 50 and 0 of 100: sample std 50
    assert (whole.quality, whole.quality_stderr) == (50.0, pytest.approx(50 / math.sqrt(3)))
    assert (a.task, a.n, a.quality, a.tokens_per_s, a.duration_s_mean) == ("a", 2, 75.0, 20.0, 1.5)
    assert (b.task, b.n, b.quality, b.quality_stderr) == ("b", 1, 0.0, None)


def test_failed_and_unmeasured_answers_take_no_part_in_speed(tmp_path: Path) -> None:
    units = [
        unit(1, 4.0, output_tokens=30, duration_s=3.0),
        unit(
            2, None, output_tokens=0, duration_s=120.0, ttft_s=9.0, error="the server answered 500"
        ),
        unit(3, 2.0, output_tokens=7),
        unit(4, 3.0, duration_s=5.0),
    ]
    (whole,) = measured(tmp_path, units)
    assert (whole.n, whole.n_scored, whole.quality) == (4, 3, 50.0)
    assert (whole.duration_s_total, whole.output_tokens, whole.tokens_per_s) == (8.0, 37, 10.0)
    assert whole.ttft_s_mean is None


def test_nothing_measured_is_none(tmp_path: Path) -> None:
    (whole,) = measured(tmp_path, [unit(1)])
    figures = (
        whole.tokens_per_s,
        whole.duration_s_total,
        whole.ttft_s_p95,
        whole.quality,
        whole.quality_stderr,
    )
    assert figures == (None,) * 5
    assert (whole.output_tokens, whole.n_scored) == (0, 0)


def test_without_a_headline_there_is_speed_alone(tmp_path: Path) -> None:
    (whole,) = measured(tmp_path, [unit(1, 4.0, output_tokens=30, duration_s=3.0)], headline=None)
    assert (whole.tokens_per_s, whole.quality) == (10.0, None)


def test_a_unit_written_twice_counts_once_and_the_prompt_type_is_a_task(tmp_path: Path) -> None:
    units = [
        unit(1, 5.0, prompt_type="simple", output_tokens=1, duration_s=1.0),
        unit(2, 1.0, candidate="d", output_tokens=1, duration_s=1.0),
    ]
    rows = measured(tmp_path, units, units[:1])
    assert [(row.candidate, row.task, row.n, row.output_tokens) for row in rows] == [
        ("c", None, 1, 1), ("c", "simple", 1, 1), ("d", None, 1, 1),
    ]  # fmt: skip


def test_a_suites_headline_is_its_first_metric_unless_named_or_left_out() -> None:
    def suite(**fields: Any) -> Suite:
        return Suite(
            description="-",
            metrics=("first", "second"),
            prompt=lambda s, c: Prompt(messages=()),
            **fields,
        )

    assert suite().quality_metric(("second", "first")) == "first"
    assert suite(headline="second").quality_metric(("first", "second")) == "second"
    assert suite(headline="second").quality_metric(("third", "first")) == "third"
    assert suite().quality_metric(()) == ""
