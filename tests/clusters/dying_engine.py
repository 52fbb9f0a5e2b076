"""In vLLM's place, for kills: an engine whose answers come from a process that it starts, as vLLM's
do, and that writes down which prompts it was asked. It may be told to die at its start."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

ANSWER = "An answer of the engine."
# Answers each line that it reads after a while, however many come meanwhile
CHILD = """
import sys, threading
out = threading.Lock()
def answer(line):
    with out:
        sys.stdout.write(line)
        sys.stdout.flush()
for line in sys.stdin:
    threading.Timer(float(sys.argv[1]), answer, (line,)).start()
"""


class Deaths(NamedTuple):
    """How engines die at their start: `how`, `times` of the first engine's starts (or `of_all`)."""

    times: int = 0
    how: Literal["killed", "error"] = "killed"
    of_all: bool = False


def dying_engine(
    books: Path, row_s: float = 0.3, load_s: float = 0.5, deaths: Deaths = Deaths()
) -> type:
    """A stage of Ray Data LLM's that takes what TellingEngine does. `books` is a folder that gets a
    line in `starts` for each start (of Start) and in `asked` for each prompt."""
    from ray.llm._internal.batch.stages.base import StatefulStageUDF

    class DyingEngine(StatefulStageUDF):  # type: ignore[misc]
        def __init__(self, data_column: str, expected_input_keys: list[str], **_: Any) -> None:
            import ray

            super().__init__(data_column, ["sampling_params"])
            context = ray.get_runtime_context()
            self._actor = str(context.get_actor_id())
            print(f"loading the model on {context.get_node_id()[:8]}", flush=True)
            began = time.time()
            time.sleep(load_s)
            self._die_if_told()
            self._child = subprocess.Popen(
                [sys.executable, "-S", "-c", CHILD, str(row_s)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                bufsize=1,
            )
            self._answers: dict[str, asyncio.Future[None]] = {}
            self._loop: asyncio.AbstractEventLoop | None = None
            threading.Thread(target=self._read, daemon=True).start()
            start = Start(
                actor=self._actor,
                pid=os.getpid(),
                child=self._child.pid,
                node=context.get_node_id(),
                began=began,
                loaded=time.time(),
            )
            _write(books / "starts", json.dumps(start._asdict()))

        def _die_if_told(self) -> None:
            victim = books / "victim"
            with contextlib.suppress(FileExistsError), victim.open("x") as file:
                file.write(self._actor)
            time.sleep(0.1)  # the first one has written it
            if not deaths.of_all and victim.read_text() != self._actor:
                return
            died = books / f"died-{self._actor}"
            n_died = len(died.read_text()) if died.exists() else 0
            if n_died >= deaths.times:
                return
            with died.open("a") as file:
                file.write("x")
            print("CUDA error: an illegal memory access was encountered", flush=True)
            if deaths.how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("Engine core initialization failed. See root cause above.")

        def _read(self) -> None:
            assert self._child.stdout is not None
            for line in self._child.stdout:
                assert self._loop is not None
                self._loop.call_soon_threadsafe(self._answers[line.strip()].set_result, None)
            os._exit(1)  # as Ray Data LLM does where vLLM says that its engine is dead

        async def _answer(self, prompt: bytes) -> None:
            self._loop = asyncio.get_running_loop()
            key = f"{hashlib.sha1(prompt).hexdigest()}"
            _write(books / "asked", f"{key} {self._actor}")
            self._answers[key] = self._loop.create_future()
            assert self._child.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # its process is dead: so are we, at once
                self._child.stdin.write(f"{key}\n")
            await self._answers[key]

        async def udf(self, rows: list[dict[str, Any]]) -> AsyncIterator[dict[str, Any]]:
            prompts = [row.pop("prompt_tokens_int32") for row in rows]
            await asyncio.gather(*(self._answer(prompt) for prompt in prompts if prompt))
            for row in rows:
                yield {
                    self.IDX_IN_BATCH_COLUMN: row[self.IDX_IN_BATCH_COLUMN],
                    "generated_text": ANSWER,
                    "generated_tokens": [1, 2, 3],
                    "finish_reason": "stop",
                    "num_input_tokens": 3,
                    "num_cached_tokens": 0,
                    "metrics": None,
                    "__inference_error__": "",
                }

    return DyingEngine


def counted_engine(made: type, books: Path) -> type:
    """A real engine that keeps the same books. `made` is TellingEngine."""

    class CountedEngine(made):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            import psutil
            import ray

            began, context = time.time(), ray.get_runtime_context()
            super().__init__(*args, **kwargs)
            children = psutil.Process().children(recursive=True)
            cores = [child.pid for child in children if "EngineCore" in " ".join(child.cmdline())]
            self._books_of = str(context.get_actor_id())
            start = Start(
                actor=self._books_of,
                pid=os.getpid(),
                child=cores[0] if cores else 0,
                node=context.get_node_id(),
                began=began,
                loaded=time.time(),
            )
            _write(books / "starts", json.dumps(start._asdict()))

        async def udf(self, batch: list[dict[str, Any]]) -> AsyncIterator[dict[str, Any]]:
            for row in batch:
                key = hashlib.sha1(row["prompt_tokens_int32"]).hexdigest()
                _write(books / "asked", f"{key} {self._books_of}")
            async for answer in super().udf(batch):
                yield answer

    return CountedEngine


class Start(NamedTuple):
    """A start of an engine that came up: its actor, its processes, its node, and when it loaded its
    model."""

    actor: str
    pid: int
    child: int
    node: str
    began: float
    loaded: float


def read_starts(books: Path) -> list[Start]:
    path = books / "starts"
    lines = path.read_text().splitlines() if path.exists() else []
    return [Start(**json.loads(line)) for line in lines]


def read_asked(books: Path) -> list[str]:
    """The key of each prompt that an engine was asked, as often as it was."""
    path = books / "asked"
    return [line.split()[0] for line in path.read_text().splitlines()] if path.exists() else []


def most_at_once(starts: list[Start]) -> int:
    """How many engines of one node loaded their models at the same time, at most."""
    return max(
        sum(other.node == one.node and other.began <= one.began < other.loaded for other in starts)
        for one in starts
    )


def _write(path: Path, line: str) -> None:
    with path.open("a") as file:
        file.write(f"{line}\n")
