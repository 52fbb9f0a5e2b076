"""The embedded judge: a vLLM server on a local model, started for a run, checked, and stopped with
it.

It shows the whole judge path without a key. A small model proves the plumbing, not the scores.
"""

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
from memray_eval.execution.ray.services import failure_reason
from memray_eval.judges.judge_factory import SERVER_MODEL
from memray_eval.models.embedded_model import resolve_model

READY_S = 600.0

logger = logging.getLogger(__name__)


@contextmanager
def judge_server(
    model: str | None,
    engine: EngineConfig,
    device: Device,
    on_death: Callable[[str], None] = lambda reason: None,
) -> Iterator[str | None]:
    """The base URL of a server on `model` for the time of a run; None without a model. Raises
    JudgeError if it does not come up; `on_death` hears why it ended, where it ends before the block
    does."""
    if model is None:
        yield None
        return
    logger.info("starting the embedded judge, %s, on the %s", model, device)
    gpus = 1 if device == "gpu" else 0
    placed = JudgeServer.options(num_cpus=SERVER_CPUS, num_gpus=gpus)  # type: ignore[attr-defined]
    server: Any = placed.remote(resolve_model(model), engine)
    is_wanted = True

    def watch() -> None:
        try:
            reason = str(ray.get(server.ended.remote()))
        except ray.exceptions.RayError as error:
            reason = f"the actor JudgeServer has died: {failure_reason(error)}"
        if is_wanted:
            on_death(reason)

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


@ray.remote(max_restarts=0, max_concurrency=2)
class JudgeServer:
    """One OpenAI-compatible vLLM server as a process of this actor's node."""

    def __init__(self, model: str, engine: EngineConfig) -> None:
        self._model, self._engine = model, engine
        self._process: subprocess.Popen[bytes] | None = None
        self._log = Path(tempfile.gettempdir()) / f"memray_eval_judge_server_{os.getpid()}.log"

    def start(self) -> str:
        """Starts the server and waits until it answers. Its base URL, as other nodes reach it."""
        host = ray.util.get_node_ip_address()
        with socket.socket() as probe:  # a free port
            probe.bind(("", 0))
            port = int(probe.getsockname()[1])
        environment = os.environ | {
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
        }
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command(host, port),
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise JudgeError(
                    f"the embedded judge ended with code {self._process.returncode}; its log: "
                    f"{self._log}"
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
        return f"the server of the embedded judge ended with code {code}; its log: {self._log}"

    def stop(self) -> None:
        """Ends the server with all its processes."""
        if self._process is None or self._process.poll() is not None:
            return
        os.killpg(self._process.pid, signal.SIGTERM)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)

    def _command(self, host: str, port: int) -> list[str]:
        # `vllm serve` looks up the distribution's name, which the CPU build has not.
        command = [
            sys.executable,
            "-m",
            "vllm.entrypoints.openai.api_server",
            "--model",
            self._model,
        ]
        command += [
            "--served-model-name",
            SERVER_MODEL,
            "--host",
            host,
            "--port",
            str(port),
            "--dtype",
            self._engine.dtype,
        ]
        command += ["--max-num-seqs", "16", "--enforce-eager"]
        # Without this a small model fills its output limit with the white space that JSON allows
        # anywhere.
        command += [
            "--structured-outputs-config",
            json.dumps({"backend": "xgrammar", "disable_any_whitespace": True}),
        ]
        return command + (
            ["--max-model-len", str(self._engine.max_model_len)]
            if self._engine.max_model_len
            else []
        )


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as reply:
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False
