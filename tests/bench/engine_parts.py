"""The parts of the GPU table. engine_table.py runs each in a process of its own, and reads the rows
that it writes."""

import json
import os
import random
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from memray_eval.config.sections import ClusterConfig, EngineConfig
from memray_eval.execution.plan import Device, fit_engine

QUESTIONS = 4  # on each shared context
ASKED_BY = '{"name": "table", "model": "dummy", "backend": "vllm"}'  # a row's column


@dataclass(frozen=True)
class Sizes:
    """What is measured, in tokens: `contexts` by their names in the table, the `step` that prompts
    are computed by, and the window, which is also the KV cache of the engine on half a device."""

    contexts: Mapping[str, int]
    answer: int
    step: int
    window: int
    block: int
    shape: Mapping[str, Any]
    n_shared: int = 8  # contexts of "32k", of which the window is four

    @property
    def shared(self) -> int:
        return self.contexts["32k"]


# Llama-3-8B's own numbers, but for the window: 8.03B weights are 15 GiB in bfloat16, and a token of
# the KV cache takes 2 x 32 layers x 8 heads x 128 x 2 bytes = 128 KiB, so a window 16.3 GiB. Of
# 80 GB vLLM's share of 0.92 leaves room for three windows, and half of it for one.
# A prompt of 128k takes 15 GFLOP a token, and as much again for each 29k tokens that it looks back
# on (0.52 MFLOP each): 6 PFLOP, some 15 s on an H100. One of 32k takes 1.7 s, one of 2k 0.07 s.
GPU = Sizes(
    {"2k": 2_000, "32k": 32_000, "128k": 128_000},
    answer=64,
    step=16_384,  # as the product's engine for long prompts has it
    window=133_120,
    block=16,
    shape={
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 128_256,
    },
)
CPU = Sizes(
    {"2k": 128, "32k": 512, "128k": 2_048},
    answer=8,
    step=512,
    window=2_176,
    block=128,
    n_shared=32,
    shape={
        "hidden_size": 512,
        "intermediate_size": 2048,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 64,
        "vocab_size": 32_000,
    },
)


@dataclass(frozen=True)
class Part:
    """What a part is told: its device, the model's folder, the file that its rows go to, when it is
    over on the clock of time.monotonic(), and how many prompts the rows before it are of."""

    device: Device
    model: str
    rows: str
    ends_at: float
    counts: Mapping[str, int]

    @property
    def sizes(self) -> Sizes:
        return GPU if self.device == "gpu" else CPU

    @property
    def left_s(self) -> float:
        return self.ends_at - time.monotonic()

    def emit(self, what: str, **row: Any) -> None:
        with open(self.rows, "a", encoding="utf-8") as rows:
            rows.write(json.dumps({"what": what, **row}) + "\n")

    def engine(self, **kwargs: Any) -> EngineConfig:
        """The engine of every part, as the product fits it to long prompts."""
        sizes = self.sizes
        kwargs |= {"load_format": "dummy", "enable_prefix_caching": True}
        # Explicit, so that both sides have it on the CPU too, and all parts share compiled code
        kwargs |= {"max_num_batched_tokens": sizes.step, "block_size": sizes.block}
        told = {"device": self.device, "max_model_len": sizes.window, "kv_cache_gib": 1}
        engine = EngineConfig.model_validate(told | {"engine_kwargs": kwargs})
        return fit_engine(engine, 4.0 * GPU.shared, self.device)


class Answered(NamedTuple):
    """What an engine did: prompts, their tokens and those of the answers, the share of the prompts'
    tokens that came from the prefix cache, and when, on the clock of time.monotonic()."""

    n: int
    tokens: int
    cached: float
    began: float
    ended: float

    @property
    def seconds(self) -> float:
        return self.ended - self.began


Prompts = Sequence[Sequence[int]]
Ask = Callable[[Prompts, int], Answered]  # has prompts answered with so many tokens each


def random_prompts(n: int, tokens: int, seed: str) -> list[list[int]]:
    draw = random.Random(f"{seed} {tokens}")
    return [draw.choices(range(100, CPU.shape["vocab_size"]), k=tokens) for _ in range(n)]


