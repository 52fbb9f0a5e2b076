"""What a run shows of itself while it runs, and the time it says it still takes."""

import io
import re
import sys
import threading
import time
from contextlib import nullcontext
from typing import Any

import pytest

from memray_eval.config.sections import Budget
from memray_eval.execution import live_view, waiting
from memray_eval.execution.live_view import RunDisplay, ViewState, clock_text, describe_binding
from memray_eval.execution.run_counter import (
    EnginesNow,
    RunCounter,
    RunOutline,
    Snapshot,
    StageCount,
    verdicts_of,
)
from memray_eval.execution.waiting import show_waiting
from memray_eval.judges.call_metrics import BindingLimit, CallMetricsSnapshot, Calls
from memray_eval.judges.limits.budget import Spending

STAGES = ("read", "generate", "judge", "write")
LIMIT = BindingLimit(what="requests_per_min", amount=3600, source="assumed")


def outline(total: int = 100, **more: Any) -> RunOutline:
    return RunOutline(
        name="memory-x",
        total=total,
        stages=STAGES,
        first_waits={
            "read": "Ray's workers",
            "generate": "the engine of m to load the weights and answer",
            "judge": "the first scores by openai/gpt-4o",
        },
        **more,
    )


def counts(started: float = 0.0, ended: float = 1.0, **rows: int) -> dict[str, StageCount]:
    return {
        name: StageCount(rows=n, started=started, ended=ended) if n else StageCount()
        for name, n in (dict.fromkeys(STAGES, 0) | rows).items()
    }


def shown(now: float, phase: str | None = None, **rows: int) -> str:
    state = ViewState(outline(), 0.0)
    state.update(Snapshot(stages=counts(**rows)), phase, (), now)
    return state.line()


def test_the_time_left_is_that_of_the_slowest_stage_at_its_pace_so_far() -> None:
    assert "left" not in shown(5.0)
    assert "; about 1 min 30 s left" in shown(10.0, generate=20, judge=10, write=10)
    # Where the next row does not come it grows
    assert "; about 1 min 48 s left" in shown(12.0, generate=20, judge=10, write=10)
    assert "left" not in shown(90.0, generate=100, judge=100, write=100)
    assert "at least 50 s left" in shown(50.0, read=100, generate=50)  # a later stage has not begun


def test_with_phases_apart_the_time_left_is_that_of_the_phase_that_runs() -> None:
    assert "; about 1 min 40 s left of this phase" in shown(100.0, "generate", generate=50)
    assert "left" not in shown(200.0, "generate", generate=100)
    state = ViewState(outline(), 0.0)
    judging = Snapshot(stages=counts(generate=100) | counts(300.0, judge=20, write=20))
    state.update(judging, "judge", (), 320.0)
    assert "; about 1 min 20 s left of this phase" in state.line()


def test_engines_that_are_not_up_are_shown_by_phase_until_the_last_state() -> None:
    state = ViewState(outline(), 0.0)
    waiting = EnginesNow("org/m", "PENDING", 2, 65.0), EnginesNow("org/m", "up", 6, 3.0)
    state.update(Snapshot(engines=waiting), None, (), 70.0)
    expected = f"engines of org/m: 2 PENDING for {clock_text(65.0)}, 6 up"
    assert f"  {expected}" in state.view()
    assert f"; {expected}; " in state.line()
    assert expected not in "\n".join([*state.view(is_last=True), state.line(is_last=True)])


def test_verdicts_are_progress_before_the_first_block_is_judged() -> None:
    state = ViewState(outline(verdicts_a_unit=4), 0.0)
    none = Snapshot(stages=counts(read=100, generate=100), judges={"j": CallMetricsSnapshot()})
    state.update(none, None, (), 10.0)
    assert "waiting for the first scores by openai/gpt-4o" in state.line()
    assert "left" not in state.line()
    judged = CallMetricsSnapshot(calls=Calls(sent=41, took={1: 38}, cached=2))
    some = none.model_copy(update={"judges": {"j": judged}})
    state.update(some, None, (), 20.0)
    assert "about 1 min 30 s left" in state.line()  # 10 units' worth in 10 s


