"""Runs users' code so that it cannot end, stall or change the run: what it does wrong becomes an
OwnCodeError, the error of the unit that it was called for."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import wraps
from typing import Any, NoReturn, TypeVar

from memray_eval.types import Sample

logger = logging.getLogger(__name__)

T = TypeVar("T")
MOST_PRINTED = 100_000  # characters that users' code prints in a process; the rest is dropped
WATCH_S = 0.25
_exit = os._exit


class OwnCodeError(Exception):
    """A user's code ended the process, took too long, or changed what others read."""


class _Overdue(BaseException):
    """What interrupts users' code, which may catch every Exception."""


@dataclass
class _Call:
    """A call that is under way in a thread, and when it is overdue."""

    name: str
    timeout_s: float
    overdue_at: float
    was_interrupted: bool = False


class _Inside(threading.local):
    """Of each thread, the process in which it runs users' code; 0: it does not."""

    pid = 0


_inside = _Inside()


@contextmanager
def own_code() -> Iterator[None]:
    """Makes an OwnCodeError of an end of the process that the code asks for, and of any other
    exception that is no Exception. Ctrl-C stays Ctrl-C."""
    _take_over()
    outer, _inside.pid = _inside.pid, os.getpid()
    try:
        with errors_of_own_code():
            yield
    finally:
        _inside.pid = outer


@contextmanager
def errors_of_own_code() -> Iterator[None]:
    """As `own_code`, for code that awaits: os._exit and what is printed are not looked after."""
    try:
        yield
    except (Exception, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError, _Overdue):
        raise
    except SystemExit as error:
        raise OwnCodeError(f"it called sys.exit({error.code!r})") from None
    except BaseException as error:
        raise OwnCodeError(f"it raised {type(error).__name__}, which is no Exception") from error


def guarded_metric(fn: Callable[..., T], name: str, timeout_s: float) -> Callable[..., T]:
    """A function of a user's metric, called with copies of samples, so that none can change another
    one's. Raises OwnCodeError as `own_code`, after `timeout_s` seconds, and for an environment or
    working directory that it changed, and it was put back."""

    @wraps(fn)
    def call(*arguments: Any) -> T:
        copies = [deepcopy(value) if isinstance(value, Sample) else value for value in arguments]
        with own_code(), _unchanged_process(), _watch.interrupting(name, timeout_s):
            return fn(*copies)

    return call


@contextmanager
def _unchanged_process() -> Iterator[None]:
    folder, variables = os.getcwd(), dict(os.environ)
    try:
        yield
    finally:
        changed = [name for name, value in variables.items() if os.environ.get(name) != value]
        changed += [name for name in os.environ if name not in variables]
        moved_to = os.getcwd()
        if changed:
            os.environ.clear()
            os.environ.update(variables)
        if moved_to != folder:
            os.chdir(folder)
    if changed:
        raise OwnCodeError(f"it changed the environment variable {changed[0]}, and it was put back")
    if moved_to != folder:
        raise OwnCodeError(f"it changed the working directory to {moved_to}, and it was put back")


class _Watch:
    """A thread that interrupts calls that are overdue. Code that waits in C, as time.sleep does, is
    interrupted when it returns to Python; the log says at once what is waited for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: dict[int, _Call] = {}
        self._pid = 0

    @contextmanager
    def interrupting(self, name: str, timeout_s: float) -> Iterator[None]:
        thread, call = threading.get_ident(), _Call(name, timeout_s, time.monotonic() + timeout_s)
        if thread in self._calls:  # a metric that calls another one
            yield
            return
        if self._pid != os.getpid():
            self._pid = os.getpid()
            threading.Thread(target=self._watch, daemon=True, name="own-code-watch").start()
        self._calls[thread] = call
        try:
            yield
        except _Overdue:
            raise OwnCodeError(
                f"no result within {timeout_s:g} s (the key metric_timeout_s sets the limit)"
            ) from None
        finally:
            with self._lock:
                del self._calls[thread]
                if call.was_interrupted:
                    _raise_in(thread, None)

    def _watch(self) -> None:
        while True:
            time.sleep(WATCH_S)
            with self._lock:
                now = time.monotonic()
                for thread, call in [*self._calls.items()]:
                    if now < call.overdue_at:
                        continue
                    if not call.was_interrupted:
                        logger.error(
                            "the metric %s has been at work on a response for %g s; it is being "
                            "interrupted",
                            call.name,
                            call.timeout_s,
                        )
                    call.was_interrupted, call.overdue_at = True, now + call.timeout_s
                    _raise_in(thread, _Overdue)


_watch = _Watch()


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    """Raises the error in the thread as soon as it runs Python; None takes it back."""
    raised = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), raised)


def _refuse_exit(status: int) -> NoReturn:
    if _inside.pid == os.getpid():  # not in a process that the code forked
        raise OwnCodeError(f"it called os._exit({status})")
    _exit(status)


class _Output:
    """A standard stream that drops what users' code prints beyond MOST_PRINTED."""

    left = MOST_PRINTED

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        if not _inside.pid:
            return int(self._stream.write(text))
        left, _Output.left = _Output.left, _Output.left - len(text)
        if left > 0:
            self._stream.write(text[:left])
        if left > 0 >= _Output.left:
            self._stream.write("\n[what metrics of your own print from here on is dropped]\n")
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _take_over() -> None:
    """Puts ours before os._exit and the standard streams, which other code may have replaced."""
    if os._exit is not _refuse_exit:
        os._exit = _refuse_exit
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, _Output):
            setattr(sys, name, _Output(stream))


def to_number(value: Any) -> float:
    """A number of Python, NumPy, torch, Decimal or Fraction, or a bool of any of these. Raises
    TypeError for anything else, as a text or an array."""
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, str | bytes | bytearray) or getattr(value, "shape", ()) != ():
        raise TypeError(f"returned {value!r:.80}, which is neither a number nor a bool")
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"returned {value!r:.80}, which is neither a number nor a bool") from None
