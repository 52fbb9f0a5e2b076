"""How long engines take to answer a run's prompts, from what one takes for each part of its work
(`assumptions.engine`). A closed form: tests/bench/estimate_1m.py compares it with engines that are
simulated step by step.

As vLLM's chunked prefill: each step makes a token for every prompt that is being answered, and
computes up to `max_num_batched_tokens` of the others. One engine answers a block, so the beginning
that its prompts share is computed once, and few blocks load engines unevenly."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from memray_eval.config.sections import EngineConfig, EngineTimes

OWN_BATCHED_TOKENS = 2048  # vLLM's max_num_batched_tokens where nobody sets one: see execution/plan


class AskedPrompt(NamedTuple):
    """A prompt as an engine is asked it: its tokens, and those of its answer. It begins with the
    same `shared_tokens` as the one before it (None: not known), which the engine has in its prefix
    cache; one that `opens_block` mostly meets another engine."""

    tokens: float
    answer_tokens: float
    shared_tokens: float | None = 0.0
    opens_block: bool = False


class EngineWork(NamedTuple):
    """One engine's part of a run: the seconds it takes, how many prompts it
    answers at once, and the share of the prompts' tokens that its prefix cache has."""

    seconds: float
    at_once: int
    cached_share: float


def engine_work(
    prompts: Sequence[AskedPrompt],
    times: EngineTimes,
    engine: EngineConfig,
    engines: int,
    n_prompts: float,
) -> EngineWork:
    """The work of one of so many engines on `n_prompts` like these, fitted (`fit_engine`)."""

    def mean(value: Callable[[AskedPrompt], float]) -> float:
        return sum(map(value, prompts)) / len(prompts)

    openings = (prompt.shared_tokens for prompt in prompts if prompt.opens_block)
    shares = [shared for shared in openings if shared is not None]
    usual = sum(shares) / len(shares) if shares else 0.0

    def saved(prompt: AskedPrompt, cost: Callable[[float], float]) -> float:
        """The mean saving of a prompt's cost by the engine's prefix cache."""
        shared = usual if prompt.shared_tokens is None else prompt.shared_tokens
        return cost(shared) / engines if prompt.opens_block else cost(shared)

    tokens, answer = mean(lambda prompt: prompt.tokens), mean(lambda prompt: prompt.answer_tokens)
    new = mean(lambda prompt: prompt.tokens - saved(prompt, float))
    prefill_s = mean(lambda prompt: times.prefill_s(prompt.tokens) - saved(prompt, times.prefill_s))

    # Each token of an answer reads the prompt, and what is there of the answer
    def tokens_read(prompt: AskedPrompt) -> float:
        return prompt.answer_tokens * (prompt.tokens + prompt.answer_tokens / 2)

    read_s = mean(lambda prompt: times.context_s(tokens_read(prompt)))
    places = min(engine.max_num_seqs or math.inf, math.ceil(n_prompts))
    if engine.concurrent_batches is not None:
        places = min(places, engine.rows * engine.concurrent_batches)
    if times.kv_tokens is not None:
        # What prompts of a block share is held once
        places = min(places, times.kv_tokens // max(1.0, new + answer))
    at_once = max(1, int(places))
    # A prompt is in so many steps while it is computed, and then in one for each token of its
    # answer. The last one is answered when all are computed.
    batched = engine.engine_kwargs.get("max_num_batched_tokens", OWN_BATCHED_TOKENS)
    to_compute = new / batched
    steps = max(n_prompts * to_compute + answer, n_prompts * (to_compute + answer) / at_once)
    return EngineWork(
        seconds=n_prompts * (prefill_s + read_s) + steps * times.step_s,
        at_once=at_once,
        cached_share=1.0 - new / tokens if tokens else 0.0,
    )


def shared_length(first: str, second: str) -> int:
    """The length of the beginning that two texts share, found by halving."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