def snapshot() -> Snapshot:
    return Snapshot(
        stages=counts(0.0, 10.0, read=100, generate=90, judge=40, write=40)
        | {"write": StageCount(rows=40, failed=3, started=0.0, ended=20.0)},
        judges={
            "openai/gpt-4o": CallMetricsSnapshot(
                calls=Calls(sent=500, cost_usd=1.25), in_flight=128, waiting=40, limit=LIMIT
            )
        },
    )


def test_the_view_has_stages_rates_calls_the_limit_the_cost_the_failure_and_the_time() -> None:
    state = ViewState(outline(budget=Budget(usd=25.0), spent_before=Spending(usd=1.0)), 10.0)
    state.update(snapshot(), None, (), 20.0)
    view = state.view()
    text = "\n".join(view)
    assert max(map(len, view)) <= 80
    assert "memory-x: 100 answers, 10 s" in text
    assert re.search(r"judge █+░+ +40/100  4\.0/s", text)  # 40 in 10 s
    assert re.search(r"write █+░+ +40/100$", text, re.MULTILINE)  # the slowest alone has a rate
    assert "openai/gpt-4o: 128 calls in flight, 40 wait for a slot, 50.0 calls/s" in text
    assert "held back by 3,600 requests/min (assumed: the provider tells none)" in text
    assert "$2.25 of $25.00 (9%)" in text
    assert "3 failed" in text
    assert re.search(r"about .* left", text)
    line = state.line()
    assert line.startswith("read 100/100  generate 90/100  judge 40/100  write 40/100; ")
    for part in ("128 calls in flight", "held back by 3,600", "$2.25 of $25.00", "3 failed"):
        assert part in line
    assert re.search(r"; about \d+ s left$", line)
    for last in ("\n".join(state.view(is_last=True)), state.line(is_last=True)):
        assert "$2.25 of $25.00" in last
        assert not re.search("left|waiting|held back", last), "nothing is to come"


def test_a_control_character_of_a_name_does_not_reach_the_terminal() -> None:
    state = ViewState(outline(), 0.0)
    state.update(Snapshot(judges={"\x1b[31mred": CallMetricsSnapshot()}), None, (), 1.0)
    assert "\x1b" not in "".join([*state.view(), state.line()])


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        (LIMIT, "3,600 requests/min (assumed"),
        (LIMIT.model_copy(update={"source": "told"}), "3,600 requests/min (told by the provider)"),
        (LIMIT.model_copy(update={"source": "set"}), "3,600 requests/min (set in the job)"),
        (BindingLimit(what="in_flight", amount=64, source="set"), "64 calls in flight at most"),
        (BindingLimit(what="refusals", amount=90, source="told"), "429s for 1 min 30 s"),
        (BindingLimit(what="outage", amount=0, source="told"), "does not answer"),
    ],
)
def test_a_limit_says_who_says_so(limit: BindingLimit, text: str) -> None:
    assert text in describe_binding(limit)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.4, "59 s"), (60, "1 min 00 s"), (725, "12 min 05 s"), (11040, "3 h 04 min")],
)
def test_clock_text(seconds: float, text: str) -> None:
    assert clock_text(seconds) == text


def test_the_counter_tells_the_first_failure_once_and_the_judges_limits() -> None:
    counter = RunCounter(STAGES)
    for number in range(3):
        counter.record_failed_unit(f"u{number} (sample 's' of c): no answer")
    counter.add("judge", 5, 0.0, 1.0, failed=2)
    calls = CallMetricsSnapshot(
        calls=Calls(sent=9, took={1: 6}, cached=2, cost_usd=0.5), in_flight=3, waiting=4,
        limit=LIMIT,
    )  # fmt: skip
    places = BindingLimit(what="in_flight", amount=8, source="set")
    counter.record_calls("m", {"openai/gpt-4o": calls, "openai/b": calls})
    for member in ("n", "o"):
        busy = CallMetricsSnapshot(in_flight=8, waiting=5, limit=places)
        counter.record_calls(member, {"openai/b": busy})
    seen = counter.snapshot(0)
    assert [line.split(" (")[0] for line in seen.lines] == ["The first failed answer is u0"]
    assert counter.snapshot(1).lines == ()
    assert seen.n_failed == 2
    judge = seen.judges["openai/gpt-4o"]
    assert (judge.in_flight, judge.waiting, judge.limit) == (3, 4, LIMIT)
    assert verdicts_of(judge.calls) == 8
    assert seen.judges["openai/b"].limit == places.model_copy(update={"amount": 16})
    assert [judge.calls.cost_usd for judge in seen.judges.values()] == [0.5, 0.5]


