"""A table of this machine's GPU, unattended and in minutes: what the engine stage reaches of bare
vLLM, what the order of prompts is worth, how long an engine takes to start, and a judge beside it.

    python -m tests.gpu.engine_table [--minutes 8] [--cpu]

The model has the shape of Llama-3-8B with weights that are made up (`load_format: dummy`) and the
embedded model's tokenizer and vocabulary: nothing is downloaded, and its answers mean nothing. With
--cpu it is the embedded model itself, and lengths and counts are tiny: a trial of the script.

Each part is a process of its own with a share of the time that is left, and prints a row as soon as
it has one; a part that fails, or is not done in its time, is a row that says why. Both sides of a
ratio are asked the same random tokens, with prefix caches that have not seen them. The last line is
what `estimate` takes for `assumptions.engine`."""

from __future__ import annotations

import argparse
import glob
import inspect
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from memray_eval.config.sections import EMBEDDED, EngineConfig

GOAL = 0.95
# Each part's share of the time: start and measuring
PARTS = {"bare": 0.36, "stage": 0.42, "judge": 0.22}
END_S = 10.0  # kept for ending a part's processes
SHAPE = {  # Llama-3-8B's, but for the vocabulary and a window of 128k
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 133_120,
    "tie_word_embeddings": False,
    "rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0},
}
QUESTIONS = 4  # on each shared context


@dataclass(frozen=True)
class Sizes:
    """What is measured: contexts by their names in the table, the tokens of answers, the length and
    number of shared contexts, the window, and the memory shares of the two engines of one GPU."""

    contexts: dict[str, int]
    answer: int
    shared_context: int
    n_shared: int
    window: int
    beside: tuple[float, float] = (0.45, 0.4)


GPU = Sizes({"2k": 2_000, "32k": 32_000, "128k": 128_000}, 64, 32_000, 24, 133_120)
CPU = Sizes({"2k": 128, "32k": 384, "128k": 768}, 8, 384, 12, 2_048)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--cpu", action="store_true", help="tiny sizes, by the embedded model")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--model", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--asked", default="{}", help=argparse.SUPPRESS)  # of the bare part
    options = parser.parse_args()
    if options.part:
        run_part(options)
        return
    if not options.cpu and not glob.glob("/dev/nvidia[0-9]*"):
        raise SystemExit("no GPU on this machine; --cpu tries the script with the embedded model")
    print(describe_machine(options.cpu), flush=True)
    deadline = time.monotonic() + 60.0 * options.minutes
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        model = EMBEDDED if options.cpu else write_model(Path(folder))
        left = dict(PARTS)
        for part in PARTS:
            share = left.pop(part) / (sum(left.values()) + PARTS[part])
            seconds = share * (deadline - time.monotonic()) - END_S
            asked = {row["what"]: row["n"] for row in rows if "n" in row}
            words = [f"--part={part}", f"--model={model}", f"--seconds={seconds:.0f}"]
            words += [f"--asked={json.dumps(asked)}", *(["--cpu"] if options.cpu else [])]
            command = [sys.executable, "-m", "tests.gpu.engine_table", *words]
            for row in rows_of_part(part, command, seconds):
                rows.append(row)
                print(row_text(row), flush=True)
    print_ratios(rows)
    print(assumptions_text(rows), flush=True)


def describe_machine(is_cpu: bool) -> str:
    if is_cpu:
        return f"no GPU is used: the embedded model on {os.cpu_count()} CPUs, tiny sizes"
    try:
        told = subprocess.run(
            ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=20,
        ).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        told = f"nvidia-smi does not answer ({error})"
    return told.strip() or "nvidia-smi says nothing"


def write_model(folder: Path) -> str:
    """A model's folder without weights: a config.json, and the embedded model's tokenizer."""
    from memray_eval.models.embedded_model import ensure

    source, model = ensure(), folder / "8b"
    model.mkdir()
    config = json.loads((source / "config.json").read_text("utf-8")) | SHAPE
    (model / "config.json").write_text(json.dumps(config), "utf-8")
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        if (source / name).exists():
            shutil.copy(source / name, model / name)
    return str(model)


