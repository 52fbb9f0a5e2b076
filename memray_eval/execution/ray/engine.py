"""vLLM in actors that turn rows with prompts into answered rows."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import math
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx2
import numpy as np
import pyarrow as pa
import ray
from ray.data import ActorPoolStrategy, Dataset

from memray_eval.config.sections import EngineConfig, least_of, most_of
from memray_eval.errors import GenerationError
from memray_eval.execution.plan import CLIENT_CPUS, Device, blocks_in_flight
from memray_eval.execution.ray.cluster import QUIET_VLLM
from memray_eval.execution.ray.engine_client import EngineClient, Turns
from memray_eval.execution.ray.engine_start import start_engine
from memray_eval.execution.ray.placement_groups import (
    EnginePlacement,
    executor_backend,
    group_of_engine,
    is_over_ray,
)
from memray_eval.execution.ray.ray_compat import map_batches_placed, worker_output_path
from memray_eval.execution.ray.reporting import EngineMetrics, follow_engine_output
from memray_eval.execution.run_counter import RunCounter
from memray_eval.execution.stages.context import StageContext
from memray_eval.execution.stages.generate import engine_response
from memray_eval.execution.stages.prompt import (
    ANSWER,
    ANSWER_TYPE,
    ASKING,
    SAMPLING,
    SECOND,
    TIMES,
    TOKENS,
)
from memray_eval.execution.stages.session import SessionSpec
from memray_eval.judges.judge_factory import SERVER_MODEL
from memray_eval.log_once import log_once
from memray_eval.models import importing
from memray_eval.models.embedded_model import resolve_model
from memray_eval.results.run_folder import RunFolder
from memray_eval.types import RETRIED
from memray_eval.types.json_text import candidate_from_json

logger = logging.getLogger(__name__)
IDLE_S = 3.0  # longer than a client is without an engine to ask, where any is up
STRUCTURED = "structured_outputs_config"  # of vLLM's arguments
ADAPTER = "lora"  # the folder of the adapter that a row is asked with, or None
_TASKS: Final = ("generate",)  # of vLLM's server
_JSON = {"Content-Type": "application/json"}
# What vLLM would compile with nvcc as an engine starts: FlashInfer's sampler (vllm#49497), and in
# an image with CUDA's folder DeepGEMM's kernels for FP8 by blocks (seen on an H200, vLLM 0.29.0)
COMPILED = ("VLLM_USE_FLASHINFER_SAMPLER", "VLLM_USE_DEEP_GEMM")
CUDA_FOLDER = "/usr/local/cuda"
WAITING = 1.1  # prompts that vLLM has for each that it computes: with many it gets slow


def add_engines(
    dataset: Dataset,
    config: EngineConfig,
    model: str,
    device: Device,
    placement: EnginePlacement,
    context: StageContext | None = None,
    at_first: int | None = None,
    blocks: float = math.inf,
    is_on_cluster: bool = True,
    label_selector: Mapping[str, str] | None = None,
    sessions: SessionSpec | None = None,
    keeps: bool = False,
) -> Dataset:
    """Adds the stage that has vLLM answer: rows with ASKING (ENGINE_SCHEMA), in so
    many `blocks`, have ANSWER in their place, null where there are no tokens, with
    `__inference_error__` where the engine refuses; or sessions, and rows of which it `keeps` each
    answer as it comes, become records. Engines are in the groups of `placement`: `at_first` of
    them, where `config.replicas` is a range (None: the least).

    Ray Data's own actors are clients (EngineClient), kept off the nodes that `label_selector`
    excludes: Ray Data would leave rows to an actor whose node is lost, without end. An actor that
    was restarted takes the responses in the run's folder."""
    least, at_first = least_of(config.replicas), at_first or least_of(config.replicas)
    most = most_of(config.replicas) if is_on_cluster else at_first
    grows = f", up to {most} as the cluster grows" if most > at_first else ""
    logger.info("starting %d engines of %s on the %s%s", at_first, model, device, grows)
    kept_at_once = keeps * (config.max_num_seqs or 1) * config.data_parallel
    start = engine_starter(config, model, device, context)
    in_flight = blocks_in_flight(config, blocks, at_first)
    compute = ActorPoolStrategy(
        min_size=least,
        initial_size=at_first,
        max_size=most,
        max_tasks_in_flight_per_actor=in_flight,
        max_concurrent_calls_per_actor=min(config.concurrent_batches or 1, in_flight),
    )

    return map_batches_placed(
        dataset,
        EngineClient,
        partial(placement.next_client, start),
        fn_constructor_args=(model, least, context, sessions, kept_at_once),
        batch_format="pyarrow",
        batch_size=config.rows,
        zero_copy_batch=True,
        compute=compute,
        num_cpus=CLIENT_CPUS,
        label_selector=label_selector,
        **({} if label_selector else {"scheduling_strategy": "SPREAD"}),
    )


