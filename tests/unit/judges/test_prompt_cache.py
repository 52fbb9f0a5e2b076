"""Prompts that begin alike: when the shared part comes first, whose call goes ahead, and that
nobody waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic import BaseModel

from memray_eval.errors import BudgetSpent, JudgeError, Stopped, Unavailable
from memray_eval.judges.limits.limiter_member import CallPermit
from memray_eval.judges.limits.rate_limiter import CallCost
from memray_eval.judges.prompt_cache import LASTS_S, PromptCache, SharedStart, StartQueue
from memray_eval.judges.structured_judge import (
    CallPolicy,
    JudgeSpec,
    Reply,
    StructuredJudge,
)
from memray_eval.provider_http.retry import RetryPolicy
from memray_eval.text_processing.judge_prompts import JudgePrompt
from memray_eval.types import Usage

LONG = {"MEMORY": "x" * 8000, "QUERY": "Why?"}
CACHE = PromptCache(floor_tokens=1024, secret=b"s" * 32)
GOOD = '{"score": 1}'


class Rating(BaseModel):
    score: float


def prompt(text: str, readers: int = 9, **sections: str) -> JudgePrompt:
    return JudgePrompt("Judge it.", {**LONG, **sections, "RESPONSE": text}).read_by(readers)


@pytest.mark.parametrize(
    ("cache", "asked", "pays_off", "is_first"),
    [
        (CACHE, prompt("a"), True, True),
        (CACHE, prompt("a", readers=1), False, False),  # nothing is read again
        (CACHE, prompt("a", MEMORY="short"), False, False),  # below the floor
        (PromptCache(), prompt("a"), False, False),  # nothing is known of the model
        (PromptCache(1024, layout="rubric_first"), prompt("a"), True, False),
        (PromptCache(layout="shared_first"), prompt("a"), False, True),
    ],
)
def test_what_is_shared_comes_first_where_that_pays_off(
    cache: PromptCache, asked: JudgePrompt, pays_off: bool, is_first: bool
) -> None:
    assert (cache.pays_off(asked), cache.puts_shared_first(asked)) == (pays_off, is_first)


@pytest.mark.parametrize(
    ("cache", "told"),
    [
        (PromptCache(), "rubric_first 1"),
        (PromptCache(1024), "rubric_first 1; shared_first 1 from 1024 shared tokens on"),
        (PromptCache(1024, layout="rubric_first"), "rubric_first 1"),
        (PromptCache(layout="shared_first"), "shared_first 1"),
    ],
)
def test_a_manifest_says_how_prompts_are_laid_out(cache: PromptCache, told: str) -> None:
    assert cache.describe() == told
    assert "secret" not in repr(cache)


class Log:
    """What went through a queue, in its order."""

    def __init__(self, queue: StartQueue) -> None:
        self.queue, self.lines = queue, list[str]()

    async def call(
        self, name: str, key: str = "k", steps: int = 3, fails: BaseException | None = None
    ) -> None:
        async with self.queue.turn(key) as turn:
            self.lines.append(f"{name} {'cached' if turn.is_cached else 'ahead'}")
            for _ in range(steps):
                await asyncio.sleep(0)
            if fails is not None:
                raise fails
            turn.answered()
            self.lines.append(f"{name} done")


def through(*calls: Callable[[Log], Any], queue: StartQueue | None = None) -> list[str]:
    async def run() -> list[str]:
        log = Log(queue or StartQueue())
        tasks = [asyncio.create_task(call(log)) for call in calls]
        await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 5)
        return log.lines

    return asyncio.run(run())


def test_the_first_call_goes_ahead_and_the_others_follow_together() -> None:
    lines = through(*(lambda log, name=name: log.call(name) for name in "abc"))
    assert lines[:4] == ["a ahead", "a done", "b cached", "c cached"]


def test_other_starts_do_not_wait() -> None:
    lines = through(lambda log: log.call("a", "k"), lambda log: log.call("b", "l"))
    assert lines[:2] == ["a ahead", "b ahead"]


@pytest.mark.parametrize("error", [Unavailable("down"), BudgetSpent("no money"), Stopped("end")])
def test_where_the_first_fails_the_next_goes_ahead(error: Exception) -> None:
    lines = through(
        lambda log: log.call("a", fails=error),
        lambda log: log.call("b", fails=error),
        lambda log: log.call("c"),
        lambda log: log.call("d"),
    )
    assert lines == ["a ahead", "b ahead", "c ahead", "c done", "d cached", "d done"]


def test_a_call_that_is_given_up_lets_the_next_go_ahead() -> None:
    async def run() -> list[str]:
        log = Log(StartQueue())
        first = asyncio.create_task(log.call("a", steps=10**6))
        waiting = asyncio.create_task(log.call("b"))
        last = asyncio.create_task(log.call("c"))
        await asyncio.sleep(0.01)
        waiting.cancel()  # one that waits is missed by nobody
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait_for(last, 5)
        return log.lines

    assert asyncio.run(run()) == ["a ahead", "c ahead", "c done"]


def test_a_start_that_nobody_used_for_long_is_written_again() -> None:
    now = [0.0]
    queue = StartQueue(clock=lambda: now[0])
    assert through(lambda log: log.call("a"), queue=queue)[0] == "a ahead"
    now[0] = LASTS_S - 1
    assert through(lambda log: log.call("b"), queue=queue)[0] == "b cached"
    now[0] = 2 * LASTS_S - 2  # the last use counts
    assert through(lambda log: log.call("c"), queue=queue)[0] == "c cached"
    now[0] = 4 * LASTS_S
    assert through(lambda log: log.call("d"), queue=queue)[0] == "d ahead"


class Caching:
    """A provider that keeps starts, and takes `replies` in turn; the last for all that follow."""

    assistant_role, schema_is_in_start = "assistant", True
    parameters: Mapping[str, Any] = {}
    negotiable: Mapping[str, Any] = {}

    def adjust(self, prepared: dict[str, Any], changes: Mapping[str, str]) -> dict[str, Any]:
        return prepared

    def __init__(self, *replies: str | JudgeError) -> None:
        self.replies = list(replies)
        self.sent: list[tuple[str, SharedStart | None]] = []
        self.in_flight = self.most_in_flight = 0

    def prepare(self, judgment: type[BaseModel], system: str) -> dict[str, Any]:
        return {"schema": "beside"}

    def prepare_shared(self, judgment: type[BaseModel], system: str) -> dict[str, Any]:
        return {"system": system}

    async def send(self, prepared: Mapping[str, Any], talk: Sequence[Mapping[str, str]]) -> Any:
        return await self._answer(prepared, talk, None)

    async def send_shared(
        self, prepared: Mapping[str, Any], talk: Sequence[Mapping[str, str]], start: SharedStart
    ) -> Any:
        return await self._answer(prepared, talk, start)

    async def _answer(
        self,
        prepared: Mapping[str, Any],
        talk: Sequence[Mapping[str, str]],
        start: SharedStart | None,
    ) -> str:
        self.sent.append((talk[-1]["content"], start))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        await asyncio.sleep(0.01)
        self.in_flight -= 1
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if isinstance(reply, JudgeError):
            raise reply
        return reply

    def read(self, completion: str) -> Reply:
        return Reply(completion, Usage(input_tokens=10, output_tokens=1), "done")

    def translate(self, error: BaseException) -> JudgeError | None:
        return None


async def close() -> None:
    return None


def judge_of(wire: Caching, cache: PromptCache = CACHE, **access: Any) -> StructuredJudge:
    async def at_once(delay_s: float) -> None:
        return None

    policy = CallPolicy(RetryPolicy(tries=2, sleep=at_once), **access)
    return StructuredJudge(JudgeSpec(name="a/b", model="b", cache=cache), wire, policy, close)


def ask(judge: StructuredJudge, *prompts: JudgePrompt) -> list[Any]:
    async def all_of_them() -> list[Any]:
        asked = (judge.judge(one, Rating) for one in prompts)
        gathered = asyncio.gather(*asked, return_exceptions=True)
        return list(await asyncio.wait_for(gathered, 5))

    return asyncio.run(all_of_them())


def test_one_call_puts_the_start_into_the_cache_and_the_others_read_it() -> None:
    wire = Caching(GOOD)
    verdicts = ask(judge_of(wire), *(prompt(f"answer {number}") for number in range(5)))
    assert [verdict.judgment.score for verdict in verdicts] == [1.0] * 5
    starts = {start.key for _, start in wire.sent if start is not None}
    assert (len(wire.sent), len(starts)) == (5, 1)
    assert wire.most_in_flight == 4  # all but the first at once
    content, start = wire.sent[0]
    assert start is not None
    assert content == "".join(start.blocks)
    assert '"score"' in content  # the schema stands in the prompt


def test_short_prompts_and_such_as_share_nothing_go_at_once_with_the_rubric_first() -> None:
    wire = Caching(GOOD)
    ask(judge_of(wire), *(prompt(f"answer {number}", readers=1) for number in range(5)))
    assert wire.most_in_flight == 5
    assert {start for _, start in wire.sent} == {None}
    sent = [prompt(f"answer {number}")[1].content for number in range(5)]
    assert [content for content, _ in wire.sent] == sent


def test_a_malformed_first_answer_has_filled_the_cache() -> None:
    wire = Caching("no json", GOOD)
    verdicts = ask(judge_of(wire), *(prompt(f"answer {number}") for number in range(3)))
    assert [verdict.judgment.score for verdict in verdicts] == [1.0] * 3
    assert wire.most_in_flight == 3  # the second try and the two that waited


def test_while_the_first_waits_to_be_tried_again_the_next_goes_ahead() -> None:
    wire = Caching(Unavailable("down"), GOOD)
    verdicts = ask(judge_of(wire), *(prompt(f"answer {number}") for number in range(3)))
    assert [verdict.judgment.score for verdict in verdicts] == [1.0] * 3
    assert len(wire.sent) == 4


class NoMoney:
    """An admission that lets nobody through."""

    @asynccontextmanager
    async def turn(
        self, input_tokens: float, cached_tokens: float = 0.0
    ) -> AsyncIterator[CallPermit]:
        await asyncio.sleep(0)
        raise BudgetSpent("the next judge call does not fit the budget")
        yield CallPermit(0.0, CallCost())

    async def observe_headers(self, headers: Mapping[str, str]) -> None:
        return


def test_the_end_of_the_money_reaches_all_that_wait() -> None:
    wire = Caching(GOOD)
    ended = ask(judge_of(wire, gate=NoMoney()), *(prompt(f"answer {n}") for n in range(20)))
    assert {type(error) for error in ended} == {BudgetSpent}
    assert wire.sent == []


def test_a_layout_is_a_part_of_the_call() -> None:
    auto, first = judge_of(Caching(GOOD)), judge_of(Caching(GOOD), PromptCache())
    shared, alone = auto.pose(prompt("a"), Rating), auto.pose(prompt("a", readers=1), Rating)
    assert auto.key_of(shared) != auto.key_of(alone)
    # What was paid before there was a choice is found again
    assert auto.key_of(alone) == first.key_of(first.pose(tuple(prompt("a")), Rating))
    batch = auto.pose(prompt("a"), Rating, is_batch=True)
    assert batch.start is not None
    assert (batch.start.lasts_1h, auto.key_of(batch)) == (True, auto.key_of(shared))


def test_a_machine_with_another_secret_asks_the_same_call_with_another_nonce() -> None:
    here = judge_of(Caching(GOOD))
    elsewhere = judge_of(Caching(GOOD), PromptCache(floor_tokens=1024, secret=b"t" * 32))
    one, same = here.pose(prompt("a"), Rating), elsewhere.pose(prompt("a"), Rating)
    assert here.key_of(one) == elsewhere.key_of(same)
    assert one.messages != same.messages
    assert here.key_of(one) != here.key_of(here.pose(prompt("b"), Rating))
