"""Several answers a sample: variances, pass@k and pass^k, and what becomes of them elsewhere."""

from collections.abc import Sequence
from itertools import combinations
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.dataset as pads
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memray_eval.analysis.comparing import Side, compare
from memray_eval.analysis.epochs import measure_epochs, summarise_epochs
from memray_eval.analysis.recommendation import measure_speed, quality_interval
from memray_eval.analysis.reduce import reduce_records
from memray_eval.analysis.scores import add_intervals, read_all_scores, read_scores
from memray_eval.analysis.statistics import TIE, clustered_error
from memray_eval.metrics import pick
from memray_eval.ports import FloatArray
from memray_eval.report.console import render, render_brief
from memray_eval.types import Bounded, EpochFigures, Record
from tests.build import build_dataset, build_record, build_sample, build_score, build_summary

METRIC = "exact_match"
METRICS = pick([METRIC])


def measure(
    rows: Sequence[Sequence[float]] | FloatArray, right_from: float | None = None
) -> EpochFigures:
    """The figures of scores, a row a sample."""
    values = np.array(rows, np.float64)
    numbers, epochs = np.arange(len(rows)), values.shape[1]
    samples = np.repeat(numbers, epochs)
    return measure_epochs(values.ravel(), samples, numbers, epochs, right_from)


def answered(rows: Sequence[Sequence[float | None]], **metadata: Any) -> list[Record]:
    """Records of scores, a row a sample and a score an epoch."""
    samples = [build_sample(id=f"s{number}", metadata=metadata) for number in range(len(rows))]
    return [
        build_record(sample, "text", build_score(METRIC, value=value), epoch=epoch)
        for sample, row in zip(samples, rows, strict=True)
        for epoch, value in enumerate(row, start=1)
    ]


def drawn(seed: int, samples: int, sample_sd: float, draw_sd: float) -> FloatArray:
    """Scores of five answers a sample, of known variances."""
    random = np.random.default_rng(seed)
    truth = random.normal(0.5, sample_sd, (samples, 1))
    return truth + random.normal(0.0, draw_sd, (samples, 5))


def test_intervals_hold_the_truth_as_often_as_they_should() -> None:
    def holds(bounded: Bounded | None, truth: float) -> bool:
        return (bounded.low or 0.0) <= truth <= (bounded.high or 0.0)

    figures = [measure(drawn(seed, 100, 0.2, 0.1)) for seed in range(100)]
    assert np.mean([holds(row.between_samples, 0.04) for row in figures]) >= 0.88
    assert np.mean([holds(row.between_draws, 0.01) for row in figures]) >= 0.88


@pytest.mark.parametrize(
    ("rows", "samples", "draws", "is_floored"),
    [
        ([[1, 3], [5, 7]], 7.0, 2.0, False),  # MSB 16, MSW 2
        ([[1, 1, 1], [4, 4, 4]], 4.5, 0.0, False),
        ([[0, 4], [1, 3]], 0.0, 5.0, True),  # MSB 0
        ([[1, 3], [5, nan]], 3.0, 2.0, False),  # MSB 6, and 3 - 5/3 in the place of n
    ],
)
def test_variances_by_hand(
    rows: list[list[float]], samples: float, draws: float, is_floored: bool
) -> None:
    figures = measure(rows)
    variances = figures.between_samples, figures.between_draws
    assert [of and of.value for of in variances] == pytest.approx([samples, draws])
    assert figures.is_floored is is_floored


@pytest.mark.parametrize("rows", [[[0.2, 0.4]], [[0.2, nan], [0.3, nan]]])
def test_what_scores_do_not_determine_is_absent(rows: list[list[float]]) -> None:
    assert measure(rows).between_samples is None


@given(st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=1, max_size=6))
def test_passes_are_the_means_over_all_choices_of_k_answers(rows: list[list[bool]]) -> None:
    figures = measure([[float(right) for right in row] for row in rows], right_from=1.0)
    for passes in figures.passes:
        chosen = [[*combinations(row, passes.k)] for row in rows]
        for bounded, decide in ((passes.any_right, any), (passes.all_right, all)):
            mean = np.mean([np.mean([*map(decide, of_sample)]) for of_sample in chosen])
            assert bounded.value == pytest.approx(float(mean))
            ends = bounded.low, bounded.high
            if ends != (None, None):
                assert -TIE <= ends[0] <= bounded.value + TIE
                assert bounded.value - TIE <= ends[1] <= 1.0 + TIE
    assert [passes.k for passes in figures.passes] == [1, 2, 3, 4]


def test_an_answer_without_a_score_is_no_wrong_one() -> None:
    figures = measure([[1, 1, nan], [1, 0, 0]], right_from=1.0)
    shares = [
        (row.k, row.n_samples, row.all_right and round(row.all_right.value, 3))
        for row in figures.passes
    ]
    assert shares == [(1, 2, 0.667), (2, 2, 0.5), (3, 1, 0.0)]
    assert measure([[1, nan], [0, nan]], right_from=1.0).passes[1].any_right is None
    few = [[1.0] * 3] * 5
    alone, among = measure(few, 1.0), measure([*few, *[[nan] * 3] * 95], 1.0)
    assert among == alone  # its interval too is of the samples with a score
    expected = [1, 2, 3, 4, 5, 10, 12]
    assert [row.k for row in measure([[1.0] * 12, [0.0] * 12], 1.0).passes] == expected


