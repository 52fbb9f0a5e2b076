"""Prompts whose start a provider keeps, and the marks that no prompt can forge."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from memray_eval.errors import BudgetSpent, Stopped, Unavailable
from memray_eval.judges.limits.admission import CallPermit
from memray_eval.judges.limits.rate_pacer import CallCost
from memray_eval.judges.prompt_cache import LASTS_S, PromptCache, StartQueue
from memray_eval.judges.structured_judge import StructuredJudge
from memray_eval.text_processing.judge_prompts import JudgePrompt
from tests.fake_judges import NoAdmission, Rating, ScriptedAdapter, scripted_judge

LONG = {"MEMORY": "x" * 8000, "QUERY": "Why?"}
CACHE = PromptCache(floor_tokens=1024, secret=b"s" * 32)
GOOD = '{"score": 1}'


def prompt(text: str, readers: int = 9, **sections: str) -> JudgePrompt:
    return JudgePrompt("Judge it.", {**LONG, **sections, "RESPONSE": text}).having(readers=readers)


@pytest.mark.parametrize(
    ("cache", "prompt", "pays_off"),
    [
        (CACHE, prompt("a"), True),
        (CACHE, prompt("a", readers=1), False),  # nothing is read again
        (CACHE, prompt("a", MEMORY="short"), False),  # below the floor
        (PromptCache(), prompt("a"), False),  # nothing is known of the model
    ],
)
def test_what_is_shared_comes_first_where_that_pays_off(
    cache: PromptCache, prompt: JudgePrompt, pays_off: bool
) -> None:
    call = judge_of(ScriptedAdapter(GOOD), cache).call(prompt, Rating)
    assert (cache.pays_off(prompt), call.layout.startswith("shared_first")) == (pays_off, pays_off)


@pytest.mark.parametrize(
    ("cache", "text"),
    [
        (PromptCache(), "rubric_first 1"),
        (PromptCache(1024), "rubric_first 1; shared_first 1 from 1024 shared tokens on"),
    ],
)
def test_a_manifest_says_how_prompts_are_laid_out(cache: PromptCache, text: str) -> None:
    assert cache.describe() == text
    assert "secret" not in repr(cache)


class Log:
    """What went through a queue, in its order."""

    def __init__(self, queue: StartQueue) -> None:
        self.queue, self.lines = queue, list[str]()

    async def call(
        self, name: str, key: str = "k", steps: int = 3, fails: BaseException | None = None
    ) -> None:
        async with self.queue.follow(key) as is_cached:
            self.lines.append(f"{name} {'cached' if is_cached else 'ahead'}")
            for _ in range(steps):
                await asyncio.sleep(0)
            if fails is not None:
                raise fails
            self.queue.keep(key)
            self.lines.append(f"{name} done")


async def through(*calls: Callable[[Log], Any], queue: StartQueue | None = None) -> list[str]:
    log = Log(queue or StartQueue())
    tasks = [asyncio.create_task(call(log)) for call in calls]
    await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 5)
    return log.lines


async def test_the_first_call_goes_ahead_and_the_others_follow_together() -> None:
    lines = await through(*(lambda log, name=name: log.call(name) for name in "abc"))
    assert lines[:4] == ["a ahead", "a done", "b cached", "c cached"]


async def test_other_starts_do_not_wait() -> None:
    lines = await through(lambda log: log.call("a", "k"), lambda log: log.call("b", "l"))
    assert lines[:2] == ["a ahead", "b ahead"]


@pytest.mark.parametrize("error", [Unavailable("down"), BudgetSpent("no money"), Stopped("end")])
async def test_where_the_first_fails_the_next_goes_ahead(error: Exception) -> None:
    lines = await through(
        lambda log: log.call("a", fails=error),
        lambda log: log.call("b", fails=error),
        lambda log: log.call("c"),
        lambda log: log.call("d"),
    )
    assert lines == ["a ahead", "b ahead", "c ahead", "c done", "d cached", "d done"]


async def test_a_call_that_is_given_up_lets_the_next_go_ahead() -> None:
    log = Log(StartQueue())
    first = asyncio.create_task(log.call("a", steps=10**6))
    waiting = asyncio.create_task(log.call("b"))
    last = asyncio.create_task(log.call("c"))
    await asyncio.sleep(0.01)
    waiting.cancel()  # one that waits is missed by nobody
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait_for(last, 5)
    assert log.lines == ["a ahead", "c ahead", "c done"]


async def test_a_start_that_nobody_used_for_long_is_written_again() -> None:
    now = [0.0]
    queue = StartQueue(clock=lambda: now[0])
    assert (await through(lambda log: log.call("a"), queue=queue))[0] == "a ahead"
    now[0] = LASTS_S - 1
    assert (await through(lambda log: log.call("b"), queue=queue))[0] == "b cached"
    now[0] = 2 * LASTS_S - 2  # the last use counts
    assert (await through(lambda log: log.call("c"), queue=queue))[0] == "c cached"
    now[0] = 4 * LASTS_S
    assert (await through(lambda log: log.call("d"), queue=queue))[0] == "d ahead"


def judge_of(
    adapter: ScriptedAdapter, cache: PromptCache = CACHE, **access: Any
) -> StructuredJudge:
    return scripted_judge(adapter, access, cache=cache)


async def ask(judge: StructuredJudge, *prompts: JudgePrompt) -> list[Any]:
    verdicts = (judge.judge(prompt, Rating) for prompt in prompts)
    gathered = asyncio.gather(*verdicts, return_exceptions=True)
    return list(await asyncio.wait_for(gathered, 5))


async def test_one_call_puts_the_start_into_the_cache_and_the_others_read_it() -> None:
    adapter = ScriptedAdapter(GOOD, lasts_s=0.01)
    verdicts = await ask(judge_of(adapter), *(prompt(f"answer {number}") for number in range(5)))
    assert [verdict.judgment.score for verdict in verdicts] == [1.0] * 5
    starts = {start.key for _, start in adapter.sent if start is not None}
    assert (len(adapter.sent), len(starts)) == (5, 1)
    assert adapter.most_in_flight == 4  # all but the first at once
    messages, start = adapter.sent[0]
    assert start is not None
    assert messages[-1]["content"] == "".join(start.blocks)
    assert '"score"' in messages[-1]["content"]  # the schema stands in the prompt


async def test_short_prompts_and_such_as_share_nothing_go_at_once_with_the_rubric_first() -> None:
    adapter = ScriptedAdapter(GOOD, lasts_s=0.01)
    await ask(judge_of(adapter), *(prompt(f"answer {number}", readers=1) for number in range(5)))
    assert adapter.most_in_flight == 5
    assert {start for _, start in adapter.sent} == {None}
    sent = [prompt(f"answer {number}")[1].content for number in range(5)]
    assert [messages[-1]["content"] for messages, _ in adapter.sent] == sent


@pytest.mark.parametrize(("first", "at_once"), [("no json", 3), (Unavailable("down"), 2)])
async def test_a_malformed_first_answer_has_filled_the_cache_and_a_failed_call_has_not(
    first: str | Unavailable, at_once: int
) -> None:
    """While that waits to be tried again the next goes ahead."""
    adapter = ScriptedAdapter(first, GOOD, lasts_s=0.01)
    verdicts = await ask(judge_of(adapter), *(prompt(f"answer {number}") for number in range(3)))
    assert [verdict.judgment.score for verdict in verdicts] == [1.0] * 3
    assert (len(adapter.sent), adapter.most_in_flight) == (4, at_once)


class NoMoney(NoAdmission):
    """An admission that lets nobody through."""

    @asynccontextmanager
    async def permit(
        self, input_tokens: float, cached_tokens: float = 0.0, most_tokens: float = 0.0
    ) -> AsyncIterator[CallPermit]:
        await asyncio.sleep(0)
        raise BudgetSpent("the next judge call does not fit the budget")
        yield CallPermit(0.0, CallCost())


async def test_the_end_of_the_money_reaches_all_that_wait() -> None:
    adapter = ScriptedAdapter(GOOD, lasts_s=0.01)
    ended = await ask(
        judge_of(adapter, admission=NoMoney()), *(prompt(f"answer {n}") for n in range(20))
    )
    assert {type(error) for error in ended} == {BudgetSpent}
    assert adapter.sent == []


def test_a_layout_is_a_part_of_the_call() -> None:
    auto, first = judge_of(ScriptedAdapter(GOOD)), judge_of(ScriptedAdapter(GOOD), PromptCache())
    shared, alone = auto.call(prompt("a"), Rating), auto.call(prompt("a", readers=1), Rating)
    assert shared.key != alone.key
    # What was paid before there was a choice is found again
    assert alone.key == first.call(tuple(prompt("a")), Rating).key
    batch = auto.call(prompt("a"), Rating, is_batch=True)
    assert batch.start is not None
    assert (batch.start.lasts_1h, batch.key) == (True, shared.key)


def test_a_session_with_another_secret_asks_the_same_call_with_another_nonce() -> None:
    judge = judge_of(ScriptedAdapter(GOOD))
    other = judge_of(ScriptedAdapter(GOOD), PromptCache(floor_tokens=1024, secret=b"t" * 32))
    call, same = judge.call(prompt("a"), Rating), other.call(prompt("a"), Rating)
    assert call.key == same.key
    assert call.messages != same.messages
    assert call.key != judge.call(prompt("b"), Rating).key
