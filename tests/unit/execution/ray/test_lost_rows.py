"""Rows that are lost with engines, on engines that are not there: which are asked again, how, and
which are given up."""

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from unittest.mock import AsyncMock

import pyarrow as pa
import pytest

from memray_eval.errors import GenerationError
from memray_eval.execution.ray import engine_client
from memray_eval.execution.ray.engine_client import (
    LOST_BESIDE,
    MOST_DEATHS,
    MOST_IN_VAIN,
    PersistentAsker,
    Turns,
)
from memray_eval.execution.stages.generate import engine_response
from memray_eval.execution.stages.prompt import (
    ANSWER,
    ANSWER_TYPE,
    ASKING,
    ENGINE_SCHEMA,
    SECOND,
    TRUNCATED,
)


def table(rows: Iterable[int]) -> pa.Table:
    return pa.Table.from_pylist([{TRUNCATED: row} for row in rows], schema=ENGINE_SCHEMA)


def answers(rows: pa.Table) -> pa.Table:
    answer = pa.array([{"__inference_error__": ""}] * rows.num_rows, ANSWER_TYPE)
    bare = rows.drop_columns([*ASKING]).append_column(ANSWER, answer)
    return bare.append_column(SECOND, pa.nulls(rows.num_rows, ANSWER_TYPE))


class Engine:
    """One engine with its turns. It dies with all that it is asked when one of `poison` is among
    it, and as `accident` says; it is up again at once."""

    def __init__(self, poison: Iterable[int], accident: Callable[[], bool] = lambda: False) -> None:
        self.poison, self.accident = frozenset(poison), accident
        self.turns, self.seen = Turns(), list[tuple[int, ...]]()
        self.deaths = 0
        self._death = asyncio.Event()

    async def ask(self, rows: pa.Table, is_alone: bool) -> pa.Table | None:
        numbers = tuple(rows.column(TRUNCATED).to_pylist())
        async with self.turns.take(is_alone):
            self.seen.append(numbers)
            death = self._death
            await asyncio.sleep(0)
            if not death.is_set() and (self.poison & {*numbers} or self.accident()):
                self.deaths += 1
                death.set()
                self._death = asyncio.Event()
            for _ in range(3):
                await asyncio.sleep(0)
            return None if death.is_set() else answers(rows)


def answer_all(engine: Engine, tables: Sequence[Sequence[int]]) -> tuple[set[int], list[int]]:
    """Has the engine asked all tables at once. Returns the rows that were given up, and all."""

    async def ask_all() -> list[pa.Table]:
        asker = PersistentAsker(engine.ask, "m")
        return await asyncio.gather(*(asker.answer(table(rows)) for rows in tables))

    rows = pa.concat_tables(asyncio.run(ask_all())).to_pylist()
    given_up = {row[TRUNCATED] for row in rows if row[ANSWER]["__inference_error__"]}
    return given_up, [row[TRUNCATED] for row in rows]


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_client.logger, "disabled", True)


@pytest.mark.parametrize("poison", [{21}, {0, 1, 2, 3}, {5, 22, 47}, set(range(16, 64))])
def test_what_kills_every_engine_is_given_up_and_nothing_that_is_asked_beside_it(
    poison: set[int],
) -> None:
    tables = [range(start, start + 16) for start in range(0, 64, 16)]
    engine = Engine(poison)
    given_up, rows = answer_all(engine, tables)
    assert given_up == poison
    assert rows == list(range(64)), "each once, in its place"


def test_one_row_costs_few_starts_of_engines() -> None:
    engine = Engine({21})
    answer_all(engine, [range(16), range(16, 32)])
    # Twice beside others, alone with its table, with a quarter of it, and then by itself
    assert engine.deaths == LOST_BESIDE + 2 + MOST_DEATHS
    by_itself = [rows for rows in engine.seen if rows == (21,)]
    assert len(by_itself) == MOST_DEATHS
    # What was asked beside it was asked again once for each time that it was lost
    assert sum(0 in rows for rows in engine.seen) == LOST_BESIDE + 1


def test_engines_that_die_of_something_else_are_held_against_no_row() -> None:
    draw = random.Random(0)
    engine = Engine((), accident=lambda: draw.random() < 0.15)
    given_up, rows = answer_all(engine, [range(start, start + 4) for start in range(0, 400, 4)])
    assert given_up == set()
    assert rows == list(range(400))
    assert engine.deaths > 20


def test_a_row_that_is_given_up_says_why_and_how_to_go_on() -> None:
    die = AsyncMock(return_value=None)
    (row,) = asyncio.run(PersistentAsker(die, "m").answer(table([7]))).to_pylist()
    error = engine_response(row | row[ANSWER]).error or ""
    assert f"it died {MOST_DEATHS} times" in error
    assert f"({LOST_BESIDE + MOST_DEATHS} times in all)" in error
    assert "The other prompts go on." in error
    assert "max_prompt_tokens" in error


def test_engines_that_die_of_everything_stop_the_run() -> None:
    engine = Engine(range(64))
    with pytest.raises(GenerationError, match=f"died {MOST_IN_VAIN} times .* none has answered"):
        answer_all(engine, [range(start, start + 16) for start in range(0, 64, 16)])
    assert engine.deaths < LOST_BESIDE + MOST_IN_VAIN + 4  # one more of each table's, at most


async def test_who_asks_alone_waits_for_the_others_and_they_for_it() -> None:
    turns, events = Turns(), list[str]()

    async def ask(name: str, is_alone: bool) -> None:
        async with turns.take(is_alone):
            events.append(f"{name} begins")
            await asyncio.sleep(0.01)
            events.append(f"{name} ends")

    callers = [("first", False), ("alone", True), ("later", False), ("last", True)]
    tasks = [asyncio.create_task(ask(*caller)) for caller in callers]
    await asyncio.sleep(0)
    assert not turns.are_free
    await asyncio.gather(*tasks)
    assert turns.are_free
    names = ["first", "alone", "last", "later"]
    assert events == [f"{name} {what}" for name in names for what in ("begins", "ends")]


async def test_who_no_longer_waits_to_ask_alone_is_in_nobodys_way() -> None:
    turns = Turns()
    async with turns.take(False):
        waiting = asyncio.create_task(turns.take(True).__aenter__())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    async with asyncio.timeout(5), turns.take(False):
        assert not turns.are_free
    assert turns.are_free