def rows_of_part(part: str, command: Sequence[str], seconds: float) -> Iterator[dict[str, Any]]:
    """The rows that a part prints, and a last one that says why it ended where it was not done. It
    is killed with all its processes when its seconds have passed."""
    if seconds <= 0:
        yield {"what": part, "cause": "no time was left for it"}
        return
    is_late, is_done = threading.Event(), False
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
        ) as process,
    ):

        def end() -> None:
            is_late.set()
            _kill(process)

        timer = threading.Timer(seconds, end)
        timer.start()
        assert process.stdout is not None
        for line in process.stdout:
            if not line.startswith("{"):
                continue
            row = json.loads(line)
            if is_done := row.get("what") == f"{part} done":
                break  # what its workers still do to end takes none of the time
            yield row
        timer.cancel()
        if is_done:
            _kill(process)
        code = process.wait()
        _kill(process)
        errors.seek(0)
        lines = [line.strip() for line in errors.read().splitlines() if line.strip()]
    if is_done:
        return
    why = [line for line in lines if "Error" in line or "error" in line] or lines
    cause = f"not done in its {seconds:.0f} s" if is_late.is_set() else f"ended with code {code}"
    yield {"what": part, "cause": cause + (f": {why[-1][:200]}" if why else "")}


def _kill(process: subprocess.Popen[str]) -> None:
    """Ends a part and all that it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def row_text(row: dict[str, Any]) -> str:
    if "cause" in row:
        return f"  {row['what']:<44} FAILED: {row['cause']}"
    told = [f"{row['value']:,.4g} {row['unit']}"] if "value" in row else []
    if "cached" in row:
        told.append(f"{row['cached']:.0%} of prompts' tokens cached")
    if "n" in row:
        told.append(f"{row['n']} prompts in {row['s']:.1f} s")
    return f"  {row['what']:<44} {', '.join(told)}"


def print_ratios(rows: Sequence[dict[str, Any]]) -> None:
    """What the rows come to, where both sides of a ratio are there."""
    values = {row["what"]: row["value"] for row in rows if "value" in row}
    for name in GPU.contexts:
        stage, bare = values.get(f"stage, {name}"), values.get(f"bare, {name}")
        if stage and bare:
            print(f"  stage / bare at {name:<28} {stage / bare:.3f} (wanted: {GOAL})")
    pairs = {
        "prefix order / shuffled": ("stage, by context", "stage, shuffled"),
        "beside a judge / alone": ("beside a judge", "alone, on its share"),
    }
    for name, (top, bottom) in pairs.items():
        if values.get(top) and values.get(bottom):
            print(f"  {name:<44} {values[top] / values[bottom]:.3f}")


def assumptions_text(rows: Sequence[dict[str, Any]]) -> str:
    """`assumptions.engine` as measured by the bare part: prompts of one token's answer at three
    lengths, and steps that only answer, alone."""
    values = {row["what"]: row["value"] for row in rows if "value" in row}
    names = [f"one prompt of {name}" for name in GPU.contexts]
    if not all(name in values for name in (*names, "a step", "start, bare")):
        return "  assumptions.engine: not all of it was measured"
    tokens = {row["what"]: row["tokens"] for row in rows if "tokens" in row}
    # A step takes step_s, and what it reads of the context takes
    longer_s = max(0.0, values.get("a step at 32k", 0.0) - values["a step"])
    read_s = longer_s / max(1, tokens.get("a step at 32k", 0) - tokens["a step"])
    step_s = max(0.0, values["a step"] - read_s * tokens["a step"])
    # seconds = step_s + tokens / rate + tokens^2 / (2 rate doubles_at), through the outer two
    short, long = names[0], names[-1]
    per_short = max(1e-9, values[short] - step_s) / tokens[short]
    per_long = max(1e-9, values[long] - step_s) / tokens[long]
    slope = max(0.0, (per_long - per_short) / (tokens[long] - tokens[short]))
    rate = 1.0 / max(1e-9, per_short - slope * tokens[short])
    found: dict[str, Any] = {
        "prefill_tokens_per_s": round(rate),
        "step_s": round(step_s, 5),
        "start_s": round(values["start, bare"]),
    }
    if slope > 0:
        found["doubles_at"] = round(1.0 / (2.0 * rate * slope))
    if read_s > 0:
        found["context_tokens_per_s"] = round(1.0 / read_s)
    if "KV cache" in values:
        found["kv_tokens"] = int(values["KV cache"])
    told = ", ".join(f"{name}: {value}" for name, value in found.items())
    return f"  assumptions: {{engine: {{{told}}}}}"


# The parts, each in a process of its own


def run_part(options: argparse.Namespace) -> None:
    sizes, device = (CPU, "cpu") if options.cpu else (GPU, "gpu")
    part = {"bare": bare_part, "stage": stage_part, "judge": judge_part}[options.part]
    part(options.model, sizes, device, Budget(options.seconds), json.loads(options.asked))
    emit(f"{options.part} done")


def emit(what: str, **row: Any) -> None:
    print(json.dumps({"what": what, **row}), flush=True)


class Budget:
    """The seconds that a part has."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        return self._end - time.monotonic()