def summary_of(records: pads.Dataset, **right_from: float) -> Any:
    reduced = reduce_records(records, METRICS)
    figures = {"candidates": reduced.generation, "metrics": reduced.metrics}
    figures["epochs"] = summarise_epochs(records, METRICS, right_from)
    return add_intervals(build_summary(**figures), records)


def test_figures_of_a_run(tmp_path: Path) -> None:
    rows: list[list[float | None]] = [[0.9, 0.3], [0.8, 0.9], [0.1, None], [0.9, 0.9]]
    written = answered(rows)
    records = build_dataset(tmp_path / "r", written[:3], [*written[3:], written[0]])  # twice
    summary = summary_of(records, exact_match=0.5)
    (figures,) = summary.epochs
    assert (figures.n_samples, figures.right_from) == (3, 0.5)
    assert [(row.k, row.n_samples) for row in figures.passes] == [(1, 4), (2, 3)]
    assert figures.passes[1].all_right.value == pytest.approx(2 / 3)
    for text in (render(summary), render_brief(summary, "r")):
        assert "66.7%" in text
    assert "pass^k" in render(summary)
    # Intervals are clustered by sample
    means = np.array([0.6, 0.85, 0.1, 0.9])
    error = clustered_error(means, np.arange(4))
    (metric,) = summary.metrics
    assert "clustered by sample" in summary.intervals
    assert metric.figure.value == pytest.approx(4.8 / 7)
    assert metric.figure.high - metric.figure.value <= 3.19 * (error or 0.0)
    assert metric.figure.low == pytest.approx(max(0.0, 4.8 / 7 - 3.1824463 * (error or 0.0)))
    assert measure_speed(records, METRICS[0])[0].quality_stderr is None
    # Scores that are not all at the scale's ends are right from nowhere
    assert summary_of(records).epochs[0].passes == ()


def test_a_run_with_one_answer_a_sample_has_no_epochs(tmp_path: Path) -> None:
    records = build_dataset(tmp_path / "r", answered([[1.0], [0.0], [0.5]]))
    summary = summary_of(records)
    assert summary.epochs == ()
    assert "EPOCHS" not in render(summary)
    assert "independent" in summary.intervals


def test_scores_are_means_of_a_sample_and_marks_of_any(tmp_path: Path) -> None:
    estimate = build_score(METRIC, value=0.25, judge="rules")
    written = [
        *answered([[1.0, 0.5, None]]),
        build_record(build_sample(id="t"), "x", estimate),
        build_record(build_sample(id="t"), "x", build_score(METRIC, value=0.75), epoch=2),
    ]
    records = build_dataset(tmp_path / "r", written)
    scores = read_scores(records, "c")
    assert scores.units["sample_id"].to_pylist() == ["s0", "t"]
    assert scores.values[METRIC].tolist() == [0.75, 0.5]
    assert scores.kinds[METRIC].tolist() == [0, 1]
    assert (scores.epochs, scores.n_answers) == (3, 5)
    apart = read_all_scores(records, ["c"], by_epoch=True)["c"]
    assert np.isnan(apart.values[METRIC]).sum() == 1
    assert len(apart.units) == 5


@pytest.mark.parametrize("key", ["epoch", "user", "session"])
def test_the_quality_has_the_interval_of_its_figure(tmp_path: Path, key: str) -> None:
    rows = [[0.2, 0.3], [0.5, 0.6], [0.9, 0.7], [0.1, 0.1]]
    written = answered(rows if key == "epoch" else [[value] for row in rows for value in row])
    for number, record in enumerate(written):
        record.sample.metadata[key] = f"u{number // 2}"  # of a user or session, if not of a sample
    records = build_dataset(tmp_path / "r", written)
    reduced = reduce_records(records, METRICS)
    summary = build_summary(
        candidates=reduced.generation,
        metrics=reduced.metrics,
        headline=METRIC,
        performance=measure_speed(records, METRICS[0]),
    )
    whole = add_intervals(summary, records)
    assert whole.performance[0].n_clusters == 4
    figure, quality = whole.metrics[0].figure, quality_interval(whole.performance[0])
    assert quality == pytest.approx((100 * figure.low, 100 * figure.high))


def test_runs_of_other_numbers_of_epochs_are_compared_by_sample_means(tmp_path: Path) -> None:
    several = answered([[1.0, 0.5], [0.5, 0.5], [0.0, 0.5]])
    single = answered([[0.5], [0.25], [0.5]])
    sides = [
        Side(name, "c", {}, read_scores(build_dataset(tmp_path / name, records), "c"))
        for name, records in (("a", several), ("b", single))
    ]
    comparison = compare(sides)
    (metric,) = comparison.metrics
    assert metric.paired.n == 3
    assert metric.paired.mean_a == pytest.approx(0.5)
    assert metric.paired.difference == pytest.approx(1.25 / 3 - 0.5)
    assert any("2 and 1 answers a sample" in warning for warning in comparison.warnings)
