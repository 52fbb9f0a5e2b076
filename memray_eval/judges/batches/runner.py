"""Pays judge calls in batches, which fill the store of paid calls:

1. Collect: a rehearsal of the judge stage notes the calls that are missing, and files hold them.
2. Submit: the journal has a batch before its provider does, and each of its ids as it comes.
3. Poll: until the batch has ended; one that is past its deadline is cancelled.
4. Put: its verdicts go into the store. A call that got none is asked live.

A kill, or an answer that is lost, leaves a batch without its id. It is said, and the provider is
asked for it at each poll, until it is there or certain to be nowhere: only then it is sent again.
MOVES are all that can happen to a batch."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pydantic import BaseModel

from memray_eval.config.sections import BatchConfig, Budget
from memray_eval.errors import BatchesUnderWay, BudgetSpent, JudgeError, JudgeStalled, Unauthorised
from memray_eval.judges.batches.journal import (
    OPEN,
    BatchedCall,
    BatchEntry,
    BatchJournal,
    PackedFile,
    Spool,
    State,
)
from memray_eval.judges.batches.port import BatchClient, BatchStatus, refuses_batches
from memray_eval.judges.call_cache import CachedCall
from memray_eval.judges.limits.admission import RunHooks
from memray_eval.judges.limits.budget import NO_MONEY, NOTHING, BudgetLedger, BudgetPort, Spending
from memray_eval.judges.limits.rate_pacer import LONGEST_PAUSE_S
from memray_eval.judges.structured_judge import JudgeCall, StructuredJudge
from memray_eval.ports import CURRENT_UNIT, Verdict
from memray_eval.provider_http.replies import HttpReply
from memray_eval.types import Message

KEPT_AT_ONCE = 500  # verdicts that are put into the store together
SEARCHES = 3  # for a batch whose submission was not answered: a list may lag behind
TRIES = 5  # of a request that failed in a way that may pass
CANCEL_S = 900.0  # a batch that is being cancelled may take ten minutes
MOST_PASSES = 20  # over the records: a full queue or results that are gone need further ones

# `full`: the provider's queue is; `nowhere`: it never came there, and its file is gone
Event = Literal["submitted", "ended", "full", "refused", "nowhere"]
MOVES: Mapping[tuple[State, Event], State] = {
    ("intent", "submitted"): "submitted",
    ("intent", "nowhere"): "dropped",
    ("intent", "refused"): "refused",
    ("submitted", "ended"): "collected",
    ("submitted", "full"): "dropped",
    ("submitted", "refused"): "refused",
    ("uploaded", "submitted"): "submitted",  # of an earlier version
    ("uploaded", "nowhere"): "dropped",
}


@dataclass
class OpenBatch:
    """A batch that has not ended. `packed` is its file, where this session made it; `is_unsure`:
    it may have been submitted, though no answer said so."""

    queue: BatchQueue
    entry: BatchEntry
    packed: PackedFile | None = None
    ticket: int = 0
    is_unsure: bool = False
    n_searches: int = 0
    n_misses: int = 0
    n_done: int = 0


@dataclass
class BatchQueue:
    """One judge in batches. `live_because` says why its calls are not batched any more."""

    judge: StructuredJudge
    client: BatchClient
    spool: Spool
    open: dict[str, OpenBatch] = field(default_factory=dict)
    live_because: str = ""
    most_open: int = 1_000_000  # until the provider's queue is full
    not_before: float = 0.0

    @property
    def name(self) -> str:
        return self.judge.name

    def describe(self) -> str:
        """The queue in a line: states, and how many calls are through."""
        batches = self.open.values()
        states = Counter(batch.entry.status or "submitted" for batch in batches)
        text = ", ".join(f"{n} {state}" for state, n in sorted(states.items()))
        done = sum(batch.n_done for batch in batches)
        total = sum(batch.entry.n_calls for batch in batches)
        queued = f"; {len(self.spool.waiting)} more wait for room" if self.spool.waiting else ""
        return f"{self.name} (batches: {text}; {done:,} of {total:,} calls done{queued})"


class BatchRunner:
    """Runs the batches of one session. `judgment_of` gives the class of a metric's verdict;
    `waiting` displays what is waited for."""

    def __init__(
        self,
        queues: Sequence[BatchQueue],
        journal: BatchJournal,
        options: BatchConfig,
        hooks: RunHooks,
        *,
        judgment_of: Callable[[str], type[BaseModel]],
        keep: Callable[[Sequence[CachedCall]], Awaitable[None]],
        budget: BudgetPort | None = None,
        is_detached: bool = False,
        waiting: Callable[[str], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self._queues = {queue.name: queue for queue in queues}
        self._journal, self._options, self._hooks = journal, options, hooks
        self._judgment_of, self._keep = judgment_of, keep
        self._budget = BudgetLedger(Budget()) if budget is None else budget
        self._is_detached, self._waiting = is_detached, waiting
        # Calls that need no further batch, by key: the one with which an earlier session collected
        # it, None for those that wait, are under way, or are to be asked live
        self._batch_of = dict[str, BatchEntry | None]()
        self._lost = dict[str, BatchEntry]()  # batches whose verdicts the store has not, by tag
        self._known_ids = set[str]()
        self._is_again = False  # calls may go into a batch that the last rehearsal has not noted

    async def run(self, fill: Callable[[], Awaitable[None]] | None) -> None:
        """Fetches what earlier sessions left under way; then `fill` notes the calls that are
        missing, they are sent, waited for and kept. Raises BatchesUnderWay if the session is to end
        with that, JudgeStalled if a provider can be asked no more, BudgetSpent."""
        try:
            await self._attach()
            for _ in range(MOST_PASSES):
                self._is_again = False
                if fill is not None and not self._hooks.is_stopping():
                    await fill()
                    await self._fetch_lost()
                await self._wait_for_ends()
                if fill is None or not self._is_again or self._hooks.is_stopping():
                    return
        finally:
            for queue in self._queues.values():
                queue.spool.discard()

    async def add_missing_call(self, judge: str, planned: JudgeCall, payer: str) -> None:
        """Takes a call that is missing, unless a batch has it already or it is to go live."""
        queue = self._queues.get(judge)
        if queue is None or queue.live_because:
            return
        if planned.key in self._batch_of:
            if (entry := self._batch_of[planned.key]) is not None:
                self._lost[entry.tag] = entry
            return
        self._batch_of[planned.key] = None
        unit, _, metric = payer.partition(" ")
        call = BatchedCall(planned.key, unit, metric, round(planned.most_tokens))
        queue.spool.add(queue.client.line(planned.key, await planned.request()), call)

    # What earlier sessions left

    async def _attach(self) -> None:
        for entry in await asyncio.to_thread(self._journal.load):
            self._known_ids |= {entry.batch_id} - {""}
            queue = self._queues.get(entry.judge)
            if entry.state == "collected":
                await self._budget.settle(await self._hold(NOTHING), entry.spent)
                self._batch_of |= dict.fromkeys(self._keys_of(entry), entry)
            elif entry.state == "refused" and queue is not None:
                queue.live_because = entry.note
            elif entry.is_open and queue is None:
                self._hooks.say(
                    f"The batch {entry.batch_id or entry.tag} of {entry.judge} is not fetched: "
                    "that judge is not asked in batches, or no metric of this run is judged by it "
                    "any more. It goes on at its provider."
                )
            elif entry.is_open and queue is not None:
                ticket, is_unsure = await self._hold(entry.most), entry.state != "submitted"
                self._batch_of |= dict.fromkeys(self._keys_of(entry))
                queue.open[entry.tag] = OpenBatch(queue, entry, None, ticket, is_unsure)
        for batch in self._open():
            if batch.is_unsure:
                self._hooks.say(f"Whether the batch {batch.entry.tag} was submitted is looked up.")
                await self._advance(batch)
        if n := len(self._open()):
            self._hooks.say(f"Batches of an earlier session that are under way: {n}.")

    async def _fetch_lost(self) -> None:
        """Fetches verdicts again that the store has not: it may be another machine's."""
        lost, self._lost = self._lost, {}
        for entry in lost.values():
            if (queue := self._queues.get(entry.judge)) is None:
                continue
            self._hooks.say(
                f"Verdicts of batch {entry.batch_id} are not in the store of paid calls of this "
                "machine: they are fetched again, and not paid again."
            )
            try:
                await self._collect(queue, entry, await queue.client.status(entry.batch_id))
                self._batch_of |= dict.fromkeys(self._keys_of(entry))
            except JudgeError as error:
                self._hooks.say(f"They are gone, and paid again: {error}.")
                self._free(entry)

    # Sending

    async def _submit_waiting(self, queue: BatchQueue) -> None:
        """Sends the files that wait, as far as the provider's limits and the money allow."""
        most = min(self._options.at_once, queue.most_open)
        while queue.spool.waiting and not self._hooks.is_stopping():
            if self._hooks.clock() < queue.not_before or len(queue.open) >= most:
                return
            if (afforded := await self._reserve_file(queue)) is None:
                return
            packed, ticket = afforded
            entry = BatchEntry(
                tag=self._journal.new_tag(),
                judge=queue.name,
                provider=queue.client.provider,
                n_calls=len(packed.calls),
                most=queue.spool.most(packed),
                created_s=self._hooks.clock(),
            )
            await asyncio.to_thread(self._journal.begin, entry, packed.calls)
            batch = queue.open[entry.tag] = OpenBatch(queue, entry, packed, ticket)
            await self._advance(batch)

    async def _reserve_file(self, queue: BatchQueue) -> tuple[PackedFile, int] | None:
        """Takes the file that waits first, or what of it the budget has money for. None: not now.
        Raises BudgetSpent if not even one call fits."""
        packed = queue.spool.waiting.popleft()
        while not (ticket := await self._budget.reserve(queue.spool.most(packed), "batch")):
            if self._open():
                queue.spool.waiting.appendleft(packed)
                return None  # what those do not spend comes back
            if len(packed.calls) == 1:
                raise BudgetSpent(f"the next batch of judge calls {NO_MONEY}")
            packed = queue.spool.halve(packed)
        return packed, ticket

    # A batch

    async def _advance(self, batch: OpenBatch) -> None:
        """Takes one step with a batch. Raises JudgeStalled if its provider stays out of reach."""
        entry, queue = batch.entry, batch.queue
        try:
            if entry.state == "submitted":
                await self._look(batch)
                batch.n_misses = 0
            elif not batch.is_unsure or await self._is_unsent(batch):
                await self._send(batch)
        except JudgeError as error:
            if error.status == 404 and entry.state == "submitted":
                gone = BatchStatus(state="gone", end="failed", reason=f"it is gone: {error}")
                return await self._end(batch, gone)
            batch.n_misses += 1
            if isinstance(error, Unauthorised) or batch.n_misses >= TRIES:
                raise JudgeStalled(
                    f"{queue.name}: the batch {entry.batch_id or entry.tag} is out of reach: "
                    f"{error}; what it did stays at the provider"
                ) from None

    async def _is_unsent(self, batch: OpenBatch) -> bool:
        """True if a batch that has no id is certain not to be at its provider, and can be sent."""
        entry, keys = batch.entry, set(self._keys_of(batch.entry))
        batch_id = await batch.queue.client.find(entry, keys, self._known_ids)
        if batch_id:
            await self._note_submitted(batch, batch_id)
            return False
        batch.n_searches += 1
        last_s = entry.created_s + self._options.deadline_h * 3600 + CANCEL_S
        may_come = batch_id is None and self._hooks.clock() <= last_s
        if may_come or batch.n_searches < SEARCHES:
            return False
        batch.is_unsure, batch.n_searches = False, 0
        if batch.packed is None:
            await self._move(batch, "nowhere", note="it had not reached the provider")
        return batch.packed is not None

    async def _send(self, batch: OpenBatch) -> None:
        client, queue, packed = batch.queue.client, batch.queue, batch.packed
        assert packed is not None
        if self._hooks.clock() < queue.not_before:
            return
        is_submitting = False
        try:
            if not batch.entry.file_id:
                file_id = await client.upload(packed.path, batch.entry.tag)
                batch.entry = batch.entry.model_copy(update={"file_id": file_id})
            is_submitting = True
            batch_id = await client.submit(batch.entry, packed.path)
        except JudgeError as error:
            if refuses_batches(error):
                await self._refuse(batch, str(error))
            elif error.status == 429:
                asked_s = min(error.retry_after_s or 0.0, LONGEST_PAUSE_S)
                queue.not_before = self._hooks.clock() + max(asked_s, self._options.poll_s)
            else:
                batch.is_unsure = is_submitting
                raise
        else:
            await self._note_submitted(batch, batch_id)

    async def _note_submitted(self, batch: OpenBatch, batch_id: str) -> None:
        self._known_ids.add(batch_id)
        now, entry = self._hooks.clock(), batch.entry
        await self._move(batch, "submitted", batch_id=batch_id, submitted_s=now)
        calls = f"{entry.n_calls:,} calls to {entry.judge}"
        self._hooks.say(f"Batch {batch_id}: {calls}, at most {entry.most.cost}.")

    async def _refuse(self, batch: OpenBatch, why: str) -> None:
        await self._move(batch, "refused", note=why)
        batch.queue.live_because = why
        batch.queue.spool.waiting.clear()
        self._hooks.say(
            f"{batch.queue.name} is asked call by call: its provider takes no batches of it: {why}"
        )

    async def _look(self, batch: OpenBatch) -> None:
        """Asks how far a batch is, and collects it at its end, whatever that is."""
        entry, client, now = batch.entry, batch.queue.client, self._hooks.clock()
        status = await client.status(entry.batch_id)
        batch.entry = entry = entry.model_copy(update={"status": status.state})
        batch.n_done = status.done or 0
        end_s = self._options.deadline_h * 3600
        if status.end:
            await self._end(batch, status)
        elif entry.cancelled_s is None and now > (entry.submitted_s or entry.created_s) + end_s:
            self._hooks.say(
                f"Batch {entry.batch_id} is {status.state} after {end_s / 3600:g} h "
                "(judging.batch.deadline_h): it is cancelled."
            )
            await client.cancel(entry.batch_id)
            await self._write(batch, cancelled_s=now)
        elif entry.cancelled_s is not None and now > entry.cancelled_s + CANCEL_S:
            await self._end(batch, replace(status, end="cancelled", reason="it does not end"))

    async def _end(self, batch: OpenBatch, status: BatchStatus) -> None:
        entry, queue = batch.entry, batch.queue
        if status.end == "failed" and status.is_refused:
            return await self._refuse(batch, status.reason)
        if status.end == "failed" and status.is_full:
            return await self._wait_for_room(batch, status.reason)
        sums = await self._collect(queue, entry, status)
        words = {"status": status.state, "note": status.reason}
        await self._move(batch, "ended", collected_s=self._hooks.clock(), **words, **sums)
        outcomes = batch.entry.outcomes
        text = ", ".join(f"{n:,} {_WORDS.get(name, name)}" for name, n in outcomes.items())
        n_live = entry.n_calls - outcomes.get("verdict", 0) - outcomes.get("refused", 0)
        live = f"{n_live:,} are asked live" if n_live else ""
        first = f"Batch {entry.batch_id}: {text or 'nothing'}; {batch.entry.spent.cost}"
        self._hooks.say("; ".join(filter(None, (first, status.reason, live))) + ".")

    async def _wait_for_room(self, batch: OpenBatch, why: str) -> None:
        """A provider's queue was full: so many batches fit beside each other, and one that was
        alone is cut in half. What does not fit as a single call is asked live."""
        queue, packed, batch.packed = batch.queue, batch.packed, None
        await self._move(batch, "full", note=why)
        queue.most_open = max(1, len(queue.open))
        queue.not_before = self._hooks.clock() + self._options.poll_s
        if packed is not None:
            self._batch_of |= dict.fromkeys(self._keys_of(batch.entry))
            if queue.open or len(packed.calls) > 1:
                again = packed if queue.open else queue.spool.halve(packed)
                queue.spool.waiting.appendleft(again)
        self._hooks.say(
            f"{queue.name}: the provider's queue was full; {queue.most_open} batches are sent at a "
            "time, smaller ones if need be"
        )

    async def _collect(
        self, queue: BatchQueue, entry: BatchEntry, status: BatchStatus
    ) -> dict[str, Any]:
        """Keeps the verdicts of a batch that has ended. Returns the fields of its entry that say
        what its calls came to."""
        calls = {call.key: call for call in self._journal.read_calls(entry.tag)}
        outcomes, spent, lost, kept = Counter[str](), NOTHING, NOTHING, list[CachedCall]()
        async for result in queue.client.results(status):
            if (call := calls.pop(result.key, None)) is None:
                continue  # told twice, or of another batch
            if result.kind in ("expired", "cancelled"):
                outcomes[result.kind] += 1
                continue
            completion: Any = HttpReply(200, result.body)
            if result.kind == "error":
                completion = await queue.judge.batch_error(result.status, result.body)
            outcome, cost, cached = queue.judge.read_batched(
                completion, self._judgment_of(call.metric), call.key, f"{call.unit} {call.metric}"
            )
            outcomes[outcome] += 1
            usage = cost.usage
            tokens = usage.input_tokens + usage.output_tokens
            took = Spending(usd=cost.cost_usd, tokens=tokens, unpriced_calls=usage.unpriced_calls)
            spent += took
            if cached is None:
                lost += took
                continue
            kept.append(cached)
            if len(kept) >= KEPT_AT_ONCE:
                await self._keep(kept)
                kept = []
        await self._keep(kept)
        outcomes[status.why_without_result] += len(calls)
        return {"outcomes": dict(+outcomes), "spent": spent, "lost": lost}

    # Journal and money

    async def _move(self, batch: OpenBatch, event: Event, **changes: Any) -> None:
        """Notes what happened to a batch. The calls of one that is dropped go into another."""
        state = MOVES[batch.entry.state, event]
        await self._write(batch, state=state, **changes)
        if state in OPEN:
            return
        entry, queue = batch.entry, batch.queue
        await self._budget.settle(batch.ticket, entry.spent)
        del queue.open[entry.tag]
        if batch.packed is not None:
            batch.packed.path.unlink()
        if state == "dropped":
            self._free(entry)
        if entry.file_id:
            with suppress(JudgeError):  # it goes by itself in some weeks
                await queue.client.delete_upload(entry.file_id)

    def _free(self, entry: BatchEntry) -> None:
        """Has the calls of a batch noted again."""
        for key in self._keys_of(entry):
            self._batch_of.pop(key, None)
        self._is_again = True

    async def _write(self, batch: OpenBatch, **changes: Any) -> None:
        batch.entry = batch.entry.model_copy(update=changes)
        await asyncio.to_thread(self._journal.write, batch.entry)

    def _keys_of(self, entry: BatchEntry) -> Iterator[str]:
        return (call.key for call in self._journal.read_calls(entry.tag))

    def _open(self) -> list[OpenBatch]:
        return [batch for queue in self._queues.values() for batch in queue.open.values()]

    async def _hold(self, most: Spending) -> int:
        return await self._budget.reserve(most, "batch under way")

    # Waiting

    async def _wait_for_ends(self) -> None:
        """Until nothing waits or is under way, or the run stops."""
        queues = self._queues.values()
        while not self._hooks.is_stopping():
            for queue in queues:
                await self._submit_waiting(queue)
            batches = self._open()
            if self._is_detached and batches and not any(batch.is_unsure for batch in batches):
                raise BatchesUnderWay(self._left_running(batches))
            if not batches and not any(queue.spool.waiting for queue in queues):
                return
            what = ", ".join(queue.describe() for queue in queues if queue.open)
            with self._waiting(what or "room for batches"):
                await self._hooks.pause(self._options.poll_s)
            for batch in batches:
                if not self._hooks.is_stopping():
                    await self._advance(batch)

    def _left_running(self, batches: Sequence[OpenBatch]) -> str:
        sent = [batch.entry for batch in batches if batch.entry.batch_id]
        n_calls = sum(entry.n_calls for entry in sent)
        most = sum((entry.most for entry in sent), NOTHING)
        waiting = sum(len(queue.spool.waiting) for queue in self._queues.values())
        waiting += len(batches) - len(sent)
        more = f" {waiting} more are sent when there is room." if waiting else ""
        return (
            f"Batches under way: {len(sent)}, with {n_calls:,} judge calls that cost at most "
            f"{most.cost}.{more}"
        )


_WORDS = {
    "verdict": "verdicts",
    "refused": "refusals",
    "error": "errors",
    "missing": "without a result",
    "invalid": "not taken",
}


class NotYet(JudgeError):
    """The verdict is still to be paid."""


@dataclass
class RehearsedJudge:
    """Asks nobody. Raises NotYet for a verdict that is not remembered, once its call is noted with
    "UNIT METRIC" of its score. Without `batched` it is one that is asked live."""

    name: str
    batched: StructuredJudge | None
    repeat: int
    note: Callable[[str, JudgeCall, str], Awaitable[None]]

    async def judge(self, messages: Sequence[Message], judgment: type[BaseModel]) -> Verdict:
        if self.batched is not None:
            call = self.batched.call(messages, judgment, self.repeat, is_batch=True)
            if (verdict := await call.recall()) is not None:
                return verdict
            await self.note(self.name, call, CURRENT_UNIT.get())
        raise NotYet("its call goes into a batch, or is asked live")
