"""A judge that is down is not hammered, and is asked again as soon as it answers."""

import pytest

from memray_eval.config.sections import BreakerConfig
from memray_eval.errors import (
    JudgeError,
    Malformed,
    Refused,
    Throttled,
    Truncated,
    Unauthorised,
    Unavailable,
    UnknownModel,
)
from memray_eval.judges.limits import breaker as breakers
from memray_eval.judges.limits.breaker import Breaker

NAME = "openai/gpt-4o"
DOWN = Unavailable("the provider answered 503")
DENIED = Unauthorised("401: the key is wrong")
ABSENT = UnknownModel("404")
ALIVE: list[JudgeError] = [kind("x") for kind in (Throttled, Refused, Truncated, Malformed)]


class Scene:
    """A breaker with the time that it reads and the lines that it said."""

    def __init__(self, config: BreakerConfig = BreakerConfig()) -> None:
        self.now_s, self.lines = 1000.0, list[str]()
        self.breaker = Breaker(NAME, config, self.lines.append, lambda: self.now_s)

    def call(self, *errors: JudgeError | None) -> None:
        """One call after the other, each let go at once."""
        for error in errors:
            assert self.breaker.admit() == 0.0
            if error is None:
                self.breaker.record_success()
            else:
                self.breaker.record_failure(error)

    def probe(self, error: JudgeError, *pauses_s: float) -> None:
        """A call after each of these pauses."""
        for pause_s in pauses_s:
            self.now_s += pause_s
            self.call(error)

    def start(self, count: int) -> None:
        assert [self.breaker.admit() for _ in range(count)] == [0.0] * count

    @property
    def is_open(self) -> bool:
        """By what was said: openings and closings alternate."""
        return len(self.lines) % 2 == 1


@pytest.mark.parametrize(
    ("errors", "is_open"),
    [
        ([DOWN] * 19, False),
        ([DOWN] * 20, True),
        ([DOWN] * 19 + [None] + [DOWN] * 19, False),
        ([DOWN] * 19 + [None] + [DOWN] * 20, True),
        *(([DOWN] * 19 + [alive] + [DOWN], False) for alive in ALIVE),
        # A plain error neither counts nor is it a sign of life
        ([DOWN] * 19 + [JudgeError("400")] + [DOWN], True),
        ([JudgeError("400")] * 100, False),
        ([DENIED] * 2, False),
        ([DENIED] * 3, True),
        ([DENIED, ABSENT, DENIED], True),
        ([DENIED, DENIED, None, DENIED], False),
        ([DENIED, DOWN, DENIED, DOWN, DENIED], True),  # a 503 says nothing of the key
        ([DENIED, DENIED] + [DOWN] * 18, False),
    ],
)
def test_it_opens_after_failures_in_a_row(errors: list[JudgeError | None], is_open: bool) -> None:
    scene = Scene()
    scene.call(*errors)
    assert scene.is_open == is_open


def test_pauses_double_up_to_the_longest_and_each_lets_one_probe_through() -> None:
    scene = Scene()
    scene.call(None, *[DOWN] * 20)  # an answered call is out no more
    waits = []
    for error in (DOWN, JudgeError("the call could not be made"), DOWN, DOWN, DOWN, DOWN):
        waits.append(scene.breaker.admit())
        scene.now_s += waits[-1] - 0.5
        assert scene.breaker.admit() == pytest.approx(0.5)
        scene.now_s += 0.5
        scene.call(error)
    assert waits == [5, 10, 20, 40, 60, 60]


def test_it_says_when_it_opens_and_when_it_closes_and_nothing_between() -> None:
    scene = Scene()
    scene.call(*[DOWN] * 20)
    scene.probe(DOWN, 5, 10)
    scene.now_s += 20
    scene.call(None)
    assert scene.lines == [
        "openai/gpt-4o: 20 calls in a row failed (the provider answered 503); pausing, next try "
        "in 5 s",
        "openai/gpt-4o: answers again after 35 s",
    ]
    scene.call(*[DOWN] * 19)
    assert len(scene.lines) == 2, "the row starts anew after closing"
    scene.call(DOWN)
    assert scene.breaker.admit() == 5, "and so do the pauses"


def test_calls_wait_while_the_probe_is_out_and_look_again_soon() -> None:
    scene = Scene()
    scene.call(*[DOWN] * 20)
    scene.probe(DOWN, 5, 10, 20, 40)
    scene.now_s += 60
    scene.start(1)
    scene.now_s += 1
    assert [scene.breaker.admit(), scene.breaker.admit()] == [5, 5]
    scene.breaker.record_success()
    scene.start(3)


