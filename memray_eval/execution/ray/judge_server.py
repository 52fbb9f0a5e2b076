"""The embedded judge: a vLLM server on a local model, started for a run, checked, and stopped with
it. A small model proves the plumbing, not the scores."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import ray

from memray_eval.config.sections import EngineConfig
from memray_eval.errors import JudgeError
from memray_eval.execution.plan import SERVER_CPUS, Device
from memray_eval.execution.ray.engine import engine_dtype, engine_environment
from memray_eval.execution.ray.services import failure_reason
from memray_eval.judges.judge_factory import SERVER_MODEL
from memray_eval.models.embedded_model import resolve_model

READY_S = 600.0
RESTARTS = 3  # of a server whose process died, in one session
LAST_LINES = 5  # of the server's log, in the error that tells of its end

Command = Callable[[str, EngineConfig, str, int], list[str]]  # by model, engine, host, port

logger = logging.getLogger(__name__)


@contextmanager
def judge_server(
    model: str | None,
    engine: EngineConfig,
    device: Device,
    on_death: Callable[[str], None] = lambda reason: None,
    say: Callable[[str], None] = lambda line: None,
    command: Command | None = None,
    memory_gib: float = 0.0,
) -> Iterator[str | None]:
    """The base URL of a server on `model` for the time of a run; None without a model. Its process
    is restarted at the same address, up to RESTARTS times, of which `say` hears; `on_death` hears
    why it ended for good. `command` starts it (None: vLLM). Raises JudgeError if it does not come
    up."""
    if model is None:
        yield None
        return
    logger.info("starting the embedded judge, %s, on the %s", model, device)
    gpus = 1 if device == "gpu" else 0
    placed = JudgeServer.options(  # type: ignore[attr-defined]
        num_cpus=SERVER_CPUS, num_gpus=gpus, memory=int(memory_gib * (1 << 30)) or None
    )
    engine = _engine_of_judge(engine, device)
    environment = engine_environment(engine, model, device)
    server: Any = placed.remote(resolve_model(model), engine, command or vllm_command, environment)
    is_wanted = True

    def watch() -> None:
        n_restarts = 0
        while is_wanted:
            try:
                reason = str(ray.get(server.ended.remote()))
            except ray.exceptions.RayError as error:
                reason, n_restarts = (
                    f"the actor JudgeServer has died: {failure_reason(error)}",
                    RESTARTS,
                )
            if not is_wanted:
                return
            if n_restarts == RESTARTS:
                on_death(reason)
                return
            n_restarts += 1
            say(f"{reason.splitlines()[0]}; it is started again ({n_restarts} of {RESTARTS})")
            # One that does not come up has ended as well: the next round tells of it
            with suppress(ray.exceptions.RayError):
                ray.get(server.start.remote())

    try:
        url = str(ray.get(server.start.remote()))
        threading.Thread(target=watch, daemon=True, name="judge-server").start()
        yield url
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, JudgeError):
            raise error.cause from None
        raise
    finally:
        is_wanted = False
        with suppress(ray.exceptions.RayError):  # it may be dead already
            ray.get(server.stop.remote())
        ray.kill(server)


def _engine_of_judge(engine: EngineConfig, device: Device) -> EngineConfig:
    """The candidates' settings with one worker, in the engine's own process on a CPU."""
    return engine.model_copy(
        update={
            "dtype": engine_dtype(engine.dtype, device),
            "tensor_parallel": 1,
            "pipeline_parallel": 1,
            "kv_cache_gib": 1.0,
            "engine_kwargs": {"distributed_executor_backend": "uni"} if device == "cpu" else {},
        }
    )


@ray.remote(max_restarts=0, max_concurrency=2)
class JudgeServer:
    """One OpenAI-compatible server as a process of this actor's node."""

    def __init__(
        self, model: str, engine: EngineConfig, command: Command, environment: dict[str, str]
    ) -> None:
        self._model, self._engine, self._command = model, engine, command
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._port: int | None = None
        self._log = Path(tempfile.gettempdir()) / f"memray_eval_judge_server_{os.getpid()}.log"

    def start(self) -> str:
        """Starts the server, or starts it again at the same address, and waits until it answers.
        Its base URL, as other nodes reach it."""
        host = ray.util.get_node_ip_address()
        if self._port is None:
            with socket.socket() as probe:  # a free port
                probe.bind(("", 0))
                self._port = int(probe.getsockname()[1])
        port = self._port
        self._kill_group()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(self._model, self._engine, host, port),
                stdout=log,
                stderr=log,
                env=os.environ | self._environment,
                start_new_session=True,
            )
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise JudgeError(
                    f"the embedded judge ended with code {self._process.returncode}; its log: "
                    f"{self._log}{self._last_lines()}"
                )
            if _answers(f"http://{host}:{port}/health"):
                return f"http://{host}:{port}/v1"
            time.sleep(1.0)
        self.stop()
        raise JudgeError(
            f"the embedded judge did not answer within {READY_S:g} s; its log: {self._log}"
        )

    def ended(self) -> str:
        """Waits for the server's end, and says how it came."""
        assert self._process is not None
        code = self._process.wait()
        reason = f"the server of the embedded judge ended with code {code}; its log: {self._log}"
        return reason + self._last_lines()

    def stop(self) -> None:
        """Ends the server with all its processes."""
        if self._process is None:
            return
        if self._process.poll() is not None:
            self._kill_group()
            return
        os.killpg(self._process.pid, signal.SIGTERM)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)

    def _kill_group(self) -> None:
        """Ends what a server whose first process has died left behind: an engine holds memory."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _last_lines(self) -> str:
        """The end of the server's log, for a message; "" where there is none."""
        try:
            text = self._log.read_text("utf-8", "replace")
        except OSError:
            return ""
        lines = [line for line in text.splitlines() if line.strip()][-LAST_LINES:]
        return "".join(f"\n  {line[:300]}" for line in lines)


def vllm_command(model: str, engine: EngineConfig, host: str, port: int) -> list[str]:
    """A vLLM server."""
    # `vllm serve` looks up the distribution's name, which the CPU build has not.
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", model]
    command += ["--served-model-name", SERVER_MODEL, "--host", host, "--port", str(port)]
    command += ["--dtype", engine.dtype, "--max-num-seqs", "16", "--enforce-eager"]
    # Without this a small model fills its output limit with the white space that JSON allows
    # anywhere.
    structured = {"backend": "xgrammar", "disable_any_whitespace": True}
    command += ["--structured-outputs-config", json.dumps(structured)]
    if engine.max_model_len:
        command += ["--max-model-len", str(engine.max_model_len)]
    if backend := engine.engine_kwargs.get("distributed_executor_backend"):
        command += ["--distributed-executor-backend", str(backend)]
    return command


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as reply:
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False