class Source:
    """A run whose counter may be out of reach."""

    def __init__(self, *snapshots: Snapshot | None) -> None:
        self._snapshots, self.n_asked, self.is_polled = list(snapshots), 0, threading.Event()

    def snapshot(self, lines_since: int, within_s: float) -> Snapshot | None:
        self.n_asked += 1
        if self.n_asked == 30:
            self.is_polled.set()
        current = self._snapshots.pop(0) if len(self._snapshots) > 1 else self._snapshots[0]
        lines = ("a line for a person",)[lines_since:]
        return current and current.model_copy(update={"lines": lines})


def test_a_pipe_gets_a_line_at_once_and_another_every_minute(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (waiting.PLAIN_EVERY_S, live_view.POLL_S) == (60.0, 0.5)
    monkeypatch.setattr(live_view, "PLAIN_EVERY_S", 0.2)
    monkeypatch.setattr(live_view, "POLL_S", 0.02)
    monkeypatch.setattr(live_view, "SOON_S", 0.01)
    source = Source(None, snapshot())
    display = RunDisplay(source, outline(), lambda: None)
    with display.showing(quiet=False), display.waiting("the judge's engines to load j"):
        assert source.is_polled.wait(20)  # 30 polls are 0.6 s at least
    printed = capsys.readouterr().err.splitlines()
    first = "[     0 s] read 0/100  generate 0/100  judge 0/100  write 0/100; waiting for"
    assert (
        re.sub(r"^\[ +\d+ s\]", "[     0 s]", printed[0])
        == f"{first} the judge's engines to load j"
    )
    assert printed.count("a line for a person") == 1
    lines = [line for line in printed if line.startswith("[")]
    assert 3 <= len(lines) < source.n_asked
    assert "128 calls in flight" in lines[-1]
    with RunDisplay(source, outline(), lambda: None).showing(quiet=True):
        pass
    assert capsys.readouterr().err == ""


def test_a_terminal_gets_a_view_from_the_start_and_its_last_state_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(live_view, "POLL_S", 0.02)
    screen, source = io.StringIO(), Source(None, snapshot())
    monkeypatch.setattr(screen, "isatty", lambda: True)
    monkeypatch.setattr(live_view, "open_stderr", lambda: nullcontext(screen))
    with RunDisplay(source, outline(), lambda: None).showing(quiet=False):
        assert source.is_polled.wait(20)
        print("from elsewhere", file=sys.stderr)
    printed = screen.getvalue()
    assert "waiting for Ray's workers" in printed.partition("128 calls")[0]
    assert printed.count("a line for a person") == printed.count("from elsewhere") == 1
    last = printed[printed.rindex("memory-x") :]
    assert "40/100" in last
    assert " left" not in last


def test_waiting_is_said_and_counts_unless_it_is_over_soon(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with show_waiting("Ray to start"):
        pass
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(waiting, "SOON_S", 0.01)
    monkeypatch.setattr(waiting, "PLAIN_EVERY_S", 0.05)
    with show_waiting("the scan of a\x1b[2Jb"):
        time.sleep(0.2)
    printed = capsys.readouterr().err.splitlines()
    assert printed[0] == "Waiting for the scan of a\\u001b[2Jb ..."
    assert all(re.fullmatch(r"Waiting for .* \(\d+ s\) \.\.\.", line) for line in printed[1:])
    assert 2 <= len(printed) <= 6


def test_two_stages_at_the_same_time_take_no_longer_than_the_clock() -> None:
    judging = StageCount().plus(1, 10.0, 14.0).plus(1, 11.0, 15.0)  # eight seconds of two calls
    assert judging.beside(StageCount(rows=2, started=12.0, ended=16.0)).span_s == 6.0
    assert judging.beside(StageCount()).span_s == 5.0
