"""A run's course in few figures: nothing is lost in the bins, and the sums are those of the
actors."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memray_eval.execution.exported_metrics import SERIES, Exporter, Series, answer_usage
from memray_eval.execution.run_counter import RunCounter
from memray_eval.execution.timeline import (
    BINS,
    FIRST_BIN_S,
    STALE_S,
    CallTotals,
    Timeline,
    queue_lengths,
)
from memray_eval.judges.call_metrics import OUTCOMES, CallMetricsSnapshot, Calls
from memray_eval.types import Response

START = 1_000_000.0
TIMES = st.lists(st.floats(0.0, 1e6, allow_nan=False), min_size=1, max_size=60)


@given(TIMES, st.integers(2, 9))
def test_every_amount_is_in_the_bin_of_its_time(times: list[float], bins: int) -> None:
    line = Timeline(START, bins, bin_s=0.5)
    for after_s in times:
        line.rows("judge", START + after_s, 3)
    bin_s, amounts = line.figures()["bin_s"], line.figures()["stages"]["judge"]
    right = Counter(int((START + after_s - START) / bin_s) for after_s in times)
    assert {index: amount for index, amount in enumerate(amounts) if amount} == {
        index: 3 * n for index, n in right.items()
    }
    assert len(amounts) == max(right) + 1 <= bins
    assert bin_s == 0.5 or len(amounts) > (bins - 1) // 2  # no wider than the length asks for


@pytest.mark.parametrize(
    ("length_s", "bin_s"), [(59.9, 0.5), (60.0, 1.0), (3600.0, 32.0), (7 * 86400.0, 8192.0)]
)
def test_a_longer_run_has_wider_bins_and_no_more_of_them(length_s: float, bin_s: float) -> None:
    run = Timeline(START)
    run.rows("judge", START, 1)
    run.rows("judge", START + length_s, 1)
    figures = run.figures()
    assert (figures["bin_s"], figures["started"]) == (bin_s, START)
    assert BINS // 2 < len(figures["stages"]["judge"]) <= BINS
    assert sum(figures["stages"]["judge"]) == 2


def test_stages_and_calls_share_their_bins() -> None:
    run = Timeline(START)
    run.rows("read", START - 5.0, 4)  # another node's clock
    run.rows("judge", START + 2.2 * FIRST_BIN_S, 2)
    run.calls(
        START + FIRST_BIN_S, Calls(sent=5, retried=2, cached=1, outcomes={"throttled": 2, "ok": 3})
    )
    figures = run.figures()
    assert figures["stages"] == {"read": [4, 0, 0], "judge": [0, 0, 2]}
    assert figures["calls"] == {
        "sent": [0, 5, 0],
        "retried": [0, 2, 0],
        "throttled": [0, 2, 0],
        "cached": [0, 1, 0],
    }


def snapshot_of(**counts: int) -> CallMetricsSnapshot:
    ended = {outcome: counts.pop(outcome) for outcome in OUTCOMES if outcome in counts}
    now = {name: counts.pop(name) for name in ("in_flight", "waiting") if name in counts}
    return CallMetricsSnapshot(
        calls=Calls(outcomes=ended, took={1: ended.get("ok", 0), 3: 1}, waited_s=0.5, **counts),
        **now,
    )


def test_calls_are_summed_over_actors_and_by_judge() -> None:
    totals = CallTotals()
    totals.add(
        "m",
        {"a": snapshot_of(sent=4, ok=2, throttled=2, retried=2), "b": snapshot_of(sent=1, ok=1)},
        START,
    )
    totals.add("n", {"a": snapshot_of(sent=3, ok=3, cached=7)}, START)
    figures = totals.figures()
    assert (figures["sent"], figures["ok"], figures["throttled"], figures["cached"]) == (8, 6, 2, 7)
    assert (figures["verdicts"], figures["tries"], figures["waited_s"]) == (
        9,
        {"1": 6, "3": 3},
        1.5,
    )
    assert (
        figures["judges"]["a"]["sent"],
        figures["judges"]["b"]["sent"],
        figures["judges"]["b"]["refused"],
    ) == (7, 1, 0)
    assert CallTotals().figures() == {}


def test_calls_under_way_are_those_that_actors_told_of_last() -> None:
    totals = CallTotals()
    totals.add("m", {"a": snapshot_of(sent=4, in_flight=4, waiting=2)}, START)
    totals.add("n", {"a": snapshot_of(in_flight=1), "b": snapshot_of(in_flight=1)}, START + 1)
    assert totals.under_way(START + 1) == {"a": (5, 2), "b": (1, 0)}
    totals.add("n", {"a": snapshot_of(in_flight=3)}, START + 2)
    assert totals.under_way(START + 2) == {"a": (7, 2), "b": (0, 0)}
    # M is silent: it died
    assert totals.under_way(START + 1 + STALE_S) == {"a": (3, 0), "b": (0, 0)}
    totals.add("m", {"b": snapshot_of(in_flight=2)}, START + 1 + STALE_S)  # it was slow
    assert totals.under_way(START + 2 + STALE_S) == {"a": (3, 0), "b": (2, 0)}
    assert totals.under_way(START + 3 + 2 * STALE_S) == {"a": (0, 0), "b": (0, 0)}


def test_what_waits_at_a_stage_is_what_the_one_before_is_done_with() -> None:
    stages = ("read", "generate", "judge", "write")
    assert queue_lengths(stages, {"read": 9, "generate": 6, "judge": 2, "write": 2}) == {
        "generate": 3,
        "judge": 4,
        "write": 0,
    }
    # Resumed: five that were generated before wait for their judge, and two new ones have been
    # generated.
    done = {"read": 2, "generate": 2, "judge": 3, "write": 1}
    assert queue_lengths(stages, done, carried=5) == {"generate": 0, "judge": 4, "write": 2}
    # A report that came late
    assert queue_lengths(("read", "write"), {"read": 0, "write": 1}) == {"write": 0}


def test_the_table_of_metrics_can_be_exported() -> None:
    names = [series.name for series in SERIES]
    assert len(names) == len(set(names))
    for series in SERIES:
        assert series.name.startswith("memray_")
        assert series.description.endswith(".")
        assert bool(series.buckets) == (series.kind == "histogram")
        assert all(low < high for low, high in pairwise(series.buckets))


def test_reports_of_calls_are_exported_together_and_none_is_lost() -> None:
    exported = list[tuple[str, float]]()

    class Recorder:
        def __init__(self, series: Series, run_id: str) -> None:
            self.name = series.name

        def inc(self, amount: float, tags: dict[str, str]) -> None:
            exported.append((self.name, amount))

        set = observe = inc

    counter = RunCounter(exporter=Exporter("r", Recorder))
    for member in range(50):
        counter.record_calls(f"{member}", {"a": snapshot_of(ok=2, in_flight=1)})
    counter.telemetry()
    calls = [amount for name, amount in exported if name == "memray_judge_calls"]
    assert sum(calls) == 100
    assert len(calls) < 10
    assert [amount for name, amount in exported if name == "memray_in_flight"][-1] == 50


def test_only_what_was_measured_of_answers_counts() -> None:
    took = answer_usage(
        [
            Response(
                text="a",
                prompt_tokens=10,
                output_tokens=5,
                cached_tokens=8,
                ttft_s=1.0,
                duration_s=3.0,
            ),
            Response(text="b", prompt_tokens=10, output_tokens=1, ttft_s=2.0, duration_s=2.0),
            Response(text="c", output_tokens=4),
            Response(error="refused", prompt_tokens=99),
        ]
    )
    assert (took.input_tokens, took.output_tokens, took.cached_tokens) == (20, 10, 8)
    assert (took.ttfts_s, took.tokens_per_s) == ((1.0, 2.0), (2.0,))
