"""Prompt tokens that real engines have from their prefix cache, with and without affinity.

    python -m tests.bench.prefix_hits [--engines 2] [--contexts 5] [--questions 10] [--tokens 600]

The embedded model on the CPU; blocks of a few questions, context by context, as any client is given
them, none before all engines are up. Prints the cached share by vLLM's own count, on how many
engines each context was asked, and the seconds from the first answer to the last."""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import ray

from memray_eval.config.sections import EngineConfig
from memray_eval.execution.plan import fit_engine
from memray_eval.execution.ray import engine
from memray_eval.execution.ray.engine import telling_engine
from memray_eval.execution.ray.pipeline import set_up_data_context
from memray_eval.execution.ray.placement_groups import (
    EnginePlacement,
    NodeReservation,
    group_of_engine,
)
from memray_eval.execution.ray.progress_counter import ProgressCounter, RemoteCounter
from memray_eval.execution.run_counter import RunCounter
from memray_eval.execution.stage_context import StageContext
from memray_eval.models.tokenizers import load_tokenizer
from memray_eval.types import Candidate
from tests.bench.contexts import prose
from tests.clusters.fake_engine import counted_engine, read_starts

BATCH = 2  # questions of a block: a context's are at several clients at the same time


def rows(contexts: int, questions: int, tokens: int, has_prefix: bool) -> list[dict[str, Any]]:
    """Questions on contexts of so many tokens, as rows that ask."""
    tokenizer = load_tokenizer("embedded")
    candidate = Candidate(name="c", model="embedded").model_dump_json()
    made = []
    for context in range(contexts):
        start = tokenizer.encode(prose(4 * tokens, context))[:tokens]
        for question in range(questions):
            asked = start + tokenizer.encode(f"\nWhich is word {question}?", False)
            made.append(
                {
                    "prompt_tokens_int32": np.asarray(asked, np.int32).tobytes(),
                    "sampling_params": json.dumps({"max_tokens": 4, "temperature": 0.0}),
                    "prompt_prefix": f"{context}" if has_prefix else None,
                    "candidate_config": candidate,
                }
            )
    return made


def books_engine(books: Path, engines: int, context: StageContext | None) -> type:
    """A real engine that writes down what it is asked, and waits for the others first."""
    counted = counted_engine(telling_engine(context), books)

    class WaitingEngine(counted):  # type: ignore[valid-type, misc]
        async def udf(self, batch: list[dict[str, Any]]) -> AsyncIterator[dict[str, Any]]:
            while len(read_starts(books)) < engines:
                await asyncio.sleep(0.1)
            async for answer in super().udf(batch):
                yield answer

    return WaitingEngine


def measure(asked: list[dict[str, Any]], engines: int, books: Path) -> tuple[float, float]:
    """The cached share of the prompts' tokens, and the seconds that their answers took."""
    job = {"replicas": engines, "device": "cpu", "batch_size": BATCH, "concurrent_batches": 4}
    job |= {"max_model_len": 2048, "kv_cache_gib": 1, "cpus": 0.5, "starts_at_once": None}
    config = fit_engine(EngineConfig.model_validate(job), 1.0, "cpu")
    counter = RemoteCounter(ProgressCounter.remote())  # type: ignore[attr-defined]
    context = StageContext(str(books), cast(RunCounter, counter))
    engine.telling_engine = partial(books_engine, books, engines)
    with EnginePlacement(group_of_engine(config, "cpu"), NodeReservation()) as placement:
        prompts = ray.data.from_items(asked, override_num_blocks=len(asked) // BATCH)
        answered = engine.add_engines(prompts, config, "embedded", "cpu", placement, context)
        first, answers = 0.0, []
        for row in answered.iter_rows():
            first = first or time.monotonic()
            answers.append(row["answer"])
    taken = sum(answer["num_input_tokens"] for answer in answers)
    cached = sum(answer["num_cached_tokens"] or 0 for answer in answers)
    return cached / taken, time.monotonic() - first


def engines_of_contexts(asked: list[dict[str, Any]], questions: int, books: Path) -> list[int]:
    """On how many engines each context was asked."""
    contexts = {
        hashlib.sha1(row["prompt_tokens_int32"]).hexdigest(): place // questions
        for place, row in enumerate(asked)
    }
    pairs = {tuple(line.split()) for line in (books / "asked").read_text().splitlines()}
    homes = {(contexts[key], actor) for key, actor in pairs}
    return sorted(Counter(context for context, _ in homes).values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("engines", 2), ("contexts", 5), ("questions", 10), ("tokens", 600)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    set_up_data_context(no_progress_timeout_s=1800)
    with tempfile.TemporaryDirectory() as folder:
        for has_prefix in (False, True):
            asked = rows(options.contexts, options.questions, options.tokens, has_prefix)
            books = Path(folder, f"{has_prefix}")
            books.mkdir()
            share, seconds = measure(asked, options.engines, books)
            print(
                f"{'with' if has_prefix else 'without'} affinity: {share:.1%} of the prompts' "
                f"tokens from the prefix cache of {options.engines} engines, each context on "
                f"{engines_of_contexts(asked, options.questions, books)} of them, {seconds:.1f} s",
                flush=True,
            )
    best = 1 - 1 / options.questions
    print(f"each context computed once: {best:.0%} without what is a question's own")


if __name__ == "__main__":
    main()
