"""Engines that sleep their service times, in vLLM's place under Ray Data LLM's stage: several of
them in one actor, each with a loop of steps of its own. What prompts share is found in their
tokens. Written apart from simulated_engine.py, which it is to check."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

import numpy as np

from memray_eval.config.sections import EngineTimes

CACHED_PROMPTS = 64  # whose tokens an engine remembers, the newest


def sleeping_engine(
    times: EngineTimes, n_engines: int, start_s: float, context: Any = None
) -> type:
    """A stage whose actor has so many engines; a batch of rows goes to the one that has the fewest
    prompts, as a block of a pool of so many actors would."""
    from ray.llm._internal.batch.stages.base import StatefulStageUDF

    class SleepingStage(StatefulStageUDF):  # type: ignore[misc]
        def __init__(self, data_column: str, expected_input_keys: list[str], **asked: Any) -> None:
            super().__init__(data_column, ["sampling_params"])
            kwargs = asked["engine_kwargs"]
            most, batched = kwargs["max_num_seqs"], kwargs["max_num_batched_tokens"]
            self._engines = [SleepingEngine(times, most, batched) for _ in range(n_engines)]
            time.sleep(start_s)

        async def udf(self, rows: list[dict[str, Any]]) -> AsyncIterator[dict[str, Any]]:
            engine = min(self._engines, key=lambda one: one.n_held)
            asked = []
            for row in rows:
                tokens = np.frombuffer(row.pop("prompt_tokens_int32"), np.int32)
                most = row["sampling_params"]["max_tokens"]
                # Any length up to the most, the same for the same prompt
                n_tokens = 1 + int(tokens.astype(np.int64).sum()) % most
                asked.append(asyncio.ensure_future(engine.ask(tokens, n_tokens)))
            for row, answer in zip(rows, asked, strict=True):
                cached, n_tokens, n_prompt = await answer
                yield {
                    self.IDX_IN_BATCH_COLUMN: row[self.IDX_IN_BATCH_COLUMN],
                    "generated_text": "word " * n_tokens,
                    "generated_tokens": [1] * n_tokens,
                    "finish_reason": "stop",
                    "num_input_tokens": n_prompt,
                    "num_cached_tokens": cached,
                    "metrics": None,
                    "__inference_error__": "",
                }

    return SleepingStage


class _Prompt:
    def __init__(self, tokens: Any, n_tokens: int) -> None:
        self.tokens, self.to_make, self.made = tokens, n_tokens, 0
        self.computed = self.cached = 0
        self.answer: asyncio.Future[tuple[int, int, int]] = asyncio.Future()


class SleepingEngine:
    """One engine of the actor's loop: it sleeps as long as each step takes, and is never later by
    more than a wake-up, since the next step is timed from the end of the last."""

    def __init__(self, times: EngineTimes, most: int, batched: int) -> None:
        self._times, self._most, self._batched = times, most, batched
        self._waiting: deque[_Prompt] = deque()
        self._under_way: list[_Prompt] = []
        self._known: deque[Any] = deque(maxlen=CACHED_PROMPTS)
        self._loop: asyncio.Task[None] | None = None

    @property
    def n_held(self) -> int:
        return len(self._waiting) + len(self._under_way)

    async def ask(self, tokens: Any, n_tokens: int) -> tuple[int, int, int]:
        prompt = _Prompt(tokens, n_tokens)
        self._waiting.append(prompt)
        if self._loop is None or self._loop.done():
            self._loop = asyncio.ensure_future(self._run())
        return await prompt.answer

    async def _run(self) -> None:
        clock = time.monotonic()
        while self.n_held:
            while self._waiting and len(self._under_way) < self._most:
                self._under_way.append(self._waiting.popleft())
            clock += self._step()
            await asyncio.sleep(max(0.0, clock - time.monotonic()))
            for prompt in [one for one in self._under_way if one.made == one.to_make]:
                self._under_way.remove(prompt)
                prompt.answer.set_result((prompt.cached, prompt.to_make, len(prompt.tokens)))

    def _step(self) -> float:
        """Makes a step, and returns how long it takes."""
        answering = [one for one in self._under_way if one.computed == len(one.tokens)]
        context = sum(len(one.tokens) + one.made for one in answering)
        seconds, room = self._times.step_s + self._times.context_s(context), self._batched
        for prompt in answering:
            prompt.made += 1
            room -= 1
        for prompt in self._under_way:
            if room <= 0 or prompt in answering:
                continue
            if not prompt.computed:
                prompt.computed = prompt.cached = self._find_known(prompt.tokens)
            after = min(len(prompt.tokens), prompt.computed + room)
            room -= after - prompt.computed
            seconds += self._times.prefill_s(after) - self._times.prefill_s(prompt.computed)
            prompt.computed = after
            if after == len(prompt.tokens):
                self._known.append(prompt.tokens)
                prompt.made += 1
        return seconds

    def _find_known(self, tokens: Any) -> int:
        """How many of the first tokens a prompt before had too; all but the last at most."""
        longest = 0
        for known in self._known:
            n = min(len(known), len(tokens) - 1)
            differs = np.flatnonzero(known[:n] != tokens[:n])
            longest = max(longest, int(differs[0]) if differs.size else n)
        return longest