def engine_config(sizes: Sizes, device: Any, model: str, memory: float | None = None) -> Any:
    """The engine of both sides, as the product fits it to long prompts."""
    from memray_eval.execution.plan import fit_engine

    kwargs: dict[str, Any] = {} if model == EMBEDDED else {"load_format": "dummy"}
    if device == "cpu":
        # As much KV cache as three of the shared contexts
        kwargs |= {"block_size": 128, "num_gpu_blocks_override": 20}
    elif memory is not None:
        kwargs["gpu_memory_utilization"] = memory
    engine = EngineConfig.model_validate(
        {
            "device": device,
            "max_model_len": sizes.window,
            "kv_cache_gib": 1,
            "engine_kwargs": kwargs | {"enable_prefix_caching": True},
        }
    )
    return fit_engine(engine, 4.0 * 32_000, device)


def random_prompts(n: int, tokens: int, seed: str) -> list[list[int]]:
    draw = random.Random(seed)
    return [[draw.randrange(100, 40_000) for _ in range(tokens)] for _ in range(n)]


def bare_part(model: str, sizes: Sizes, device: Any, budget: Budget, asked: dict[str, int]) -> None:
    """vllm.LLM.generate: its start, its speed at each length, and what each part of its work
    takes."""
    from memray_eval.execution.ray.engine import engine_environment, engine_kwargs
    from memray_eval.models.embedded_model import resolve_model

    engine = engine_config(sizes, device, model)
    os.environ |= engine_environment(engine, model, device) | {"VLLM_LOGGING_LEVEL": "ERROR"}
    started = time.monotonic()
    from vllm import LLM, SamplingParams, TokensPrompt

    llm = LLM(resolve_model(model), **engine_kwargs(engine, device))
    emit("start, bare", value=time.monotonic() - started, unit="s")
    cache = llm.llm_engine.vllm_config.cache_config
    if cache.num_gpu_blocks:
        emit("KV cache", value=cache.num_gpu_blocks * cache.block_size, unit="tokens")

    def answer(prompts: list[list[int]], tokens: int) -> float:
        params = SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True)
        began = time.monotonic()
        asked = [TokensPrompt(prompt_token_ids=one) for one in prompts]
        llm.generate(asked, params, use_tqdm=False)
        return time.monotonic() - began

    def answer_warm(n: int, length: int, tokens: int, seed: str) -> float:
        """The seconds of the second time, unless the first took long: kernels are made at first."""
        first = answer(random_prompts(n, length, f"{seed} warm"), tokens)
        if first > budget.left / 10:
            return first
        return answer(random_prompts(n, length, seed), tokens)

    alone = {}
    for name, tokens in sizes.contexts.items():
        alone[name] = answer_warm(1, tokens, 1, f"alone {name}")
        emit(f"one prompt of {name}", value=alone[name], unit="s", tokens=tokens)
    for name, label in (("2k", "a step"), ("32k", "a step at 32k")):
        tokens = sizes.contexts[name]
        whole_s = answer_warm(1, tokens, sizes.answer + 1, f"step {name}")
        step_s = max(0.0, whole_s - alone[name]) / sizes.answer
        emit(label, value=step_s, unit="s", tokens=tokens)
        alone[name] = whole_s
    for place, (name, tokens) in enumerate(sizes.contexts.items()):
        seconds = budget.left / (len(sizes.contexts) - place)
        # Few prompts say how many take half of the time
        few = fit_count(1, alone[name], seconds / 6, engine.max_num_seqs)
        took = answer(random_prompts(few, tokens, f"few {name}"), sizes.answer)
        n = fit_count(few, took, seconds / 2, engine.max_num_seqs)
        took = answer(random_prompts(n, tokens, f"measured {name}"), sizes.answer)
        value = n * (tokens + sizes.answer) / took
        emit(f"bare, {name}", value=value, unit="tokens/s", n=n, s=took)


