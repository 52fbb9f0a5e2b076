"""An engine on simulated time: vLLM's loop with chunked prefill, a prefix cache and a KV cache,
step by step, with the service times of `assumptions.engine`. Steps in which prompts are only
answered are taken together up to the next answer's end, so that millions of prompts take minutes.

A prompt begins when its KV cache is free up to the end of its answer, so none is put back and
computed again; a prompt on a context that the engine holds computes only what is its own."""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import NamedTuple

from memray_eval.config.sections import EngineConfig, EngineTimes
from memray_eval.execution.engine_time import OWN_BATCHED_TOKENS


class Asked(NamedTuple):
    """A prompt: a context and its tokens, the tokens that follow it, and those of the answer."""

    context: int
    context_tokens: int
    own_tokens: int
    answer_tokens: int


class _Running:
    __slots__ = ("asked", "block", "end", "position")

    def __init__(self, block: int, asked: Asked, position: int) -> None:
        self.block, self.asked = block, asked
        self.position, self.end = position, asked.context_tokens + asked.own_tokens


class SimulatedEngine:
    """One engine. `now` is its clock in seconds, and `computed_tokens` what it has computed of
    prompts."""

    def __init__(self, times: EngineTimes, engine: EngineConfig) -> None:
        self.now, self.computed_tokens = 0.0, 0
        self._step_s, self._a_token_s = times.step_s, 1.0 / times.prefill_tokens_per_s
        self._longer = 0.0 if times.doubles_at is None else 0.5 / times.doubles_at
        self._read_s = times.context_s(1.0)
        self._kv = math.inf if times.kv_tokens is None else times.kv_tokens
        self._most = engine.max_num_seqs or 256
        self._batched = engine.engine_kwargs.get("max_num_batched_tokens", OWN_BATCHED_TOKENS)
        self._waiting: deque[tuple[int, Asked]] = deque()
        self._computing: deque[_Running] = deque()
        self._answering: list[tuple[int, int, _Running]] = []  # by the step of the last token
        self._left: dict[int, int] = {}  # answers that blocks still wait for
        self._steps = self._n_begun = self._context = self._held = 0
        self._users: dict[int, int] = {}  # of the contexts that prompts under way are on
        self._idle: OrderedDict[int, int] = OrderedDict()  # other contexts that it holds: tokens

    def add(self, block: int, asked: Sequence[Asked]) -> None:
        self._left[block] = len(asked)
        self._waiting.extend((block, one) for one in asked)

    @property
    def is_idle(self) -> bool:
        return not (self._waiting or self._computing or self._answering)

    def run(self, until: float) -> list[int]:
        """Goes on until blocks are answered, which it returns, or to the first step that ends at
        `until` or later, or until nothing is left to do."""
        answering, computing = self._answering, self._computing
        while self.now < until:
            if self._waiting:
                self._admit()
            n = len(answering)
            if computing:
                self._take_step(n)
            elif n:
                steps = answering[0][0] - self._steps
                read = steps * self._context + n * steps * (steps - 1) / 2
                self.now += steps * self._step_s + read * self._read_s
                self._context += n * steps
                self._steps += steps
            else:
                return []
            done = []
            while answering and answering[0][0] <= self._steps:
                if (block := self._finish(heapq.heappop(answering)[2])) is not None:
                    done.append(block)
            if done:
                return done
        return []

    def _admit(self) -> None:
        """Begins waiting prompts, in their order, while there are places and KV cache."""
        waiting, users = self._waiting, self._users
        while waiting and len(self._answering) + len(self._computing) < self._most:
            block, asked = waiting[0]
            context, is_here = asked.context, asked.context in users or asked.context in self._idle
            needed = asked.own_tokens + asked.answer_tokens
            needed += 0 if is_here else asked.context_tokens
            if self._held + needed > self._kv:
                for other in list(self._idle):  # the one that was not used for longest first
                    if other != context:
                        self._held -= self._idle.pop(other)
                    if self._held + needed <= self._kv:
                        break
                if self._held + needed > self._kv and (self._answering or self._computing):
                    return
            waiting.popleft()
            self._held += needed
            self._idle.pop(context, None)
            users[context] = users.get(context, 0) + 1
            self._computing.append(_Running(block, asked, asked.context_tokens * is_here))

    def _take_step(self, n: int) -> None:
        """A step that makes a token for n prompts, and computes some of the next ones."""
        computing, budget, longer_s, done = self._computing, max(1, self._batched - n), 0.0, []
        while computing and budget:
            one = computing[0]
            taken = min(budget, one.end - one.position)
            middle = 2 * one.position + taken
            longer_s += taken * self._a_token_s * (1.0 + middle * self._longer)
            one.position += taken
            budget -= taken
            self.computed_tokens += taken
            if one.position == one.end:
                done.append(computing.popleft())
        self.now += self._step_s + self._context * self._read_s + longer_s
        self._context += n
        self._steps += 1
        for one in done:  # with the first token of its answer
            self._context += one.end + 1
            self._n_begun += 1
            last = self._steps + one.asked.answer_tokens - 1
            heapq.heappush(self._answering, (last, self._n_begun, one))

    def _finish(self, one: _Running) -> int | None:
        """Frees what an answered prompt held. Returns its block, if that was the last of it."""
        asked = one.asked
        self._context -= one.end + asked.answer_tokens
        self._held -= asked.own_tokens + asked.answer_tokens
        self._users[asked.context] -= 1
        if not self._users[asked.context]:
            del self._users[asked.context]
            self._idle[asked.context] = asked.context_tokens
            self._idle.move_to_end(asked.context)
        self._left[one.block] -= 1
        if self._left[one.block]:
            return None
        del self._left[one.block]
        return one.block


