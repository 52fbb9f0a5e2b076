"""Starts one engine as a run would and has it say a few tokens: the first thing to try in an image
or on a node. Ray takes part only if the engine's workers are its actors: what fails else is the
image, the driver, or the model."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from memray_eval.config.sections import ClusterConfig, EngineConfig
from memray_eval.errors import GenerationError, ResourceError
from memray_eval.execution.plan import Device, fit_engine
from memray_eval.execution.ray.cluster import connected
from memray_eval.execution.ray.engine import engine_environment, engine_kwargs, engine_starter
from memray_eval.execution.ray.engine_start import LOOK_S, quote_log, watched_download
from memray_eval.execution.ray.placement_groups import group_of_engine, remove_group
from memray_eval.execution.run_counter import EnginePhase
from memray_eval.judges.judge_factory import SERVER_MODEL
from memray_eval.models.embedded_model import resolve_model
from memray_eval.storage.leases import ScratchFolder
from memray_eval.types import Frozen

START_S = 1800.0  # a large model over a slow network
ROOM_S = 60.0  # for an engine's group, unless `cluster.wait_s` is longer
N_TOKENS = 8
_PROMPT = "The capital of France is"
# What vLLM's main process says of an error that stands further up, in its engine's process
_ECHO = "Engine core initialization failed"
_ERROR = re.compile(r"(?:[A-Z]\w*(?:Error|Exception)|AssertionError): .+")


class EngineReport(Frozen):
    """An engine that answered. `cuda` is the version that torch was built with, None on a CPU;
    in `download_s` of `start_s` its model was being downloaded."""

    device: str
    cuda: str | None
    start_s: float
    download_s: float = 0.0
    answer_s: float
    n_tokens: int
    text: str


def check_engine(
    config: EngineConfig, model: str, device: Device, timeout_s: float = START_S
) -> EngineReport:
    """Starts an engine of `model` in a process of its own, with the arguments and the environment
    that a run gives it, asks it for N_TOKENS tokens, and ends it. Raises ResourceError with the
    cause and the last lines of its log, or when `timeout_s` seconds pass."""
    fitted = fit_engine(config, 0.0, device)
    spec = {"model": resolve_model(model, weights=True), "kwargs": engine_kwargs(fitted, device)}
    looks = list[EnginePhase]()
    with ScratchFolder("engine") as folder:
        log, result = Path(folder) / "log", Path(folder) / "result.json"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", __name__, json.dumps(spec), str(result)],
                env={**os.environ, **engine_environment(config, model, device)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # vLLM's own processes end with it
            )
            try:
                with watched_download(model, looks.append):
                    code = process.wait(timeout_s)
                ended = f"ended with exit code {code}"
            except subprocess.TimeoutExpired:
                ended = f"did not answer in {timeout_s:g} s"
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if result.exists():
            report = EngineReport.model_validate_json(result.read_text("utf-8"))
            download_s = looks.count("downloading") * LOOK_S
            return report.model_copy(update={"download_s": download_s})
        raise ResourceError(f"the engine of {model} {ended}{_explain(log)}")


def check_engine_over_ray(
    config: EngineConfig, model: str, device: Device, cluster: ClusterConfig
) -> EngineReport:
    """As `check_engine`, for an engine whose workers are Ray's actors (`is_over_ray`): in a
    placement group of its own on the job's cluster. Raises ResourceError if it has no room, too."""
    fitted, patience_s = fit_engine(config, 0.0, device), max(ROOM_S, cluster.wait_s or 0.0)
    asked = {"model": SERVER_MODEL, "prompt": _PROMPT, "max_tokens": N_TOKENS, "ignore_eos": True}
    body = json.dumps(asked | {"temperature": 0.8, "top_p": 0.9, "top_k": 20}).encode()
    with connected(cluster):
        spec = group_of_engine(fitted, device, model)
        group, before = spec.create("memray_eval-doctor", time.time()), time.monotonic()
        try:
            if not ray.wait([group.ready()], timeout=patience_s)[0]:
                text = f"no room in {patience_s:g} s for an engine of {model}: {spec.bundles}"
                raise ResourceError(text)
            inside = PlacementGroupSchedulingStrategy(
                group, placement_group_capture_child_tasks=True
            )
            actor = engine_starter(fitted, model, device, None)({"scheduling_strategy": inside})
            ray.get(actor.ready.remote(), timeout=START_S)
            started = time.monotonic()
            status, reply = ray.get(actor.serve.remote("POST", "/v1/completions", body))
        except (GenerationError, RayError) as error:
            cause = getattr(error, "cause", error)
            raise ResourceError(f"the engine of {model}: {cause}") from None
        finally:
            remove_group(group)
    if status != 200:
        raise ResourceError(f"the engine of {model} answered {status}: {reply.decode()}")
    answer = json.loads(reply)
    return EngineReport(
        device=f"{fitted.workers} workers of Ray ({config.accelerator_type or device})",
        cuda=None,
        start_s=started - before,
        answer_s=time.monotonic() - started,
        n_tokens=answer["usage"]["completion_tokens"],
        text=answer["choices"][0]["text"],
    )


def _explain(log: Path) -> str:
    """The cause that a log names, if it names one, and its last lines."""
    lines = log.read_text("utf-8", "replace").splitlines()
    causes = [match[0] for line in lines if _ECHO not in line for match in _ERROR.finditer(line)]
    cause = f": {causes[-1]}" if causes else ""
    return f"{cause}{quote_log(str(log))}"


async def _answer(model: str, kwargs: dict[str, Any]) -> EngineReport:
    import torch
    import vllm
    from vllm.platforms import current_platform

    before = time.monotonic()
    # As VllmEngine does in a run's engine actors
    arguments = vllm.AsyncEngineArgs(
        model=model, runner="generate", enable_log_requests=False, **kwargs
    )
    engine = vllm.AsyncLLMEngine.from_engine_args(arguments)
    started = time.monotonic()
    # top_p and top_k without a seed: the sampler that FlashInfer would take
    sampling = vllm.SamplingParams(
        temperature=0.8, top_p=0.9, top_k=20, max_tokens=N_TOKENS, ignore_eos=True
    )
    outputs = [output async for output in engine.generate(_PROMPT, sampling, "check")]
    answered, answer = time.monotonic(), outputs[-1].outputs[0]
    report = EngineReport(
        device=current_platform.get_device_name(),
        cuda=torch.version.cuda,
        start_s=started - before,
        answer_s=answered - started,
        n_tokens=len(answer.token_ids),
        text=answer.text,
    )
    engine.shutdown()
    return report


if __name__ == "__main__":
    request = json.loads(sys.argv[1])
    engine_report = asyncio.run(_answer(request["model"], request["kwargs"]))
    Path(sys.argv[2]).write_text(engine_report.model_dump_json(), "utf-8")