def fit_count(n: int, took: float, seconds: float, most_at_once: int) -> int:
    """How many prompts take so many seconds, if n took as long as that; at most what two rounds of
    all places of the engine take."""
    return max(1, min(2 * most_at_once, int(n * seconds / took)))


def stage_part(
    model: str, sizes: Sizes, device: Any, budget: Budget, asked: dict[str, int]
) -> None:
    """The same prompts through the engine stage, and prompts on shared contexts in two orders, for
    an equal time each."""
    engine = engine_config(sizes, device, model)
    with staged_engine(engine, model, device, budget) as ask:
        for name, tokens in sizes.contexts.items():
            n = asked.get(f"bare, {name}")
            if n is None:
                emit(f"stage, {name}", cause="the bare part has no figure to compare it with")
                continue
            ask(random_prompts(1, tokens, f"warm {name}"), 1)
            done = ask(random_prompts(n, tokens, f"measured {name}"), sizes.answer)
            value = n * (tokens + sizes.answer) / done.seconds
            emit(f"stage, {name}", value=value, unit="tokens/s", n=n, s=done.seconds)
        seconds = (budget.left - END_S) / 3
        for name, in_order in (("by context", True), ("shuffled", False)):
            prompts = shared_prompts(sizes, name, in_order)
            done = ask(prompts, sizes.answer, seconds, QUESTIONS)
            value = done.n * (sizes.shared_context + sizes.answer) / done.seconds
            row = {"n": done.n, "s": done.seconds, "cached": done.cached}
            emit(f"stage, {name}", value=value, unit="tokens/s", **row)


