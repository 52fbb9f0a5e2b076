"""The services of a run, near: what a dead one is called, what a person is told of paid calls that
cannot be read, and that a budget holds where it is asked in batches."""

import asyncio
import random
import time
from collections import Counter as Counts
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock, patch

import pytest
import ray

from memray_eval.config.sections import Budget
from memray_eval.errors import ResourceError, ServiceLost, Stopped
from memray_eval.execution.ray.services import ActorService, failure_reason
from memray_eval.execution.services import JudgeServices, RunLedger, StoredCalls
from memray_eval.execution.waiting import killed_sessions, live_spending
from memray_eval.judges.call_cache import CallCache
from memray_eval.judges.limits.budget import BudgetPort, Spending
from memray_eval.results.run_folder import RunFolder
from tests.build import build_call
from tests.unit.execution.near import KeptReports

CALL = build_call("k", created=time.time())


async def test_paid_calls_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    lines = list[str]()
    calls = partial(StoredCalls, None, f"file://{tmp_path}", lines.append, f"{tmp_path}-run")
    await calls().keep([CALL])
    (whole,) = tmp_path.iterdir()
    (tmp_path / f"cut-{whole.name}").write_bytes(whole.read_bytes()[:10])
    assert await calls().get(["k"]) == [CALL]
    (line,) = lines
    assert line.startswith(f"Segments of paid calls in file://{tmp_path} that cannot be read")
    assert ": 1. Their calls will be paid again" in line


async def test_small_segments_are_merged_at_the_end_of_a_run_and_at_resume(tmp_path: Path) -> None:
    lines = list[str]()
    calls = partial(StoredCalls, None, f"file://{tmp_path}", lines.append, f"{tmp_path}-run")

    async def keep(keys: str) -> StoredCalls:
        stored = calls()
        for key in keys:
            await stored.keep([CALL.model_copy(update={"key": key})])
        assert len(list(tmp_path.iterdir())) == 3
        return stored

    await (await keep("abc")).finish()
    await keep("de")  # and is killed
    await calls().finish()
    assert len(list(tmp_path.iterdir())) == 1
    kept = await calls().get(list("abcdex"))
    assert [call.key if call else None for call in kept] == [*"abcde", None]
    assert lines == []


@pytest.mark.parametrize(
    ("fault", "kept", "stops"),
    [
        ("", True, 0),
        ("the cache is full", True, 1),  # they are in the run's folder
        (ResourceError("no disk has room"), False, 1),
        (RuntimeError("RayTaskError"), False, 1),
    ],
)
async def test_a_memory_that_cannot_be_written_stops_the_run_and_costs_no_verdict(
    fault: str | Exception, kept: bool, stops: int
) -> None:
    full = AsyncMock()
    full.keep.side_effect = full.claim.side_effect = [
        fault
    ]  # returned, or raised if it is an error
    counter = KeptReports()
    services = JudgeServices(limiter=None, calls=full, max_in_flight=64)
    calls = services.connect(counter, lambda: False).calls
    is_kept = await calls.put(build_call("a"))
    if isinstance(fault, Exception):
        with pytest.raises(Stopped):
            await calls.claim("b")
    assert is_kept == kept
    assert len({reason for (reason,) in counter.of("stop")}) == stops


async def test_verdicts_without_room_in_the_cache_are_in_the_run_s_folder(tmp_path: Path) -> None:
    stored = partial(
        StoredCalls, str(tmp_path / "calls.sqlite"), None, print, str(tmp_path / "run")
    )
    full = ResourceError("database or disk is full")
    with patch.object(CallCache, "put", side_effect=full):
        assert "disk is full" in await stored().keep([build_call("a")])
    for _ in range(2):  # the spare folder is read once
        assert await stored().get(["a"]) == [build_call("a")]
    assert not list((tmp_path / "run" / "spare_calls").glob("*.zst"))


class Near:
    """An actor's handle whose calls are made in this process; `counts` has them by method."""

    def __init__(self, actor: Any, counts: Counts[str]) -> None:
        self._actor, self._counts = actor, counts

    def __getattr__(self, method: str) -> Any:
        async def call(*arguments: Any) -> Any:
            self._counts[method] += 1
            await asyncio.sleep(0.001)
            return await getattr(self._actor, method)(*arguments)

        return type("Method", (), {"remote": staticmethod(call)})