def warm(ask: Ask, sizes: Sizes) -> None:
    """Has an engine make what its first steps make, full ones and those of few tokens."""
    for tokens in (sizes.shared, sizes.contexts["2k"]):
        ask(random_prompts(2, tokens, "warm"), sizes.answer)


def measure(part: Part, what: str, ask: Ask, prompts: Prompts) -> Answered:
    """Has prompts answered and emits the rate. Raises RuntimeError where any answer is shorter."""
    done = ask(prompts, part.sizes.answer)
    expected = sum(len(prompt) + part.sizes.answer for prompt in prompts)
    if (done.n, done.tokens) != (len(prompts), expected):
        raise RuntimeError(f"{what}: {done.tokens} tokens, asked for {expected}")
    row = {"n": done.n, "s": done.seconds, "cached": done.cached}
    part.emit(what, value=done.tokens / done.seconds, unit="tokens/s", **row)
    return done


def bare_part(part: Part) -> None:
    """vllm.LLM.generate: its start, what one prompt and one step take, and tokens/s."""
    from memray_eval.execution.ray.engine import engine_environment, engine_kwargs

    engine, sizes = part.engine(), part.sizes
    os.environ |= engine_environment(engine, part.model, part.device)
    began = time.monotonic()
    from vllm import LLM, SamplingParams, TokensPrompt

    llm = LLM(part.model, **engine_kwargs(engine, part.device))
    part.emit("start, bare", value=time.monotonic() - began, unit="s")
    cache = llm.llm_engine.vllm_config.cache_config
    if cache.num_gpu_blocks:
        part.emit("KV cache", value=cache.num_gpu_blocks * sizes.block, unit="tokens")

    def ask(prompts: Prompts, answer: int) -> Answered:
        params = SamplingParams(temperature=0.0, max_tokens=answer, ignore_eos=True)
        asked = [TokensPrompt(prompt_token_ids=list(prompt)) for prompt in prompts]
        began = time.monotonic()
        outputs = llm.generate(asked, params, use_tqdm=False)
        ended = time.monotonic()
        n_tokens = sum(len(output.prompt_token_ids or ()) for output in outputs)
        n_cached = sum(output.num_cached_tokens or 0 for output in outputs)
        n_answered = sum(len(output.outputs[0].token_ids) for output in outputs)
        return Answered(len(outputs), n_tokens + n_answered, n_cached / n_tokens, began, ended)

    def time_one(name: str, answer: int) -> float:
        return ask(random_prompts(1, sizes.contexts[name], f"alone {answer}"), answer).seconds

    warm(ask, sizes)
    alone = {}
    for name, tokens in sizes.contexts.items():
        alone[name] = time_one(name, 1)
        part.emit(f"one prompt of {name}", value=alone[name], unit="s", tokens=tokens)
    for name, what in (("2k", "a step"), ("32k", "a step at 32k")):
        steps_s = max(0.0, time_one(name, sizes.answer + 1) - alone[name])
        part.emit(what, value=steps_s / sizes.answer, unit="s", tokens=sizes.contexts[name])
    # The pipeline's part answers as much again, and another engine has to start there
    seconds = min(part.left_s / 4, 16.0)
    for name, tokens in sizes.contexts.items():
        n = max(1, min(2 * (engine.max_num_seqs or 1), round(seconds / alone[name])))
        measure(part, f"bare, {name}", ask, random_prompts(n, tokens, "measured"))


def pipeline_part(part: Part) -> None:
    """The same prompts through the product's pipeline."""
    sizes = part.sizes
    with pipeline(part, part.engine(), "pipeline") as ask:
        warm(ask, sizes)
        for name, tokens in sizes.contexts.items():
            n = part.counts.get(f"bare, {name}")
            if n is None:
                part.emit(f"pipeline, {name}", cause="bare has no figure to compare it with")
            else:
                measure(part, f"pipeline, {name}", ask, random_prompts(n, tokens, "measured"))