def engine_starter(
    config: EngineConfig, model: str, device: Device, context: StageContext | None
) -> Callable[[Mapping[str, Any]], Any]:
    """What starts an engine as an actor with further options of Ray's, such as its place."""
    kwargs = engine_kwargs(config, device)
    kwargs["distributed_executor_backend"] = executor_backend(config)
    options = _actor_options(config, model, device)
    made_by = partial(VllmEngine, context, model, kwargs)
    if _is_one_process(config, device) and config.cpus <= 1:
        made_by = partial(_on_all_cores, most_of(config.replicas), made_by)
    counter = None if context is None else context.counter
    engine = made_by, model, config.starts_at_once, counter
    return lambda placed: ray.remote(EngineActor).options(**options, **placed).remote(*engine)


def _actor_options(config: EngineConfig, model: str, device: Device) -> dict[str, Any]:
    """Ray's options of an engine's actor, which is restarted for ever; a call that is lost with it
    fails, and its rows are asked of another."""
    # The driver is quieter than its engines, whose warnings the run's log takes
    level = os.environ.get("VLLM_LOGGING_LEVEL", QUIET_VLLM)
    environment = engine_environment(config, model, device)
    environment.setdefault("VLLM_LOGGING_LEVEL", "INFO" if level == QUIET_VLLM else level)
    taken: dict[str, float] = {"num_gpus": 0}  # its workers take theirs of its group
    if not is_over_ray(config):
        (bundle,) = group_of_engine(config, device).bundles
        amounts = {"num_cpus": bundle["CPU"], "num_gpus": bundle.get("GPU", 0.0)}
        taken = {name: amount for name, amount in amounts.items() if amount}
    return {
        "max_restarts": -1,
        "accelerator_type": config.accelerator_type,
        "runtime_env": {"env_vars": environment},
        **taken,
    }


