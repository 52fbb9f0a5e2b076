"""Sends a run's judge calls in batches, waits for them and keeps what they bring. Every step is in
the journal before it can be lost: the next session asks the provider by its tag for what may be
there, and sends again only what is certain to be nowhere. A batch has a deadline, after which it is
cancelled, and what has not come by then goes again, or live."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from pydantic import BaseModel

from memray_eval.config.sections import BatchConfig
from memray_eval.errors import BatchesUnderWay, BudgetSpent, JudgeError, JudgeStalled, Unauthorised
from memray_eval.judges.batches.journal import BatchedCall, BatchEntry, BatchJournal, State
from memray_eval.judges.batches.port import (
    BatchClient,
    BatchResult,
    BatchStatus,
    is_passing,
    refuses_batches,
)
from memray_eval.judges.batches.spool import CallStateIndex, PackedFile, Spool
from memray_eval.judges.call_cache import CachedCall
from memray_eval.judges.limits.budget import NO_MONEY, NOTHING, BudgetPort, Spending
from memray_eval.judges.limits.limiter_member import RunHooks
from memray_eval.judges.limits.rate_pacer import LONGEST_PAUSE_S as LONGEST_REFUSAL_S
from memray_eval.judges.structured_judge import JudgeCall, StructuredJudge
from memray_eval.ports import CURRENT_UNIT, Verdict
from memray_eval.provider_http.replies import HttpReply
from memray_eval.types import Message, Usage

T = TypeVar("T")
KEPT_AT_ONCE = 500  # verdicts that are put into the store together
SEARCHES = 3  # for a batch whose submission was not answered: a list may lag behind
CANCEL_S = 900.0  # a batch that is being cancelled may take ten minutes
LONGEST_PAUSE_S = 60.0
MOST_PASSES = 20  # over the records, also where a full queue at the provider needs further ones

# What becomes of a call without a verdict: it goes into the next batch, or is asked live
Next = Literal["again", "live"]


@dataclass(frozen=True, kw_only=True)
class BatchHooks(RunHooks):
    """What a session gives, with a display of what is waited for."""

    waiting: Callable[[str], AbstractContextManager[None]] = lambda what: nullcontext()


@dataclass
class BatchQueue:
    """One judge in batches: its client, the files that are to be sent, the batches under way.
    `live_because` says why its calls are not batched any more."""

    judge: StructuredJudge
    client: BatchClient
    model: str
    spool: Spool
    open: dict[str, BatchEntry] = field(default_factory=dict)
    live_because: str = ""
    not_before: float = 0.0
    n_misses: Counter[str] = field(default_factory=Counter)
    n_done: Counter[str] = field(default_factory=Counter)
    sending: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def name(self) -> str:
        return self.judge.name

    def has_room(self, packed: PackedFile) -> bool:
        if not self.open:
            return True
        limits, queued = self.spool.limits, sum(entry.tokens for entry in self.open.values())
        fits = limits.enqueued_tokens is None or queued + packed.tokens <= limits.enqueued_tokens
        return len(self.open) < limits.at_once and fits

    def describe(self) -> str:
        """The queue in a line: states, and how many calls are through."""
        states = Counter(entry.status or "submitted" for entry in self.open.values())
        text = ", ".join(f"{n} {state}" for state, n in sorted(states.items()))
        done = sum(self.n_done[tag] for tag in self.open)
        total = sum(entry.n_calls for entry in self.open.values())
        queued = f"; {len(self.spool.waiting)} more wait for room" if self.spool.waiting else ""
        return f"{self.name} (batches: {text}; {done:,} of {total:,} calls done{queued})"

    def note_status(self, tag: str, status: BatchStatus) -> None:
        self.open[tag] = self.open[tag].model_copy(update={"status": status.state})
        self.n_done[tag] = status.done or 0


class BatchRunner:
    """Runs the batches of one session. `judgment_of` gives the class of a metric's verdict, and
    `keep` puts calls into the store of paid calls."""

    def __init__(
        self,
        queues: Sequence[BatchQueue],
        journal: BatchJournal,
        options: BatchConfig,
        hooks: BatchHooks,
        *,
        judgment_of: Callable[[str], type[BaseModel]],
        keep: Callable[[Sequence[CachedCall]], Awaitable[None]],
        budget: BudgetPort | None = None,
        is_auto: bool = False,
        is_detached: bool = False,
    ) -> None:
        self._queues = {queue.name: queue for queue in queues}
        self._journal, self._options, self._hooks = journal, options, hooks
        self._judgment_of, self._keep, self._budget = judgment_of, keep, budget
        self._tickets = dict[str, int]()  # of the budget, by batch
        self._is_auto, self._is_detached = is_auto, is_detached
        self._keys = CallStateIndex()
        self._round, self._n_again = 1, 0
        self._entries: dict[str, BatchEntry] = {}
        self._lost_from = set[str]()

    async def run(self, fill: Callable[[], Awaitable[None]] | None) -> None:
        """Fetches what earlier sessions left under way; then `fill` notes the calls that are
        missing, they are sent, waited for and kept, as often as it takes. Raises BatchesUnderWay if
        the session is to end with that, JudgeStalled if a provider can be asked no more,
        BudgetSpent."""
        try:
            await self._attach()
            for _ in range(MOST_PASSES):
                self._n_again = 0
                if fill is not None and not self._hooks.is_stopping():
                    await fill()
                    await self._collect_lost()
                    self._close_files()
                await self._wait_for_ends()
                if fill is None or not self._n_again or self._hooks.is_stopping():
                    return
        finally:
            self._keys.close()
            for queue in self._queues.values():
                queue.spool.discard()

    async def add_missing_call(self, judge: str, planned: JudgeCall, payer: str) -> None:
        """Takes a call that is missing, unless a batch has it already or it is to go live."""
        queue = self._queues.get(judge)
        if queue is None or queue.live_because:
            return
        if (stored := self._keys.get(planned.key)) is not None:
            if stored.state == "kept":
                self._lost_from.add(stored.tag)
            return
        self._keys.put([planned.key], "held")
        unit, _, metric = payer.partition(" ")
        call = BatchedCall(planned.key, unit, metric, round(planned.tokens))
        line = queue.client.line(planned.key, await planned.request())
        if queue.spool.add(line, call):
            await self._submit_waiting(queue)

    # What earlier sessions left

    async def _attach(self) -> None:
        for entry in await asyncio.to_thread(self._journal.load):
            self._entries[entry.tag] = entry
            self._round = max(self._round, entry.round)
            queue = self._queues.get(entry.judge)
            if entry.state == "collected":
                await self._reserve(entry, NOTHING)
                await self._settle(entry, entry.spent)
                self._remember_ends(entry, self._journal.read_left(entry.tag))
            elif entry.state == "refused" and queue is not None:
                queue.live_because = entry.note
            elif entry.is_open and queue is None:
                self._hooks.say(
                    f"The batch {entry.batch_id or entry.tag} of {entry.judge} is not fetched: "
                    "no metric of this run is judged by it any more."
                )
            elif entry.is_open and queue is not None:
                await self._reserve(entry, entry.most)
                self._keys.put(self._keys_of(entry), "held", entry.tag)
                queue.open[entry.tag] = entry
        left = [(queue, entry) for queue in self._queues.values() for entry in queue.open.values()]
        for queue, entry in left:
            if entry.state != "submitted":
                await self._find_again(queue, entry)
        if n := sum(len(queue.open) for queue in self._queues.values()):
            self._hooks.say(f"Batches of an earlier session that are under way: {n}.")

    async def _find_again(self, queue: BatchQueue, entry: BatchEntry) -> None:
        """Of a batch whose journal ends before its id: what of it the provider has. What it has not
        is sent now, where its file is there, or given up: its calls are noted again."""
        client = queue.client
        may_be_there = not client.has_files or entry.state == "uploaded"
        if may_be_there and (batch_id := await self._search(queue, entry)):
            return await self._note_submitted(queue, entry, batch_id)
        if client.has_files and entry.state == "intent":
            file_id = await self._ask_with_retries(queue, lambda: client.find_upload(entry))
            if file_id:
                entry = await self._write(queue, entry, state="uploaded", file_id=file_id)
        if entry.state == "uploaded" and not self._hooks.is_stopping():
            await self._submit_entry(queue, entry, None)
        elif not self._hooks.is_stopping():
            await self._drop(queue, entry, "dropped", "it had not reached the provider")

    async def _search(self, queue: BatchQueue, entry: BatchEntry) -> str:
        """The id of a batch whose submission was not answered; "" once it is certain that there is
        none. Batches that may be it are waited for."""
        keys = set(self._keys_of(entry))
        known_ids = {other.batch_id for other in self._entries.values() if other.batch_id}
        n_searches = 0
        while not self._hooks.is_stopping():
            match = await self._ask_with_retries(
                queue, lambda: queue.client.find(entry, keys, known_ids)
            )
            if match.id:
                return match.id
            n_searches += 1
            if not match.is_unsure and n_searches >= SEARCHES:
                return ""
            if self._hooks.clock() > entry.created_s + self._options.deadline_h * 3600 + CANCEL_S:
                return ""
            what = f"{queue.name}: whether a batch was submitted"
            await self._pause(self._options.poll_s, what)
        return ""

    async def _collect_lost(self) -> None:
        """Fetches once more the results of batches whose verdicts the store has not: it may be
        another machine's. The provider keeps them for weeks."""
        lost, self._lost_from = self._lost_from, set()
        for tag in lost:
            entry = self._entries[tag]
            if (queue := self._queues.get(entry.judge)) is None:
                continue
            self._hooks.say(
                f"Verdicts of batch {entry.batch_id} are not in the store of paid calls of this "
                "machine: they are fetched again, and not paid again."
            )
            try:
                await self._collect(queue, entry, await queue.client.status(entry.batch_id))
            except JudgeError as error:
                self._hooks.say(f"They are gone, and paid again: {error}.")
                keys = list(self._keys_of(entry))
                self._keys.free(keys)
                self._n_again += len(keys)

    # Sending

    def _close_files(self) -> None:
        for queue in self._queues.values():
            queue.spool.close_file()
            spool, least = queue.spool, self._options.min_calls
            is_small = not queue.open and spool.n_added < least and len(spool.waiting) <= 1
            if self._is_auto and spool.waiting and is_small and self._round == 1:
                why = f"{spool.n_added} calls are fewer than judging.batch.min_calls ({least})"
                self._go_live(queue, why)

    async def _submit_waiting(self, queue: BatchQueue) -> None:
        """Sends the files that wait, as far as the provider's limits and the money allow."""
        async with queue.sending:
            while queue.spool.waiting and not queue.live_because and not self._hooks.is_stopping():
                packed = queue.spool.waiting[0]
                if self._hooks.clock() < queue.not_before or not queue.has_room(packed):
                    return
                queue.spool.waiting.popleft()
                if packed.entry is None:
                    affordable = await self._reserve_file(queue, packed)
                    if affordable is None:
                        return
                    packed = affordable
                await self._submit(queue, packed)

    async def _reserve_file(self, queue: BatchQueue, packed: PackedFile) -> PackedFile | None:
        """Reserves what a file may cost at most; of one that does not fit, what does. None: not
        now. Raises BudgetSpent if not even one call fits."""
        if self._budget is None:
            return packed
        while not (ticket := await self._budget.reserve(packed.most, "batch")):
            if any(other.open for other in self._queues.values()):
                queue.spool.waiting.appendleft(packed)
                return None  # what those do not spend comes back
            if packed.n_calls == 1:
                raise BudgetSpent(f"the next batch of judge calls {NO_MONEY}")
            packed = queue.spool.halve(packed)
        packed.ticket = ticket
        return packed

    async def _submit(self, queue: BatchQueue, packed: PackedFile) -> None:
        entry = packed.entry or BatchEntry(
            tag=self._journal.new_tag(),
            judge=queue.name,
            model=queue.model,
            provider=queue.client.provider,
            round=self._round,
            n_calls=packed.n_calls,
            n_bytes=packed.n_bytes,
            tokens=packed.tokens,
            most=packed.most,
            created_s=self._hooks.clock(),
        )
        client, calls = queue.client, packed.calls.read_bytes()
        queue.open[entry.tag] = self._entries[entry.tag] = entry
        self._tickets.setdefault(entry.tag, packed.ticket)
        if packed.entry is None:
            await asyncio.to_thread(self._journal.begin, entry, calls)
        if client.has_files and not entry.file_id:
            file_id = await self._send(
                queue,
                entry,
                lambda: client.upload(packed.requests, entry.tag),
                lambda: self._ask_with_retries(queue, lambda: client.find_upload(entry)),
            )
            if file_id is None:
                return self._keep_waiting(queue, entry, packed)
            entry = await self._write(queue, entry, state="uploaded", file_id=file_id)
        await self._submit_entry(queue, entry, packed)

    async def _submit_entry(
        self, queue: BatchQueue, entry: BatchEntry, packed: PackedFile | None
    ) -> None:
        """Makes the batch of an uploaded file, or of the file itself."""
        path = packed.requests if packed is not None else None
        batch_id = await self._send(
            queue,
            entry,
            lambda: queue.client.submit(entry, entry.file_id, path),
            lambda: self._search(queue, entry),
        )
        if batch_id is not None:
            await self._note_submitted(queue, entry, batch_id)
            if packed is not None:
                packed.delete()
        elif packed is not None:
            self._keep_waiting(queue, entry, packed)

    def _keep_waiting(self, queue: BatchQueue, entry: BatchEntry, packed: PackedFile) -> None:
        """A file that the provider does not take now, or the run has no time for, waits on."""
        queue.open.pop(entry.tag, None)
        if not queue.live_because:
            packed.entry = entry
            queue.spool.waiting.appendleft(packed)

    async def _send(
        self,
        queue: BatchQueue,
        entry: BatchEntry,
        send: Callable[[], Awaitable[str]],
        search: Callable[[], Awaitable[str]],
    ) -> str | None:
        """Sends, and returns the id; the provider is searched for it if no answer came. None: not
        now (busy, stopping), or never (the judge is asked live). Raises JudgeStalled if the
        provider stays out of reach: its calls may not be made in another way."""
        for attempt in range(self._options.tries):
            try:
                return await send()
            except JudgeError as error:
                if refuses_batches(error):
                    await self._refuse(queue, entry, str(error))
                    return None
                if error.status == 429:
                    asked_s = min(error.retry_after_s or 0.0, LONGEST_REFUSAL_S)
                    wait_s = max(asked_s, self._options.poll_s)
                    queue.not_before = self._hooks.clock() + wait_s
                    return None
                problem = error
            if match := await search():
                return match
            if self._hooks.is_stopping():
                return None
            await self._pause(min(LONGEST_PAUSE_S, 2.0**attempt), f"{queue.name}: {problem}")
        raise JudgeStalled(f"{queue.name}: a batch could not be submitted: {problem}")

    async def _note_submitted(self, queue: BatchQueue, entry: BatchEntry, batch_id: str) -> None:
        entry = await self._write(
            queue, entry, state="submitted", batch_id=batch_id, submitted_s=self._hooks.clock()
        )
        self._hooks.say(
            f"Batch {batch_id}: {entry.n_calls:,} calls to {queue.name}, at most {entry.most.cost}."
        )

    async def _refuse(self, queue: BatchQueue, entry: BatchEntry, why: str) -> None:
        await self._drop(queue, entry, "refused", why)
        self._go_live(queue, f"its provider takes no batches of it: {why}")

    def _go_live(self, queue: BatchQueue, why: str) -> None:
        queue.live_because = why
        queue.spool.waiting.clear()
        self._hooks.say(f"{queue.name} is asked call by call: {why}")

    # Waiting

    async def _wait_for_ends(self) -> None:
        """Until nothing waits or is under way, or the run stops."""
        while not self._hooks.is_stopping():
            for queue in self._queues.values():
                await self._submit_waiting(queue)
            busy = [queue for queue in self._queues.values() if queue.open]
            if self._is_detached and busy:
                raise BatchesUnderWay(self._left_running())
            if not busy and not any(queue.spool.waiting for queue in self._queues.values()):
                return
            what = ", ".join(queue.describe() for queue in busy) or "room for batches"
            await self._pause(self._options.poll_s, what)
            for queue in busy:
                for tag in list(queue.open):
                    await self._look(queue, queue.open[tag])

    def _left_running(self) -> str:
        entries = [entry for queue in self._queues.values() for entry in queue.open.values()]
        n_calls = sum(entry.n_calls for entry in entries)
        most = sum((entry.most for entry in entries), NOTHING)
        waiting = sum(len(queue.spool.waiting) for queue in self._queues.values())
        more = f" {waiting} more are sent when there is room." if waiting else ""
        return (
            f"Batches under way: {len(entries)}, with {n_calls:,} judge calls that cost at most "
            f"{most.cost}.{more}"
        )

    async def _look(self, queue: BatchQueue, entry: BatchEntry) -> None:
        """Asks how far a batch is, and collects it at its end, whatever that is."""
        if not entry.batch_id:  # the provider had no room for it when the session began
            if self._hooks.clock() >= queue.not_before:
                await self._submit_entry(queue, entry, None)
            return
        try:
            status = await queue.client.status(entry.batch_id)
            queue.note_status(entry.tag, status)
            now, end_s = self._hooks.clock(), self._options.deadline_h * 3600
            began_s = entry.submitted_s or entry.created_s
            if not status.end and entry.cancelled_s is None and now > began_s + end_s:
                self._hooks.say(
                    f"Batch {entry.batch_id} is {status.state} after {end_s / 3600:g} h "
                    "(judging.batch.deadline_h): it is cancelled."
                )
                await queue.client.cancel(entry.batch_id)
                await self._write(queue, entry, cancelled_s=now)
            elif status.end:
                await self._collect(queue, entry, status)
            elif entry.cancelled_s is not None and now > entry.cancelled_s + CANCEL_S:
                given_up = replace(status, end="cancelled", reason="it does not end")
                await self._collect(queue, entry, given_up)
            queue.n_misses.pop(entry.tag, None)
        except JudgeError as error:
            await self._miss(queue, entry, error)

    async def _miss(self, queue: BatchQueue, entry: BatchEntry, error: JudgeError) -> None:
        """A batch could not be asked for or fetched: it is tried again, for a while."""
        if error.status == 404:
            gone = BatchStatus(state="gone", end="failed", reason=f"it is gone: {error}")
            return await self._collect(queue, entry, gone)
        queue.n_misses[entry.tag] += 1
        if isinstance(error, Unauthorised) or queue.n_misses[entry.tag] > self._options.tries:
            raise JudgeStalled(
                f"{queue.name}: batch {entry.batch_id} cannot be fetched: {error}; its results "
                "stay at the provider"
            )

    # Collecting

    async def _collect(self, queue: BatchQueue, entry: BatchEntry, status: BatchStatus) -> None:
        """Keeps the verdicts of a batch that has ended, and notes why the other calls have none."""
        calls = {call.key: call for call in self._journal.read_calls(entry.tag)}
        sums, left = _Sums(), dict[str, str]()
        kept = list[CachedCall]()
        async for result in queue.client.results(entry.batch_id, status):
            if (call := calls.pop(result.key, None)) is None:
                continue  # told twice, or of another batch
            why, cached = await self._read(queue, call, result, sums)
            if cached is None:
                left[call.key] = why
                continue
            kept.append(cached)
            if len(kept) >= KEPT_AT_ONCE:
                await self._keep(kept)
                kept = []
        await self._keep(kept)
        if not entry.is_open:  # fetched once more
            return
        why = status.why_without_result
        left |= dict.fromkeys(calls, why)
        sums.outcomes[why] += len(calls)
        if status.is_refused and status.end == "failed":
            return await self._refuse(queue, entry, status.reason)
        await asyncio.to_thread(self._journal.write_left, entry.tag, left)
        await self._settle(entry, sums.spent)
        entry = await self._write(
            queue,
            entry,
            state="collected",
            collected_s=self._hooks.clock(),
            status=status.state,
            note=status.reason,
            outcomes={name: n for name, n in sums.outcomes.items() if n},
            spent=sums.spent,
            lost=sums.lost,
        )
        queue.open.pop(entry.tag, None)
        self._go_on(queue, entry, left, status)
        if entry.file_id:
            with suppress(JudgeError):  # it goes by itself in some weeks
                await queue.client.delete_upload(entry.file_id)

    async def _read(
        self, queue: BatchQueue, call: BatchedCall, result: BatchResult, sums: _Sums
    ) -> tuple[str, CachedCall | None]:
        """What one call came to, and what is to be kept of it."""
        if result.kind in ("expired", "cancelled"):
            sums.outcomes[result.kind] += 1
            return result.kind, None
        completion: Any = HttpReply(200, result.body)
        if result.kind == "error":
            completion = await queue.judge.batch_error(result.status, result.body)
        payer = f"{call.unit} {call.metric}"
        read = queue.judge.read_batched(completion, self._judgment_of(call.metric), call.key, payer)
        outcome: str = read.outcome
        if read.error is not None and is_passing(read.error):
            outcome = "failed"
        sums.add(outcome, read.cost_usd, read.usage)
        return outcome, read.call

    def _go_on(
        self, queue: BatchQueue, entry: BatchEntry, left: Mapping[str, str], status: BatchStatus
    ) -> None:
        """Decides what becomes of the calls without a verdict, and says so."""
        n_again, n_live = self._remember_ends(entry, left)
        self._n_again += n_again
        if status.end == "failed" and status.is_full:
            self._learn_limit(queue, entry)
        elif n_again:
            self._round = max(self._round, entry.round + 1)
        text = ", ".join(f"{n:,} {_WORDS.get(name, name)}" for name, n in entry.outcomes.items())
        parts = [f"Batch {entry.batch_id}: {text or 'nothing'}; {entry.spent.cost}"]
        if status.reason:
            parts.append(status.reason)
        if n_again:
            parts.append(f"{n_again:,} calls go into another batch")
        if n_live:
            parts.append(f"{n_live:,} are asked live")
        self._hooks.say("; ".join(parts) + ".")

    def _remember_ends(self, entry: BatchEntry, left: Mapping[str, str]) -> tuple[int, int]:
        """Notes what becomes of the calls of a batch; how many go again, and how many live."""
        by_next: dict[Next, list[str]] = {"again": [], "live": []}
        for key, why in left.items():
            by_next[self._next(entry, why)].append(key)
        self._keys.put(self._keys_of(entry), "kept", entry.tag)
        self._keys.put(by_next["live"], "live")
        self._keys.free(by_next["again"])
        return len(by_next["again"]), len(by_next["live"])

    def _next(self, entry: BatchEntry, why: str) -> Next:
        if why == "full":
            return "again"
        is_last = entry.round >= self._options.rounds
        if is_last or why in ("malformed", "truncated", "error", "invalid"):
            return "live"
        return self._options.on_expired

    def _learn_limit(self, queue: BatchQueue, entry: BatchEntry) -> None:
        """A provider's queue was full: so much fits beside each other, and no more."""
        beside = sum(entry.tokens for entry in queue.open.values())
        most = beside if beside else max(1, entry.tokens // 2)
        queue.spool.limits = replace(queue.spool.limits, enqueued_tokens=most)
        queue.not_before = self._hooks.clock() + self._options.poll_s
        self._hooks.say(
            f"{queue.name}: the provider's queue was full; {most:,} prompt tokens are sent at a "
            "time"
        )

    # Small change

    def _keys_of(self, entry: BatchEntry) -> Iterator[str]:
        return (call.key for call in self._journal.read_calls(entry.tag))

    async def _write(self, queue: BatchQueue, entry: BatchEntry, **changes: Any) -> BatchEntry:
        changed = entry.model_copy(update=changes)
        await asyncio.to_thread(self._journal.write, changed)
        self._entries[entry.tag] = changed
        if changed.is_open:
            queue.open[entry.tag] = changed
        return changed

    async def _drop(self, queue: BatchQueue, entry: BatchEntry, state: State, why: str) -> None:
        """Ends a batch that costs nothing: its calls may be noted again."""
        await self._settle(entry, NOTHING)
        await self._write(queue, entry, state=state, note=why)
        self._keys.free(self._keys_of(entry))
        queue.open.pop(entry.tag, None)

    async def _reserve(self, entry: BatchEntry, most: Spending) -> None:
        if self._budget is not None:
            self._tickets[entry.tag] = await self._budget.reserve(most, "batch under way")

    async def _settle(self, entry: BatchEntry, spent: Spending) -> None:
        if self._budget is not None:
            await self._budget.settle(self._tickets.pop(entry.tag, 0), spent)

    async def _ask_with_retries(self, queue: BatchQueue, ask: Callable[[], Awaitable[T]]) -> T:
        """Asks what costs nothing, again where that may help. Raises JudgeStalled."""
        for attempt in range(self._options.tries):
            try:
                return await ask()
            except JudgeError as error:
                problem = error
                if not is_passing(error):
                    break
            await self._pause(min(LONGEST_PAUSE_S, 2.0**attempt), f"{queue.name}: {problem}")
        raise JudgeStalled(f"{queue.name}: what was submitted cannot be looked up: {problem}")

    async def _pause(self, seconds: float, what: str) -> None:
        """Waits, but not past the stop of the run."""
        with self._hooks.waiting(what):
            await self._hooks.pause(seconds)


@dataclass
class _Sums:
    """What the calls of a batch came to."""

    outcomes: Counter[str] = field(default_factory=Counter)
    spent: Spending = NOTHING
    lost: Spending = NOTHING

    def add(self, outcome: str, usd: float, usage: Usage) -> None:
        self.outcomes[outcome] += 1
        tokens = usage.input_tokens + usage.output_tokens
        took = Spending(usd=usd, tokens=tokens, unpriced_calls=usage.unpriced_calls)
        self.spent += took
        if outcome not in ("verdict", "refused"):
            self.lost += took


_WORDS = {
    "verdict": "verdicts",
    "refused": "refusals",
    "error": "errors",
    "failed": "failed calls",
    "missing": "without a result",
    "full": "not begun",
    "invalid": "not taken",
}


class NotYet(JudgeError):
    """The verdict is still to be paid."""


class RehearsedJudge:
    """Asks nobody, in a rehearsal of the judge stage. Raises NotYet for a verdict that is not
    remembered, once its call is noted: by the judge, the call, and "UNIT METRIC" of its score."""

    def __init__(
        self,
        judge: StructuredJudge,
        repeat: int,
        note: Callable[[str, JudgeCall, str], Awaitable[None]],
    ) -> None:
        self.name, self._judge, self._repeat, self._note = judge.name, judge, repeat, note

    async def judge(self, messages: Sequence[Message], judgment: type[BaseModel]) -> Verdict:
        call = self._judge.call(messages, judgment, self._repeat, is_batch=True)
        if (verdict := await call.recall()) is not None:
            return verdict
        await self._note(self.name, call, CURRENT_UNIT.get())
        raise NotYet("its call goes into a batch")
