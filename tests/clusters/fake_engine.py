"""In vLLM's place, which needs the GPUs that are not there: reserves its workers' GPUs in its
placement group as vLLM does, and answers, from a process that it starts if it is told to take some
time. It may write down which prompts it was asked, and die at its start or of a prompt."""

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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from memray_eval.types import Candidate
from tests.servers.judgments import judgment_reply

ANSWER = "I hear you, and that sounds hard. Rest more, and ask your doctor about it."
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
    """How engines die: at their start, `how`, so many `times` of the first engine's starts (or
    `of_all`); and of any prompt that has as many bytes."""

    times: int = 0
    how: Literal["killed", "error"] = "killed"
    of_all: bool = False
    prompt_bytes: int | None = None


NO_DEATHS = Deaths()


def fake_engine(
    books: Path | None = None,
    row_s: float = 0.0,
    load_s: float = 0.0,
    deaths: Deaths = NO_DEATHS,
    answers_from: int = 0,
) -> type:
    """A class that takes what VllmEngine does. `books` is a folder that gets a
    line in `starts` for each start (of Start), in `asked` for each prompt, and in `died` for each
    death at a start. Answers take `row_s`, and come from a process of their own if they take any
    time. None is given before `answers_from` engines are up."""

    class FakeEngine:
        def __init__(self, context: Any, model: str, kwargs: Mapping[str, Any]) -> None:
            import ray

            self._actor = str(ray.get_runtime_context().get_actor_id())
            print(f"loading the model on {ray.get_runtime_context().get_node_id()[:8]}", flush=True)
            began = time.time()
            self._workers = _start_workers(kwargs["tensor_parallel_size"])
            time.sleep(load_s)
            if books is not None and deaths.times:
                _die_if_told(books, self._actor, deaths)
            self._process = OwnProcess(row_s, deaths.prompt_bytes) if row_s else None
            if books is not None:
                _write_start(books, began, self._process.pid if self._process else 0)

        async def _answer(self, prompt: bytes) -> None:
            key = hashlib.sha1(prompt).hexdigest()
            if books is not None:
                _write(books / "asked", f"{key} {self._actor}")
            while books is not None and len(read_starts(books)) < answers_from:
                await asyncio.sleep(0.05)
            if self._process is not None:
                await self._process.answer(key, prompt)

        async def serve(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
            await self._answer(body)
            message = {"role": "assistant", "content": judgment_reply(json.loads(body))}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            usage = {"prompt_tokens": 2, "completion_tokens": 1, "total_tokens": 3}
            reply = {"model": self._actor, "choices": [choice], "usage": usage}
            return 200, json.dumps(reply).encode()

        async def answer(self, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
            await asyncio.gather(*(self._answer(row["prompt_tokens_int32"]) for row in rows))
            answer = {"generated_text": ANSWER, "generated_tokens": [1, 2, 3]}
            answer |= {"finish_reason": "stop", "num_input_tokens": 3, "num_cached_tokens": 0}
            return [answer] * len(rows)

    return FakeEngine


def prompt_rows(n: int, model: str = "embedded") -> list[dict[str, Any]]:
    """Rows as an engine is asked them, each with a prompt and a seed of its own."""
    candidate = Candidate(name="c", model=model).model_dump_json()
    return [
        {
            "prompt_tokens_int32": f"{row}".encode(),
            "sampling_params": json.dumps({"seed": row}),
            "candidate_config": candidate,
        }
        for row in range(n)
    ]


def _die_if_told(books: Path, actor: str, deaths: Deaths) -> None:
    victim = books / "victim"
    with contextlib.suppress(FileExistsError), victim.open("x") as file:
        file.write(actor)  # who reads it before that is no victim either
    is_told = deaths.of_all or victim.read_text() == actor
    if not is_told or count_deaths(books, actor) >= deaths.times:
        return
    _write(books / "died", actor)
    print("CUDA error: an illegal memory access was encountered", flush=True)
    if deaths.how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    raise RuntimeError("Engine core initialization failed. See root cause above.")


class OwnProcess:
    """The process of an engine that answers, each prompt after `row_s`; it dies of one with
    `deadly_bytes`, and the engine with it."""

    def __init__(self, row_s: float, deadly_bytes: int | None) -> None:
        self._deadly_bytes, self._answers = deadly_bytes, dict[str, asyncio.Future[None]]()
        self._loop: asyncio.AbstractEventLoop | None = None
        command, pipe = [sys.executable, "-S", "-c", CHILD, str(row_s)], subprocess.PIPE
        self._child = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1)
        self.pid = self._child.pid
        threading.Thread(target=self._read, daemon=True).start()

    async def answer(self, key: str, prompt: bytes) -> None:
        self._loop = asyncio.get_running_loop()
        self._answers[key] = self._loop.create_future()
        if self._deadly_bytes is not None and len(prompt) >= self._deadly_bytes:
            self._child.kill()
        assert self._child.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the process is dead: so are we, at once
            self._child.stdin.write(f"{key}\n")
        await self._answers[key]

    def _read(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            assert self._loop is not None
            self._loop.call_soon_threadsafe(self._answers[line.strip()].set_result, None)
        os._exit(1)  # as VllmEngine does where its engine is dead


def _start_workers(n_workers: int) -> list[Any]:
    """Actors that hold the engine's GPUs in its placement group, as vLLM's do; none where it is one
    process."""
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    @ray.remote(num_cpus=0, num_gpus=1, max_restarts=0)
    class Worker:
        def node(self) -> str:
            return str(ray.get_runtime_context().get_node_id())

    workers: list[Any] = []
    if n_workers > 1:
        group = ray.util.get_current_placement_group()
        assert group is not None, "an engine of several workers has a placement group"
        for bundle in range(n_workers):
            strategy = PlacementGroupSchedulingStrategy(group, bundle)
            placed = Worker.options(scheduling_strategy=strategy)  # type: ignore[attr-defined]
            workers.append(placed.remote())
        ray.get([worker.node.remote() for worker in workers])
    return workers


def counted_engine(engine_class: type, books: Path) -> type:
    """A real engine, VllmEngine, that keeps the same books."""

    class CountedEngine(engine_class):  # type: ignore[misc]
        def __init__(self, *args: Any) -> None:
            import psutil
            import ray

            began = time.time()
            super().__init__(*args)
            children = psutil.Process().children(recursive=True)
            cores = [child.pid for child in children if "EngineCore" in " ".join(child.cmdline())]
            self._books_of = str(ray.get_runtime_context().get_actor_id())
            _write_start(books, began, cores[0] if cores else 0)

        async def answer(self, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
            for row in rows:
                key = hashlib.sha1(row["prompt_tokens_int32"]).hexdigest()
                _write(books / "asked", f"{key} {self._books_of}")
            answers: list[dict[str, Any]] = await super().answer(rows)
            return answers

    return CountedEngine


class Start(NamedTuple):
    """A start of an engine that came up: its actor, its processes (child: 0 where it has none), its
    node, when it loaded its model, and what it holds of Ray's resources."""

    actor: str
    pid: int
    child: int
    node: str
    began: float
    loaded: float
    resources: dict[str, float]


def _write_start(books: Path, began: float, child: int) -> None:
    import ray

    context = ray.get_runtime_context()
    actor, node = str(context.get_actor_id()), context.get_node_id()
    resources = context.get_assigned_resources()
    start = Start(actor, os.getpid(), child, node, began, time.time(), resources)
    _write(books / "starts", json.dumps(start._asdict()))


def read_starts(books: Path) -> list[Start]:
    return [Start(**json.loads(line)) for line in _read(books / "starts")]


def read_asked(books: Path) -> list[str]:
    """The key of each prompt that an engine was asked, as often as it was."""
    return [line.split()[0] for line in _read(books / "asked")]


def count_deaths(books: Path, actor: str | None = None) -> int:
    """How often engines died at their start; that one, where it is named."""
    died = _read(books / "died")
    return len(died) if actor is None else died.count(actor)


def most_at_once(starts: list[Start]) -> int:
    """How many engines of one node loaded their models at the same time, at most."""
    return max(
        sum(
            other.node == begun.node and other.began <= begun.began < other.loaded
            for other in starts
        )
        for begun in starts
    )


def _read(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def _write(path: Path, line: str) -> None:
    with path.open("a") as file:
        file.write(f"{line}\n")
