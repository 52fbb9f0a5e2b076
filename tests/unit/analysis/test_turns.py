"""Figures over the turns of sessions, against plain arithmetic and planned slopes."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from memray_eval.analysis.scores import measure_intervals
from memray_eval.analysis.statistics import t_quantile
from memray_eval.analysis.turns import count_unplaced, summarise_turns
from memray_eval.metrics import pick
from memray_eval.report.sections import turn_sections
from memray_eval.types import Record, TurnSummary
from tests.build import build_dataset, build_record, build_sample, build_score, build_summary

METRICS = pick(["risk_escalation", "boundary_drift", "empathy"])


def session(
    name: str, *values: float | None, metric: str = "risk_escalation", **more: Any
) -> list[Record]:
    """A record a turn with these values; None is a failed score."""
    return [
        build_record(
            build_sample(
                id=f"{name}#{turn}",
                metadata={"session": name, "turn": turn, "turns": len(values)},
                **more,
            ),
            "a",
            build_score(metric, value),
        )
        for turn, value in enumerate(values, 1)
    ]


def summarise(tmp_path: Path, *sessions: Sequence[Record]) -> tuple[TurnSummary, ...]:
    return summarise_turns(build_dataset(tmp_path / "r", *sessions), METRICS)


def test_the_figures_of_sessions_are_these(tmp_path: Path) -> None:
    values = {"a": (1.0, 0.8, 0.6), "b": (0.9, 0.5), "c": (0.4, None, 0.8), "d": (0.7,)}
    (row,) = summarise(tmp_path, *(session(name, *turns) for name, turns in values.items()))
    assert (row.metric, row.task) == ("risk_escalation", None)
    assert (row.n_sessions, row.n_turns, row.n_unscored) == (4, 8, 1)
    scored = [value for turns in values.values() for value in turns if value is not None]
    assert row.mean.value == pytest.approx(fmean(scored))
    assert row.worst
    assert row.worst.value == pytest.approx(fmean([0.6, 0.5, 0.4, 0.7]))
    assert row.last
    assert row.last.value == pytest.approx(fmean([0.6, 0.5, 0.8, 0.7]))
    # the sums of cross products and squares within a, b and c; d has no slope
    cross, squares = np.array([-0.4, -0.2, 0.4]), np.array([2.0, 0.5, 2.0])
    slope = cross.sum() / squares.sum()
    residuals = cross - slope * squares
    error = np.sqrt((residuals**2).sum() * 3 / 2) / squares.sum()
    half = t_quantile(0.975, 2) * error
    assert row.trend
    assert row.trend.n == 3
    assert (row.trend.value, row.trend.low, row.trend.high) == pytest.approx(
        (slope, slope - half, slope + half)
    )


def test_epochs_of_a_session_are_one_cluster_in_each_figure(tmp_path: Path) -> None:
    values = {"a": (0.2, 0.4), "b": (0.3, 0.5), "c": (0.6, 0.7)}
    epochs = [
        [
            record.model_copy(update={"epoch": epoch, "unit_id": f"{record.unit_id}-{epoch}"})
            for record in session(name, *(value + epoch / 1000 for value in turns))
        ]
        for name, turns in values.items()
        for epoch in range(1, 11)
    ]
    (row,) = summarise(tmp_path, *epochs)
    assert row.n_sessions == 30
    for figure, at in ((row.worst, 0), (row.last, 1)):
        once = np.array([turns[at] for turns in values.values()])
        half = t_quantile(0.975, 2) * once.std(ddof=1) / 3**0.5
        assert figure.high - figure.value == pytest.approx(half, rel=0.01)


@pytest.mark.parametrize(
    ("sessions", "lacking"),
    [
        ([session("a", 0.5, 0.7)], {"interval"}),  # one session says nothing of others
        ([session("a", 0.0, 1.0)], {"interval"}),
        ([session("a", 0.5), session("b", 0.7)], {"trend"}),
        ([session("a", 0.5, None), session("b", None, 0.7)], {"trend"}),
        ([session("a", 0.5, 0.7), session("b", 0.4, 0.6)], set()),
    ],
)
def test_what_the_sessions_do_not_determine_is_absent(
    tmp_path: Path, sessions: Sequence[Sequence[Record]], lacking: set[str]
) -> None:
    (row,) = summarise(tmp_path, *sessions)
    assert (row.trend is None) == ("trend" in lacking)
    assert (row.mean.low is None) == ("interval" in lacking)
    assert row.worst
    assert (row.worst.low is None) == ("interval" in lacking)
    section = next(turn_sections([row]))
    assert "nan" not in "\n".join(section.lines())


@pytest.mark.parametrize(
    "records",
    [
        [build_record(build_sample(), "a", build_score("risk_escalation"))],
        session("a", 0.5, 0.7, metric="boundary_drift"),  # of the session's level
        session("a", 0.5, 0.7, metric="safety"),  # no metric of the run
        session("a", None, None),
    ],
)
def test_records_without_a_scored_turn_have_no_summary(
    tmp_path: Path, records: list[Record]
) -> None:
    assert summarise(tmp_path, records) == ()


def test_a_unit_written_twice_counts_once_and_tasks_have_rows(tmp_path: Path) -> None:
    first, second = session("a", 0.5, 0.7, task="x"), session("b", 0.1, 0.2, task="y")
    rows = summarise(tmp_path, first, first, second)
    assert [(row.task, row.n_turns) for row in rows] == [(None, 4), ("x", 2), ("y", 2)]
    titles = [section.title for section in turn_sections(rows)]
    assert titles == ["SESSIONS - c"]


def test_rows_that_name_a_session_and_no_turn_are_counted(tmp_path: Path) -> None:
    turns: list[Any] = [1, None, "2", 0, 2.0]
    records = [
        build_record(build_sample(id=str(turn), metadata={"session": "S", "turn": turn}))
        for turn in turns
    ]
    single = build_record(build_sample())
    assert count_unplaced(build_dataset(tmp_path / "a", records, [single])) == 2  # None and 0
    assert count_unplaced(build_dataset(tmp_path / "b", [single])) == 0


def test_a_session_is_one_cluster_in_the_summarys_interval(tmp_path: Path) -> None:
    records = [session(name, 0.1 * level, 0.1 * level) for level, name in enumerate("abcd", 1)]
    dataset = build_dataset(tmp_path / "r", *records)
    summary = build_summary(candidates=())
    assert measure_intervals(dataset, summary).cluster == "session"
    (row,) = summarise_turns(dataset, METRICS)
    once = np.array([0.1, 0.2, 0.3, 0.4])
    half = t_quantile(0.975, 3) * once.std(ddof=1) / 2
    assert (row.mean.low, row.mean.high) == pytest.approx((0.25 - half, 0.25 + half))
