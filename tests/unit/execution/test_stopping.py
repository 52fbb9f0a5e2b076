"""What decides a run before its end: rules as they are written, and looks in the run's order."""

from __future__ import annotations

import numpy as np
import pytest

from memray_eval.datasets.ordering import SampleOrder, sample_number
from memray_eval.errors import ConfigError
from memray_eval.execution.run_counter import RunCounter
from memray_eval.execution.stopping import (
    ScoredUnits,
    StopMonitor,
    StopRule,
    StopWatch,
    describe_decision,
    parse_stop_rule,
    scored_units,
)
from memray_eval.results.schema import to_table
from memray_eval.types import Candidate, Record, Response, Sample, Score, unit_id


@pytest.mark.parametrize(
    ("text", "metric", "width"),
    [
        ("helpfulness ±0.1", "helpfulness", 0.1),
        (" helpfulness +-.05 ", "helpfulness", 0.05),
        ("tone +/- 1", "tone", 1.0),
        ("compare empathy", "empathy", None),
    ],
)
def test_rules(text: str, metric: str, width: float | None) -> None:
    assert parse_stop_rule(text) == StopRule(text=text.strip(), metric=metric, width=width)


@pytest.mark.parametrize(
    "text",
    ["", "helpfulness", "helpfulness 0.1", "helpfulness ±0", "helpfulness ±x", "comparing a"],
)
def test_what_is_no_rule_says_how_one_is_written(text: str) -> None:
    with pytest.raises(ConfigError, match='write "METRIC ±NUMBER"'):
        parse_stop_rule(text)


def order_of(n: int, size: int = 1) -> SampleOrder:
    """Samples s0, s1, ... in this order, in groups of `size`."""
    numbers = np.array([sample_number(f"s{number}") for number in range(n)], np.uint64)
    by_number = np.argsort(numbers)
    groups = np.arange(n) // size
    return SampleOrder(
        numbers[by_number], by_number.astype(np.int64), groups, np.zeros(n // size, np.int64)
    )


def watch(rule: str, n: int = 400, size: int = 1, names: tuple[str, ...] = ("a",)) -> StopWatch:
    return StopWatch(parse_stop_rule(rule), (1.0, 5.0), names, order_of(n, size))


def units(places: range | list[int], value: float | None, name: str = "a") -> ScoredUnits:
    n = len(places)
    return ScoredUnits(
        sample_ids=tuple(f"s{number}" for number in places),
        candidates=(name,) * n,
        values=(value,) * n,
    )


def test_a_mean_that_is_known_closely_enough_decides() -> None:
    monitor = StopMonitor(watch("m ±0.5"))
    assert monitor.add(units(range(20), 4.0)) is None
    decision = monitor.add(units(range(20, 400), 4.0))
    assert decision is not None
    assert (decision.metric, decision.of, decision.estimate) == ("m", "a", 4.0)
    assert decision.high - decision.low <= 1.0
    assert 20 < decision.n_looked_at < 120
    assert decision.n_looks == decision.n_looked_at
    assert describe_decision(decision).startswith(f"decided: m ±0.5 after {decision.n_looked_at} ")


def test_units_are_looked_at_in_their_order_whenever_they_come() -> None:
    early, late = StopMonitor(watch("m ±0.5")), StopMonitor(watch("m ±0.5"))
    straight = early.add(units(range(400), 4.0))
    assert late.add(units(list(range(399, 0, -1)), 4.0)) is None, "the first one is not there"
    assert late.add(units([0], 4.0)) == straight


def test_units_without_a_value_are_passed_over_and_strangers_ignored() -> None:
    monitor = StopMonitor(watch("m ±0.5"))
    assert monitor.add(units(range(100), None)) is None
    assert monitor.add(units([900], 4.0)) is None
    assert monitor.add(units(range(100, 200), 4.0, "another")) is None
    decision = monitor.add(units(range(100, 400), 4.0))
    assert decision is not None
    assert decision.n_looked_at > 120


def test_a_group_counts_when_all_of_it_is_there() -> None:
    monitor = StopMonitor(watch("m ±1", 40, size=4))
    assert monitor.add(units([number for number in range(40) if number % 4 < 3], 4.0)) is None
    decision = monitor.add(units([number for number in range(40) if number % 4 == 3], 4.0))
    assert decision is None or decision.n_looked_at % 4 == 0


@pytest.mark.parametrize(("b", "of"), [(4.5, 1.5), (1.5, -1.5)])
def test_two_candidates_are_told_apart_in_pairs(b: float, of: float) -> None:
    monitor = StopMonitor(watch("compare m", names=("a", "b")))
    assert monitor.add(units(range(400), 3.0)) is None
    decision = monitor.add(units(range(400), b, "b"))
    assert decision is not None
    assert decision.of == "b"
    assert decision.estimate == pytest.approx(of)
    assert (decision.low > 0) == (of > 0)
    assert f"b differs by {of:+.3g}" in describe_decision(decision)


def test_equal_candidates_decide_nothing() -> None:
    random = np.random.default_rng(1)
    monitor = StopMonitor(watch("compare m", names=("a", "b")))
    for name in ("a", "b"):
        for number in range(400):
            decision = monitor.add(units([number], float(random.integers(1, 6)), name))
    assert decision is None


def test_several_candidates_are_all_to_be_known() -> None:
    monitor = StopMonitor(watch("m ±0.5", names=("a", "b")))
    assert monitor.add(units(range(400), 4.0)) is None
    assert monitor.add(units(range(400), 2.0, "b")) is not None


def test_the_counter_stops_the_run_unless_something_else_did() -> None:
    counter = RunCounter()
    counter.record_scores(units(range(400), 4.0))
    counter.watch_for(watch("m ±0.5"), [units(range(10), 4.0)])
    assert counter.stopping() is None
    counter.record_scores(units(range(10, 400), 4.0))
    assert (counter.stopping() or "").startswith("decided: m ±0.5")
    assert counter.telemetry().decided is not None
    spent = RunCounter()
    spent.watch_for(watch("m ±0.5"))
    spent.stop("the budget")
    spent.record_scores(units(range(400), 4.0))
    assert spent.telemetry().decided is None
    assert spent.stopping() == "the budget"


def test_values_of_a_block_of_records() -> None:
    candidate = Candidate(name="a", model="m")
    scores = [
        (
            Score(metric="m", status="scored", value=2.0),
            Score(metric="x", status="scored", value=9),
        ),
        (Score(metric="m", status="error", error="no"),),
        (),
    ]
    table = to_table(
        [
            Record(
                unit_id=unit_id(f"s{number}", candidate, "memory"),
                sample=Sample(id=f"s{number}", query="q"),
                candidate=candidate,
                response=Response(text="r"),
                scores=unit_scores,
            )
            for number, unit_scores in enumerate(scores)
        ]
    )
    assert scored_units(table, "m") == ScoredUnits(
        sample_ids=("s0", "s1", "s2"), candidates=("a",) * 3, values=(2.0, None, None)
    )