def shared_part(part: Part) -> None:
    """An engine on half of the device: questions on shared contexts in two orders."""
    sizes = part.sizes
    kwargs: dict[str, Any] = {"num_gpu_blocks_override": sizes.window // sizes.block + 2}
    if part.device == "gpu":
        kwargs["gpu_memory_utilization"] = 0.5
    engine = part.engine(**kwargs)
    with pipeline(part, engine, "pipeline on half") as ask:
        warm(ask, sizes)
        for order in ("by context", "shuffled"):
            measure(part, f"shared 32k, {order}", ask, shared_prompts(sizes, order))


def shared_prompts(sizes: Sizes, order: str) -> list[list[int]]:
    """QUESTIONS on each of the shared contexts, together or shuffled; other tokens in each order,
    so that neither finds the other's in the cache."""
    contexts = random_prompts(sizes.n_shared, sizes.shared - 32, f"contexts {order}")
    endings = random_prompts(sizes.n_shared * QUESTIONS, 32, f"endings {order}")
    prompts = [contexts[place // QUESTIONS] + ending for place, ending in enumerate(endings)]
    if order == "shuffled":
        random.Random(0).shuffle(prompts)
    return prompts


class KeptEngine:
    """Stands where a pipeline has its EnginePlacement: the first pipeline starts the engine, and
    the next ones, whose clients have the same name, ask the same."""

    def __init__(self) -> None:
        self._client = f"memray_eval client {uuid.uuid4().hex} table"
        self._engine: Any = None

    def next_client(self, start: Callable[[Mapping[str, Any]], Any]) -> dict[str, Any]:
        import ray

        from memray_eval.execution.ray.placement_groups import engine_name

        if self._engine is None:
            self._engine = start({"name": engine_name(self._client)})
        while self._client in ray.util.list_named_actors():  # the last pipeline's is ending
            time.sleep(0.05)
        return {"name": self._client}


@contextmanager
def pipeline(part: Part, engine: EngineConfig, name: str) -> Iterator[Ask]:
    """The product's pipeline from rows with prompts to rows with answers, as a cluster has it: Ray
    Data, a client, and an engine, which stays up from one pipeline to the next. Emits the time from
    its start to its first answer. A pipeline's seconds are from the first prompt that the engine
    takes to its last token."""
    import ray

    from memray_eval.execution.ray.cluster import connected
    from memray_eval.execution.ray.engine import add_engines
    from memray_eval.execution.ray.pipeline import set_up_data_context
    from memray_eval.execution.stages.prompt import ANSWER

    placement: Any = KeptEngine()

    def ask(prompts: Prompts, answer: int) -> Answered:
        rows = engine.rows
        tables = [
            table_of(prompts[place : place + rows], answer)
            for place in range(0, len(prompts), rows)
        ]
        dataset = ray.data.from_arrow(tables)
        asked = add_engines(dataset, engine, part.model, part.device, placement)
        answers = [row[ANSWER] for row in asked.iter_rows()]
        if errors := [row for row in answers if row["__inference_error__"]]:
            raise RuntimeError(f"the engine's Error: {errors[0]['__inference_error__'][:300]}")
        n_tokens = sum(row["num_input_tokens"] for row in answers)
        n_answered = sum(len(row["generated_tokens"]) for row in answers)
        n_cached = sum(row["num_cached_tokens"] or 0 for row in answers)
        times = [row["metrics"] for row in answers]
        began = min(one["first_token_ts"] - one["first_token_latency"] for one in times)
        ended = max(one["last_token_ts"] for one in times)
        return Answered(len(answers), n_tokens + n_answered, n_cached / n_tokens, began, ended)

    with connected(ClusterConfig(num_cpus=4, num_gpus=int(part.device == "gpu"))):
        set_up_data_context(max(1.0, part.left_s))
        began = time.monotonic()
        ask(random_prompts(1, 64, "first"), 2)
        part.emit(f"start, {name}", value=time.monotonic() - began, unit="s")
        yield ask


def table_of(prompts: Prompts, answer: int) -> Any:
    """Prompts as the pipeline's rows have them before the engine."""
    import numpy as np
    import pyarrow as pa

    from memray_eval.execution.stages.prompt import SAMPLING, TOKENS

    sampling = json.dumps({"temperature": 0.0, "max_tokens": answer, "ignore_eos": True})
    tokens = [np.asarray(prompt, np.int32).tobytes() for prompt in prompts]
    shared = {SAMPLING: sampling, "candidate_config": ASKED_BY}
    return pa.Table.from_pylist([shared | {TOKENS: one} for one in tokens])


PARTS: Mapping[str, Callable[[Part], None]] = {
    "bare": bare_part,
    "pipeline": pipeline_part,
    "shared": shared_part,
}
