"""How an engine starts on its node: when it is its turn, and again where it died. One that dies on
every start ends with the last lines of its log."""

import fcntl
import logging
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import ray
from huggingface_hub.constants import HF_HUB_CACHE

from memray_eval.errors import GenerationError, cut, describe_error
from memray_eval.execution.ray.ray_compat import worker_output_path
from memray_eval.execution.run_counter import EnginePhase
from memray_eval.execution.run_log import hide_held_keys
from memray_eval.execution.waiting import beside

MOST_STARTS = 3  # of one engine, each of which died, before it is given up
LAST_LINES, LINE_CHARS = 15, 300  # of its log, in the message that says so
REASON_CHARS = 600
LOG_HEADING = "The last lines of its log:"
TURN_S = 0.2  # between two looks whether it is this engine's turn
LOOK_S = 1.0  # between two looks whether the model is being downloaded
GROWING_S = 20.0  # a hub's file that has not grown for so long is left of an earlier download
TELL_S = 0.3  # for a warning to leave a process that ends
# A setting, a model or an image that is not right: the next start would fail by it too
_LASTING = (ValueError, TypeError, LookupError, OSError, ImportError, AttributeError)

Engine = TypeVar("Engine")
logger = logging.getLogger(__name__)


def start_engine(
    make_engine: Callable[[], Engine],
    model: str,
    at_once: int | None,
    enter_phase: Callable[[EnginePhase], None] = lambda phase: None,
) -> Engine:
    """Makes the engine, which loads the model, while at most `at_once` engines of this node
    do so (None: any number). After a failure that may pass it ends this process, and Ray restarts
    the actor. Raises GenerationError, with the last lines of the engine's log, for one that would
    come again and after MOST_STARTS starts."""
    record = _starts_file()
    outputs = record.read_text("utf-8").splitlines() if record.exists() else []
    if len(outputs) >= MOST_STARTS:  # all of them killed: no start has come to its error
        record.unlink()
        raise _give_up(model, f"died {MOST_STARTS} times while it started", outputs[-1])
    with suppress(OSError), record.open("a", encoding="utf-8") as file:
        file.write(f"{worker_output_path()}\n")
    enter_phase("starting")
    try:
        with (
            turn_on_node(ray.get_runtime_context().get_node_id(), at_once),
            watched_download(model, enter_phase),
        ):
            engine = make_engine()
    except Exception as error:  # user's settings, a model, a driver: vLLM raises whatever comes
        n_failed, reason = len(outputs) + 1, hide_held_keys(describe_error(error))
        if isinstance(error, _LASTING) or n_failed >= MOST_STARTS:
            record.unlink(missing_ok=True)
            times = f"{n_failed} times" if n_failed > 1 else "at its start"
            raise _give_up(model, f"failed {times}: {reason}", worker_output_path()) from error
        text = "an engine of %s failed at its start (%d of %d) and is started again: %s"
        logger.warning(text, model, n_failed, MOST_STARTS, reason, exc_info=error)
        time.sleep(TELL_S)
        os._exit(1)
    record.unlink(missing_ok=True)
    enter_phase("up")
    return engine


@contextmanager
def watched_download(model: str, enter_phase: Callable[[EnginePhase], None]) -> Iterator[None]:
    """Tells, while the block runs, if the model is being downloaded or loaded."""

    def watch(is_over: threading.Event) -> None:
        while not is_over.is_set():
            enter_phase("downloading" if _is_downloading(model) else "loading")
            is_over.wait(LOOK_S)

    with beside(watch, "engine-phase"):
        yield


def _is_downloading(model: str) -> bool:
    """True if a file of a hub's model grows in this node's cache, or has in the last GROWING_S."""
    blobs = Path(HF_HUB_CACHE) / f"models--{model.replace('/', '--')}" / "blobs"
    with suppress(OSError):  # it is done since it was listed
        ages = [time.time() - file.stat().st_mtime for file in blobs.glob("*.incomplete")]
        return min(ages, default=GROWING_S) < GROWING_S
    return False


def _starts_file() -> Path:
    """A line for each start of this actor on this node since it was last up: the file that has its
    output. What killed the process could not take this with it."""
    actor = ray.get_runtime_context().get_actor_id()
    return Path(tempfile.gettempdir()) / f"memray_eval_engine_{actor}.starts"


def _give_up(model: str, what: str, output: str) -> GenerationError:
    reason = cut(what, REASON_CHARS)
    return GenerationError(f"an engine of {model} {reason}{quote_log(output)}")


def quote_log(output: str) -> str:
    """The end of an error that quotes the last lines of a worker's log."""
    quoted = "".join(f"\n  {line}" for line in last_lines(output))
    return f"\n{LOG_HEADING}{quoted}" if quoted else "; it wrote no log"


def last_lines(output: str) -> Sequence[str]:
    """The end of what a worker printed to the file at `output`, and stderr beside it."""
    lines = list[str]()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    for path in (Path(output), Path(output).with_suffix(".err")):
        with suppress(OSError):
            text = path.read_text("utf-8", "replace")
            lines += [line.rstrip()[:LINE_CHARS] for line in text.splitlines() if line.strip()]
    # Ray marks a worker's lines with names of tasks and actors
    lines = [line for line in lines if not line.startswith(":")]
    return [hide_held_keys(line) for line in lines[-LAST_LINES:]]


@contextmanager
def turn_on_node(node_id: str, at_once: int | None) -> Iterator[None]:
    """Waits until fewer than `at_once` processes of this node are in such a block, and is one of
    them. A dead process is none. Without file locks there is no waiting."""
    if at_once is None:
        yield
        return
    folder, user = Path(tempfile.gettempdir()), os.getuid()
    places = [folder / f"memray_eval_{user}_{node_id[:16]}_{n}.turn" for n in range(at_once)]
    held = None
    try:
        with suppress(OSError):
            while (held := _lock_any(places)) is None:
                time.sleep(TURN_S)
        yield
    finally:
        if held is not None:
            # A process that the engine forked has this file too: closing alone would not free it
            fcntl.flock(held, fcntl.LOCK_UN)
            os.close(held)


def _lock_any(paths: Sequence[Path]) -> int | None:
    for path in paths:
        file = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
        else:
            return file
    return None