def ledgers(actor: Any, members: int, counts: Counts[str]) -> list[BudgetPort]:
    """The ledger as so many judge actors see it."""
    ports = []
    for _ in range(members):
        ledger = ActorService(Near(actor, counts), "the ledger")
        handles = JudgeServices(limiter=None, budget=ledger, members=members)
        services = handles.connect(KeptReports(), lambda: False)
        ports.append(services.budget)
    return ports


async def test_a_budget_that_is_asked_in_batches_is_never_passed(tmp_path: Path) -> None:
    """Eight actors with 25 calls under way each want twice what there is."""
    chance, counts, most_reserved = random.Random(1), Counts[str](), [0]
    budget, members, calls = Budget(tokens=100_000), 8, 250
    actor = RunLedger(budget, Spending(), str(tmp_path), 1)
    reserved, spent, refused = [0], [0], [0]

    async def member(ledger: BudgetPort) -> None:
        places = asyncio.Semaphore(25)

        async def call() -> None:
            async with places:
                most = chance.randint(50, 200)
                if not (ticket := await ledger.reserve(Spending(tokens=most))):
                    refused[0] += 1
                    return
                reserved[0] += most
                most_reserved[0] = max(most_reserved[0], reserved[0] + spent[0])
                await asyncio.sleep(chance.random() * 0.002)
                used = chance.randint(most // 2, most)
                reserved[0], spent[0] = reserved[0] - most, spent[0] + used
                await ledger.settle(ticket, Spending(tokens=used))

        await asyncio.gather(*(call() for _ in range(calls)))

    await asyncio.gather(*map(member, ledgers(actor, members, counts)))
    assert actor.spent().tokens == spent[0]
    assert 99_800 <= most_reserved[0] <= 100_000
    assert spent[0] >= 99_800, "what was given back was spent"
    assert refused[0] > 100
    granted = members * calls - refused[0]
    assert counts["settle_all"] < granted / 3
    assert counts["reserve_all"] < granted / 3 + refused[0]


async def test_a_budget_of_a_killed_session_has_what_it_did_not_spend(tmp_path: Path) -> None:
    """Its calls were reserved at their longest answers; the sum is marked."""
    actor = RunLedger(Budget(usd=20.0), Spending(), str(tmp_path), 1)
    folder = RunFolder(str(tmp_path))
    tickets = await actor.reserve_all([Spending(usd=0.4)] * 64)
    assert live_spending(folder, 1).usd == pytest.approx(0.4 * 50 + 0.02)
    for ticket in filter(None, tickets[:20]):
        await actor.settle(ticket, Spending(usd=0.02))
    assert live_spending(folder, 1).usd == pytest.approx(20 * 0.02 + 30 * 0.02, abs=0.06)
    assert killed_sessions(folder, 1) == 1
    for ticket in filter(None, tickets[20:]):
        await actor.settle(ticket, Spending(usd=0.02))
    await actor.close()
    assert (live_spending(folder, 1).usd, killed_sessions(folder, 1)) == (pytest.approx(1.0), 0)


async def test_a_reservation_that_waits_holds_up_no_settlement_of_its_own_actor(
    tmp_path: Path,
) -> None:
    actor = RunLedger(Budget(tokens=100), Spending(), str(tmp_path), 1)

    (ledger,) = ledgers(actor, 1, Counts())
    draws = [asyncio.create_task(ledger.reserve(Spending(tokens=80))) for _ in range(3)]
    for draw in draws:
        ticket = await asyncio.wait_for(draw, 10)
        if ticket:
            await ledger.settle(ticket, Spending(tokens=10))
    assert actor.spent() == Spending(tokens=30)


async def test_a_dead_service_is_named() -> None:
    dead = Near(Mock(spent=AsyncMock(side_effect=ray.exceptions.ActorDiedError())), Counts())
    with pytest.raises(ServiceLost, match=r"the ledger \(LedgerActor\) has died: The actor"):
        await ActorService(dead, "the ledger (LedgerActor)").spent()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "The actor died because of an error raised in its creation task, "
            "ray::CallsActor.__init__()\n"
            "  File x, line 3\nmemray_eval.errors.ConfigError: cannot open the judge cache /x; "
            "set MEMRAY_EVAL_CACHE",
            "ConfigError: cannot open the judge cache /x; set MEMRAY_EVAL_CACHE",
        ),
        (
            "The actor died unexpectedly before finishing this task.\n\tclass_name: LedgerActor",
            "The actor died unexpectedly before finishing this task",
        ),
        ("", "RuntimeError"),
    ],
)
def test_why_an_actor_died_in_one_line(text: str, reason: str) -> None:
    assert failure_reason(RuntimeError(text)) == reason