def shared_prompts(sizes: Sizes, seed: str, in_order: bool) -> list[list[int]]:
    """QUESTIONS on each of the shared contexts, together or shuffled."""
    contexts = random_prompts(sizes.n_shared, sizes.shared_context - 32, f"shared {seed}")
    endings = random_prompts(sizes.n_shared * QUESTIONS, 32, f"endings {seed}")
    prompts = [contexts[place // QUESTIONS] + ending for place, ending in enumerate(endings)]
    if not in_order:
        random.Random(0).shuffle(prompts)
    return prompts


class Answered(NamedTuple):
    """Prompts that the stage answered: how many, in how many seconds, and the share of their tokens
    that came from the prefix cache."""

    n: int
    seconds: float
    cached: float


# Prompts, tokens of an answer, seconds after which no more are asked, rows of a batch
Ask = Callable[..., Answered]


@contextmanager
def staged_engine(engine: EngineConfig, model: str, device: Any, budget: Budget) -> Iterator[Ask]:
    """An engine behind the product's stage in an actor of Ray's, as a pipeline has it; a function
    that asks it, in batches as a pipeline's are."""
    import ray

    from memray_eval.config.sections import ClusterConfig
    from memray_eval.execution.ray.cluster import connected
    from memray_eval.execution.ray.engine import (
        EngineActor,
        engine_environment,
        engine_kwargs,
        telling_engine,
    )
    from memray_eval.models.embedded_model import resolve_model

    class TableEngine(EngineActor):
        async def answer(self, table: Any) -> list[tuple[int, int]]:
            """The tokens of each prompt, and how many of them were cached."""
            found = []
            async for part in self(table):
                for row in part.to_pylist():
                    if row["__inference_error__"]:
                        raise RuntimeError(row["__inference_error__"][:300])
                    found.append((row["num_input_tokens"], row["num_cached_tokens"] or 0))
            return found

    stage = {
        "batch_size": engine.batch_size,
        "max_concurrent_batches": engine.concurrent_batches,
        "model": resolve_model(model),
        "engine_kwargs": engine_kwargs(engine, device) | {"distributed_executor_backend": "uni"},
        "should_continue_on_error": True,
        "log_engine_metrics": False,
    }
    made: dict[str, Any] = {"make_stage": partial(telling_engine, None), "options": stage}
    made |= {"model": model, "at_once": None, "context": None}  # of engines that start by turns
    made = {name: made[name] for name in inspect.signature(EngineActor).parameters}
    environment = engine_environment(engine, model, device) | {"VLLM_LOGGING_LEVEL": "ERROR"}
    with connected(ClusterConfig(num_cpus=4, num_gpus=int(device == "gpu"))):
        started = time.monotonic()
        actor: Any = (
            ray.remote(TableEngine)
            .options(
                num_cpus=1,
                num_gpus=int(device == "gpu"),
                max_concurrency=100,
                max_restarts=0,
                runtime_env={"env_vars": environment},
            )
            .remote(**made)
        )
        first = table_of(random_prompts(1, 64, "warm"), 2)
        ray.get(actor.answer.remote(first), timeout=max(1.0, budget.left))
        emit("start, stage (with Ray's worker)", value=time.monotonic() - started, unit="s")

        def ask(
            prompts: Sequence[Sequence[int]],
            tokens: int,
            seconds: float = float("inf"),
            rows: int = engine.batch_size,
        ) -> Answered:
            batches = [prompts[place : place + rows] for place in range(0, len(prompts), rows)]
            at_once = max(1, (engine.batch_size * (engine.concurrent_batches or 1)) // rows)
            if seconds < float("inf"):
                at_once = 2  # else all would be asked at once
            under_way, found = list[Any](), list[tuple[int, int]]()
            began = time.monotonic()
            while batches or under_way:
                while batches and len(under_way) < at_once:
                    under_way.append(actor.answer.remote(table_of(batches.pop(0), tokens)))
                done, under_way = ray.wait(under_way, num_returns=1)
                found += ray.get(done[0])
                if time.monotonic() - began > seconds:
                    batches = []
            took, n_tokens = time.monotonic() - began, sum(one for one, _ in found)
            return Answered(len(found), took, sum(cached for _, cached in found) / n_tokens)

        yield ask


def table_of(prompts: Sequence[Sequence[int]], tokens: int) -> Any:
    """Prompts as the stage takes them."""
    import numpy as np
    import pyarrow as pa

    from memray_eval.execution.prompt_stage import FORM, RECORD, SAMPLING, TOKENS, TRUNCATED

    sampling = {"temperature": 0.0, "max_tokens": tokens, "ignore_eos": True}
    rows = [
        {
            RECORD: "{}",
            TOKENS: np.asarray(prompt, np.int32).tobytes(),
            SAMPLING: sampling,
            FORM: "plain",
            TRUNCATED: 0,
        }
        for prompt in prompts
    ]
    return pa.Table.from_pylist(rows)


def judge_part(
    model: str, sizes: Sizes, device: Any, budget: Budget, asked: dict[str, int]
) -> None:
    """An engine on a part of the GPU's memory, alone and beside a server of the same model that
    judges: each takes from the other what both need."""
    from memray_eval.execution.ray.engine import engine_environment
    from memray_eval.execution.ray.judge_server import vllm_command
    from memray_eval.models.embedded_model import resolve_model

    small = replace(sizes, window=min(sizes.window, 8_192))
    engine = engine_config(small, device, model, sizes.beside[0])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    backend = {"distributed_executor_backend": "uni"} if device == "cpu" else {}
    judge = engine.model_copy(update={"engine_kwargs": backend, "dtype": "bfloat16"})
    command = vllm_command(resolve_model(model), judge, "127.0.0.1", port)
    if device == "gpu":
        command += ["--load-format", "dummy", "--gpu-memory-utilization", str(sizes.beside[1])]
    tokens = sizes.contexts["2k"]
    environment = os.environ | engine_environment(engine, model, device)
    with staged_engine(engine, model, device, budget) as ask:
        n = max(4, asked.get("bare, 2k", 16))
        alone = ask(random_prompts(n, tokens, "alone"), sizes.answer)
        value = alone.n * (tokens + sizes.answer) / alone.seconds
        emit("alone, on its share", value=value, unit="tokens/s", n=alone.n, s=alone.seconds)
        started = time.monotonic()
        with tempfile.TemporaryFile("w+") as log:
            server = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
            try:
                wait_for_judge(port, server, log, budget)
                emit("start, judge's server", value=time.monotonic() - started, unit="s")
                with judging(port, tokens // 2, sizes.answer) as verdicts:
                    beside = ask(random_prompts(n, tokens, "beside"), sizes.answer)
                    n_verdicts = len(verdicts)
                value = beside.n * (tokens + sizes.answer) / beside.seconds
                emit("beside a judge", value=value, unit="tokens/s", n=beside.n, s=beside.seconds)
                rate = n_verdicts / beside.seconds
                emit("judge calls meanwhile", value=rate, unit="calls/s")
            finally:
                server.kill()


def wait_for_judge(port: int, server: subprocess.Popen[bytes], log: Any, budget: Budget) -> None:
    while server.poll() is None and budget.left > 0:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2):
                return
        except OSError:
            time.sleep(0.5)
    log.seek(0)
    lines = [line for line in log.read().splitlines() if "Error" in line or "error" in line]
    raise RuntimeError(f"the judge's server does not answer: {(lines or ['no error logged'])[-1]}")


@contextmanager
def judging(port: int, tokens: int, answer: int) -> Iterator[list[int]]:
    """Four callers that ask the judge's server one call after the other; the calls answered."""
    answered, is_over = list[int](), threading.Event()

    from memray_eval.judges.judge_factory import SERVER_MODEL

    def call(caller: int) -> None:
        number = 0
        while not is_over.is_set():
            (prompt,) = random_prompts(1, tokens, f"judge {caller} {number}")
            body = {"model": SERVER_MODEL, "prompt": prompt, "max_tokens": answer}
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}/v1/completions",
                json.dumps(body | {"temperature": 0.0, "ignore_eos": True}).encode(),
                {"Content-Type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=300):
                answered.append(number)
            number += 1

    with ThreadPoolExecutor(4) as callers:
        calls = [callers.submit(call, caller) for caller in range(4)]
        try:
            yield answered
        finally:
            is_over.set()
    for one in calls:
        one.result()


if __name__ == "__main__":
    main()