class EngineActor:
    """One vLLM engine as an actor that clients ask. `make_engine` makes it in the actor (VllmEngine
    with its arguments). At most `at_once` engines of its node load their model at a time (None:
    all). One that cannot start says why when it is asked. `counter` hears of its phases."""

    def __init__(
        self,
        make_engine: Callable[[], VllmEngine],
        model: str,
        at_once: int | None,
        counter: RunCounter | None = None,
    ) -> None:
        name = str(ray.get_runtime_context().get_actor_name())
        counter = counter or RunCounter()
        self._turns = Turns()
        self._failure: GenerationError | None = None
        try:
            enter_phase = partial(counter.engines.enter, name, model)
            self._engine = start_engine(make_engine, model, at_once, enter_phase)
        except GenerationError as error:
            self._failure = error
        self._idle_since = time.monotonic()

    async def ready(self) -> None:
        """Returns as soon as the engine is up; raises GenerationError if it never will be."""
        if self._failure is not None:
            raise self._failure

    async def is_idle(self) -> bool:
        """True if nobody has asked it anything for IDLE_S."""
        return self._turns.are_free and time.monotonic() - self._idle_since >= IDLE_S

    async def serve(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        """The status and the body of what vLLM's OpenAI server replies to a request."""
        await self.ready()
        return await self._engine.serve(method, path, body)

    async def answer(
        self, table: pa.Table, is_alone: bool = False
    ) -> AsyncIterator[pa.Table | None]:
        """Yields None when it is the caller's turn, beside others or alone; then the table with
        ANSWER and SECOND (with the candidate's `retry_max_tokens`, null if it is not asked again)
        in the place of what asks (ASKING), null where it has no tokens."""
        await self.ready()
        is_asked = table.column(TOKENS).is_valid()
        rows, limits = list[dict[str, Any]](), list[int | None]()
        columns = [TOKENS, SAMPLING, "candidate_config"]
        for row in table.select(columns).filter(is_asked).to_pylist():
            candidate = candidate_from_json(row["candidate_config"])
            sampling = json.loads(row[SAMPLING])
            if bias := sampling.get("logit_bias"):  # by token, which JSON has as text
                sampling["logit_bias"] = {int(token): value for token, value in bias.items()}
            rows.append({TOKENS: row[TOKENS], SAMPLING: sampling, ADAPTER: candidate.lora})
            limits.append(candidate.retry_max_tokens)
        async with self._turns.take(is_alone):
            yield None
            try:
                first = await self._engine.answer(rows)
                again = [
                    number
                    for number, answer in enumerate(first)
                    if limits[number] and engine_response(answer).no_answer in RETRIED
                ]
                raised = [
                    rows[n] | {SAMPLING: {**rows[n][SAMPLING], "max_tokens": limits[n]}}
                    for n in again
                ]
                answered = await self._engine.answer(raised) if raised else []
            finally:
                self._idle_since = time.monotonic()
        second = dict(zip(again, answered, strict=True))
        # An answer is in the row that asked for it
        has_prompt = is_asked.to_numpy()
        places = pa.array(np.cumsum(has_prompt) - 1, mask=~has_prompt)
        table = table.drop_columns([*ASKING])
        for name, answers in ((ANSWER, first), (SECOND, [*map(second.get, range(len(rows)))])):
            table = table.append_column(name, pa.array(answers, ANSWER_TYPE).take(places))
        yield table


def engine_kwargs(config: EngineConfig, device: Device) -> dict[str, Any]:
    """vLLM's arguments; `config.engine_kwargs` overrides what the run does not plan itself."""
    kwargs: dict[str, Any] = {
        "dtype": engine_dtype(config.dtype, device),
        "max_num_seqs": config.max_num_seqs,
        "tensor_parallel_size": config.tensor_parallel,
        "pipeline_parallel_size": config.pipeline_parallel,
        "data_parallel_size": config.data_parallel,
    }
    if config.max_model_len is not None:
        kwargs["max_model_len"] = config.max_model_len
    if device == "cpu":
        kwargs["enforce_eager"] = True  # no compilation on the CPU: it costs minutes at every start
    if _is_one_process(config, device):
        kwargs["distributed_executor_backend"] = "uni"
    return kwargs | config.engine_kwargs


def _is_one_process(config: EngineConfig, device: Device) -> bool:
    """True if the model is computed in the engine's own process. vLLM starts another one for it on
    a CPU, which imports everything once more: a fifth of the time to the first answer."""
    backend = config.engine_kwargs.get("distributed_executor_backend", "uni")
    return device == "cpu" and config.workers == 1 and backend == "uni"


def engine_dtype(dtype: str, device: Device) -> str:
    """vLLM's `--dtype`: on a CPU, `auto` is bfloat16 only where the processor of this node computes
    in it. One without (AVX2) emulates it: 60 GFLOPS of float32 and 9 of bfloat16 on one core."""
    if dtype != "auto" or device == "gpu":
        return dtype
    try:
        flags = Path("/proc/cpuinfo").read_text("utf-8", "replace").split()
    except OSError:  # not Linux
        flags = []
    return "bfloat16" if "avx512_bf16" in flags else "float32"


def engine_environment(config: EngineConfig, model: str, device: Device) -> dict[str, str]:
    """The environment variables that vLLM is started with, beside the node's own. On a GPU without
    nvcc (this machine's: all nodes have one image) all of COMPILED is off that is not set here."""
    variables = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    if device == "cpu":
        variables["VLLM_CPU_KVCACHE_SPACE"] = f"{max(1, round(config.kv_cache_gib))}"
    elif find_nvcc() is None:
        variables |= {name: os.environ.get(name, "0") for name in COMPILED}
    if _is_one_process(config, device):
        variables["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # else vLLM takes "uni" for "mp"
    if Path(resolve_model(model)).is_dir():
        variables["HF_HUB_OFFLINE"] = "1"
    return variables | config.env


def find_nvcc() -> str | None:
    """CUDA's compiler by the path at which vLLM's libraries look for it; None if there is none."""
    homes = (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), CUDA_FOLDER)
    folders = [os.environ.get("PATH", os.defpath), *(f"{home}/bin" for home in homes if home)]
    return shutil.which("nvcc", path=os.pathsep.join(folders))


class VllmEngine:
    """vLLM's AsyncLLM in this process. vLLM's warnings go to the run's counter, its figures to the
    page for Prometheus."""

    def __init__(self, context: StageContext | None, model: str, kwargs: Mapping[str, Any]) -> None:
        if context is not None:
            follow_engine_output(context.counter, worker_output_path())
        # vLLM's own process would join the cluster that began last on this machine
        os.environ["RAY_ADDRESS"] = ray.get_runtime_context().gcs_address
        with importing():  # here: it takes 15 s
            import vllm
            from vllm.config import StructuredOutputsConfig  # which the package alone does not load

            make_llm = vllm.AsyncLLMEngine.from_engine_args  # loads the rest

        model, arguments = resolve_model(model, weights=True), dict(kwargs)  # on this node
        if structured := arguments.get(STRUCTURED):  # which vLLM does not take as a mapping
            arguments[STRUCTURED] = StructuredOutputsConfig(**structured)
        arguments |= {"model": model, "runner": "generate", "enable_log_requests": False}
        self._llm = make_llm(vllm.AsyncEngineArgs(**arguments))
        if context is not None and (stats := self._llm.logger_manager) is not None:
            name = Path(model).name if os.path.isdir(model) else model
            replica = (ray.get_runtime_context().get_actor_id() or "")[:12]
            run_id = RunFolder(context.folder).run_id
            figures: Any = EngineMetrics(name, replica, run_id)  # it asks for a class of its own
            stats.stat_loggers.append(figures)
        config = self._llm.vllm_config
        copies = config.parallel_config.pipeline_parallel_size
        copies *= config.parallel_config.data_parallel_size
        at_once = math.ceil(WAITING * config.scheduler_config.max_num_seqs * copies)
        self._seats, self._numbers = asyncio.Semaphore(at_once), itertools.count()
        self._server: asyncio.Task[httpx2.AsyncClient] | None = None
        self._adapters = dict[str, tuple[Any, asyncio.Task[bool]]]()  # by folder, as they load

    async def answer(self, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The answers (ANSWER_TYPE) to rows with TOKENS, SAMPLING and ADAPTER. Ends this process if
        vLLM's engine has died: Ray restarts it."""
        answers = await asyncio.gather(*map(self._answer, rows))
        await self._llm.do_log_stats()  # what it keeps for them grows until then
        return answers

    async def _answer(self, row: Mapping[str, Any]) -> dict[str, Any]:
        from vllm.v1.engine.exceptions import EngineDeadError

        try:
            async with self._seats:
                output = await self._generate(row)
        except EngineDeadError:
            logger.exception("vLLM's engine has died")
            os._exit(1)
        except Exception as error:  # whatever vLLM raises, it is this row's own
            why = f"{type(error).__name__}: {error}"
            key = f"refused/{type(error).__name__}"
            log_once(logger, logging.WARNING, key, "the engine refused a prompt: %s", why)
            return {"__inference_error__": why}
        answer, times = output.outputs[0], output.metrics
        return {
            "generated_text": answer.text,
            "generated_tokens": answer.token_ids,
            "finish_reason": answer.finish_reason,
            "num_input_tokens": len(output.prompt_token_ids),
            "num_cached_tokens": output.num_cached_tokens,
            "metrics": times and {name: getattr(times, name) for name in TIMES},
        }

    async def _generate(self, row: Mapping[str, Any]) -> Any:
        """The finished output of a row's prompt."""
        from vllm.lora.request import LoRARequest
        from vllm.sampling_params import RequestOutputKind, SamplingParams, StructuredOutputsParams

        sampling, adapter = dict(row[SAMPLING]), None
        if structured := sampling.pop("structured_outputs", None):
            sampling["structured_outputs"] = StructuredOutputsParams(**structured)
        params = SamplingParams(**sampling, output_kind=RequestOutputKind.FINAL_ONLY)
        if (folder := row[ADAPTER]) is not None:
            # Once for all its prompts: vLLM answers by the base the next time it is told of an
            # adapter that it could not load
            if folder not in self._adapters:
                adapter = LoRARequest(folder, len(self._adapters) + 1, folder)
                loading = asyncio.create_task(self._llm.add_lora(adapter))
                self._adapters[folder] = adapter, loading
            adapter, loading = self._adapters[folder]
            await asyncio.shield(loading)
        prompt: Any = {"prompt_token_ids": np.frombuffer(row[TOKENS], np.int32).tolist()}
        number = str(next(self._numbers))
        outputs = self._llm.generate(prompt, params, number, lora_request=adapter)
        return [output async for output in outputs][-1]

    async def serve(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        """What vLLM's OpenAI server replies."""
        if self._server is None:
            self._server = asyncio.create_task(open_server(self._llm))
        client = await self._server
        reply = await client.request(method, path, content=body, headers=_JSON)
        if reply.status_code >= 500 and self._llm.errored:
            os._exit(1)  # it answers nobody any more: Ray restarts it, as for its rows
        return reply.status_code, reply.content


def _on_all_cores(engines: int, make_engine: Callable[[], VllmEngine]) -> VllmEngine:
    """Makes an engine on its share of this node's cores (Ray's count, which heeds a container's
    limit), one of `engines`. Ray itself gives an actor a thread for each CPU that it reserves."""
    node_id = ray.get_runtime_context().get_node_id()
    (has,) = (node["Resources"] for node in ray.nodes() if node["NodeID"] == node_id)
    cores = min(int(has.get("CPU", 1)), os.cpu_count() or 1)
    os.environ["OMP_NUM_THREADS"] = str(max(1, cores // engines))
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # others work on these cores too
    return make_engine()


async def open_server(engine: Any) -> httpx2.AsyncClient:
    """A client of vLLM's own OpenAI server on an engine of this process, without a socket."""
    from vllm.entrypoints.launchers.api_server.app_state import init_app_state
    from vllm.entrypoints.launchers.app import build_app
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    words = ["--model", engine.model_config.model, "--served-model-name", SERVER_MODEL]
    parser: Any = make_arg_parser(FlexibleArgumentParser())  # type: ignore[no-untyped-call]
    args = parser.parse_args([*words, "--enable-prompt-tokens-details"])  # with the cached ones
    args.structured_outputs_config = engine.vllm_config.structured_outputs_config
    app = build_app(args, _TASKS, engine.model_config)
    await init_app_state(engine, app.state, args, _TASKS)
    app.state.server = None  # nothing to end where the engine has died
    transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
    return httpx2.AsyncClient(transport=transport, base_url="http://engine", timeout=None)