class SimulatedPool:
    """Engines that come up at `starts`, and answer blocks as Ray Data's pool has them do it: the
    next block goes to the engine that has the fewest, of those with less than `in_flight`;
    `at_once` of an engine's blocks are under way, and the others wait there."""

    def __init__(
        self,
        engines: Sequence[SimulatedEngine],
        starts: Sequence[float],
        at_once: int,
        in_flight: int,
    ) -> None:
        self._engines, self._at_once, self._in_flight = engines, at_once, in_flight
        self._blocks: Sequence[Sequence[Asked]] = ()
        self._n_given, self._looked_for = 0, -1
        self._held = [-1] * len(engines)  # blocks; -1: not up yet
        self._running, self._queues = [0] * len(engines), [deque[int]() for _ in engines]
        # When an engine comes up, and then each time that it stops to be looked at, with the blocks
        # that it has answered; -1 in its place: a block is ready
        self._events: list[tuple[float, int, list[int]]] = [
            (start, number, []) for number, start in enumerate(starts)
        ]
        heapq.heapify(self._events)
        self._has_event = [True] * len(engines)

    def answer(
        self, blocks: Sequence[Sequence[Asked]], ready: Sequence[float]
    ) -> list[tuple[float, int]]:
        """Has blocks answered, each from when it is `ready` on, in their order. Returns when each
        was answered, with its rows, in order of time."""
        self._blocks, ends = blocks, list[tuple[float, int]]()
        while self._events:
            now, number, done = heapq.heappop(self._events)
            if number >= 0:
                self._has_event[number] = False
                self._held[number] = max(0, self._held[number]) - len(done)
                self._running[number] -= len(done)
                ends += ((now, len(blocks[block])) for block in done)
                while self._queues[number] and self._running[number] < self._at_once:
                    self._begin(number, self._queues[number].popleft(), now)
            self._hand_out(now, ready)
            if number >= 0 and not self._has_event[number] and not self._engines[number].is_idle:
                due = ready[self._n_given] if self._n_given < len(blocks) else math.inf
                has_room = any(0 <= n < self._in_flight for n in self._held)
                done = self._engines[number].run(due if has_room and due > now else math.inf)
                self._look_at(number, done)
        return ends

    def _hand_out(self, now: float, ready: Sequence[float]) -> None:
        """Gives blocks that are ready to engines that have room."""
        while self._n_given < len(self._blocks):
            free = [number for number, n in enumerate(self._held) if 0 <= n < self._in_flight]
            if not free:
                return
            if ready[self._n_given] > now:
                if self._looked_for != self._n_given:
                    self._looked_for = self._n_given
                    heapq.heappush(self._events, (ready[self._n_given], -1, []))
                return
            number = min(free, key=self._held.__getitem__)
            self._held[number] += 1
            if self._running[number] < self._at_once:
                self._begin(number, self._n_given, now)
            else:
                self._queues[number].append(self._n_given)
            self._n_given += 1

    def _begin(self, number: int, block: int, now: float) -> None:
        self._running[number] += 1
        self._engines[number].now = max(self._engines[number].now, now)
        self._engines[number].add(block, self._blocks[block])
        if not self._has_event[number]:
            self._look_at(number, [])

    def _look_at(self, number: int, done: list[int]) -> None:
        self._has_event[number] = True
        heapq.heappush(self._events, (self._engines[number].now, number, done))