def test_an_abandoned_probe_lets_another_through_at_once() -> None:
    scene = Scene()
    scene.call(*[DOWN] * 20)
    for pause_s in (5, 10):
        scene.now_s += pause_s
        scene.start(1)
        assert scene.breaker.admit() > 0
        scene.breaker.record_abandoned()
        scene.start(1)
        scene.breaker.record_failure(DOWN)
        assert scene.breaker.admit() == 2 * pause_s


def test_stale_failures_lengthen_a_probes_pause_once_and_let_no_second_probe_out() -> None:
    scene = Scene()
    scene.start(25)
    for _ in range(20):
        scene.breaker.record_failure(DOWN)
    scene.now_s += 5
    scene.start(1)
    for _ in range(5):
        scene.breaker.record_failure(DOWN)
        scene.now_s += 50
        assert scene.breaker.admit() == 5, "one of the six may be the probe, and is still out"
    scene.breaker.record_failure(DOWN)
    assert scene.breaker.admit() == 10
    assert len(scene.lines) == 1


def test_a_long_outage_fails_calls_at_once_but_goes_on_probing() -> None:
    scene = Scene()
    scene.call(*[DOWN] * 20)
    scene.probe(DOWN, 5, 10, 20, 40, 60, 60, 60)
    assert scene.breaker.admit() == 60, "255 s: calls wait still"
    scene.now_s += 45
    assert scene.breaker.admit() == 15, "300 s is not longer than 300 s"
    scene.now_s += 1
    gone = r"^openai/gpt-4o has not answered for 5 min; calls fail until it does$"
    with pytest.raises(Unavailable, match=gone):
        scene.breaker.admit()
    scene.now_s += 14
    scene.start(1)
    with pytest.raises(Unavailable):
        scene.breaker.admit()
    scene.breaker.record_success()
    assert scene.lines[-1] == "openai/gpt-4o: answers again after 5 min"
    scene.start(2)


@pytest.mark.parametrize("error", [DENIED, ABSENT])
def test_a_refused_key_fails_calls_at_once_with_its_own_error(error: JudgeError) -> None:
    scene = Scene()
    scene.call(*[error] * 3)
    assert scene.lines == [
        f"openai/gpt-4o: 3 calls in a row failed ({error}); calls fail at once, next try in 60 s"
    ]
    for _ in range(3):
        for elapsed_s in (0, 59.5):
            scene.now_s += elapsed_s
            because = f"^openai/gpt-4o is not asked for now: {error}$"
            with pytest.raises(type(error), match=because) as raised:
                scene.breaker.admit()
            # Tokens and cost are written on it
            assert raised.value is not error, "every call has its own error"
        scene.now_s += 0.5
        scene.start(1)
        with pytest.raises(type(error)):
            scene.breaker.admit()
        scene.breaker.record_failure(DOWN)
    scene.now_s += 60
    scene.call(None)
    scene.start(2)


def test_probes_that_find_the_key_refused_make_calls_fail_at_once() -> None:
    scene = Scene()
    scene.call(*[DOWN] * 20)
    scene.probe(DENIED, 5, 10, 20)
    with pytest.raises(Unauthorised):
        scene.breaker.admit()
    expected = [f"{NAME}: 20 calls in a row", f"{NAME}: 3 calls in a row"]
    assert [line.partition(" failed ")[0] for line in scene.lines] == expected
    scene.now_s += 60
    scene.call(None)
    assert scene.lines[-1] == f"{NAME}: answers again after 95 s", "since it was first down"


@pytest.mark.parametrize(
    ("before", "outage_s", "waits_s"),
    [
        ([], 300, 16),  # nobody was ever there
        ([], 10, 10),
        ([], 600, 600),  # its user knows that it starts slowly
        ([None], 300, 300),
        ([JudgeError("400")], 300, 300),  # somebody says that
    ],
)
def test_a_judge_that_was_never_reached_is_waited_for_a_short_time(
    before: list[JudgeError | None],
    outage_s: float,
    waits_s: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(breakers, "LONGEST_PROBE_S", 1000.0)
    gone = Unavailable("refused")
    gone.is_unreached = True
    scene = Scene(BreakerConfig(outage_s=outage_s, probe_s=1000))
    scene.call(*before, *[gone] * 20)
    assert scene.breaker.is_unreached == (not before)
    scene.now_s += waits_s - 0.1
    assert scene.breaker.admit() > 0
    scene.now_s += 0.2
    with pytest.raises(Unavailable, match="has not answered" if before else "was never reached"):
        scene.breaker.admit()
    scene.now_s += 1000
    scene.call(None)
    assert not scene.breaker.is_open
