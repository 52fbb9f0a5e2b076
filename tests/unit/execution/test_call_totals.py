"""A run's judge calls in few figures: the sums are those of the actors."""

from memray_eval.execution.ray.reporting import ExportingCounter
from memray_eval.execution.run_counter import STALE_S, CallTotals
from memray_eval.judges.call_metrics import OUTCOMES, CallMetricsSnapshot, Calls
from tests.unit.execution.near import Exported

START = 1_000_000.0


def snapshot_of(**counts: int) -> CallMetricsSnapshot:
    ended = {outcome: counts.pop(outcome) for outcome in OUTCOMES if outcome in counts}
    now = {name: counts.pop(name) for name in ("in_flight", "waiting") if name in counts}
    return CallMetricsSnapshot(
        calls=Calls(outcomes=ended, took={1: ended.get("ok", 0), 3: 1}, waited_s=0.5, **counts),
        **now,
    )


def test_calls_are_summed_over_actors_and_by_judge() -> None:
    totals = CallTotals()
    both = {"a": snapshot_of(sent=4, ok=2, throttled=2, retried=2), "b": snapshot_of(sent=1, ok=1)}
    totals.add("m", both, START)
    totals.add("n", {"a": snapshot_of(sent=3, ok=3, cached=7)}, START)
    figures = totals.figures()
    assert (figures["sent"], figures["ok"], figures["throttled"], figures["cached"]) == (8, 6, 2, 7)
    expected = (9, {"1": 6, "3": 3}, 1.5)
    assert (figures["verdicts"], figures["tries"], figures["waited_s"]) == expected
    of_a, of_b = figures["judges"]["a"], figures["judges"]["b"]
    assert (of_a["sent"], of_b["sent"], of_b["refused"]) == (7, 1, 0)
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


def test_reports_of_calls_are_exported_together_and_none_is_lost(exported: list[Exported]) -> None:
    counter = ExportingCounter("r")
    for member in range(50):
        counter.record_calls(f"{member}", {"a": snapshot_of(ok=2, in_flight=1)})
    counter.telemetry()
    calls = [of.amount for of in exported if of.name == "memray_judge_calls"]
    assert sum(calls) == 100
    assert len(calls) < 10
    assert [of.amount for of in exported if of.name == "memray_in_flight"][-1] == 50
    assert all(of.of_all == {"run_id": "r"} for of in exported)
