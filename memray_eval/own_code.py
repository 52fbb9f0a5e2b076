"""Runs users' code so that it cannot end, stall or change the run: what it does wrong becomes an
OwnCodeError, the error of the unit that it was called for."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from functools import wraps
from typing import Any, NoReturn, TypeVar

from memray_eval.types import Sample

logger = logging.getLogger(__name__)

T = TypeVar("T")
MOST_PRINTED = 100_000  # characters that users' code prints in a process; the rest is dropped
_exit, _putenv, _unsetenv = os._exit, os.putenv, os.unsetenv


class OwnCodeError(Exception):
    """A user's code ended the process, took too long, or changed what others read."""


class _Overdue(BaseException):
    """What interrupts users' code, which may catch every Exception."""


class _Inside(threading.local):
    """Of each thread, the process in which it runs users' code (0: it does not), and the variables
    of the environment that the code wrote."""

    pid = 0

    def __init__(self) -> None:
        self.written: dict[str, None] = {}


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
    working directory that it changed, which is put back."""

    @wraps(fn)
    def call(*arguments: Any) -> T:
        copies = [deepcopy(value) if isinstance(value, Sample) else value for value in arguments]

        def run() -> T:
            with own_code(), _unchanged_process():
                return fn(*copies)

        if _threads.worker is None:
            _threads.worker = _Worker()
        try:
            return _threads.worker.call(run, timeout_s)
        except _Overdue:
            _threads.worker = None  # it may never come back
            logger.error("the metric %s was given up: no result within %g s", name, timeout_s)
            raise OwnCodeError(
                f"no result within {timeout_s:g} s (the key metric_timeout_s sets the limit)"
            ) from None

    return call


class _Worker:
    """A thread that runs users' code, so that the caller need not wait for what hangs."""

    def __init__(self) -> None:
        self._calls = queue.SimpleQueue[tuple[Callable[[], Any], queue.SimpleQueue[Any]]]()
        self._thread = threading.Thread(target=self._work, daemon=True, name="own-code")
        self._thread.start()

    def call(self, fn: Callable[[], T], timeout_s: float) -> T:
        """The function's result. Raises what it raises, and _Overdue, which then also ends the
        thread as soon as it runs Python."""
        outcome = queue.SimpleQueue[Any]()
        self._calls.put((fn, outcome))
        try:
            result, error = outcome.get(timeout=min(timeout_s, threading.TIMEOUT_MAX))
        except queue.Empty:
            thread, overdue = ctypes.c_ulong(self._thread.ident or 0), ctypes.py_object(_Overdue)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, overdue)
            raise _Overdue from None
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]

    def _work(self) -> None:
        with suppress(_Overdue):
            while True:
                fn, outcome = self._calls.get()
                try:
                    outcome.put((fn(), None))
                except _Overdue:
                    raise
                except Exception as error:
                    outcome.put((None, error))
                except BaseException as error:  # its own Ctrl-C: none comes to this thread
                    outcome.put((None, OwnCodeError(f"it raised {type(error).__name__}")))


class _Threads(threading.local):
    """Each thread's worker."""

    worker: _Worker | None = None


_threads = _Threads()


@contextmanager
def _unchanged_process() -> Iterator[None]:
    """Puts back what this thread's code changes; other threads may write variables meanwhile."""
    folder, variables = os.getcwd(), dict(os.environ)
    _inside.written.clear()
    try:
        yield
    finally:
        changed = [name for name in _inside.written if os.environ.get(name) != variables.get(name)]
        for name in changed:
            if name in variables:
                os.environ[name] = variables[name]
            else:
                del os.environ[name]
        moved_to = os.getcwd()
        if moved_to != folder:
            os.chdir(folder)
    if changed:
        raise OwnCodeError(f"it changed the environment variable {changed[0]}, and it was put back")
    if moved_to != folder:
        raise OwnCodeError(f"it changed the working directory to {moved_to}, and it was put back")


def _refuse_exit(status: int) -> NoReturn:
    if _inside.pid == os.getpid():  # not in a process that the code forked
        raise OwnCodeError(f"it called os._exit({status})")
    _exit(status)


def _note_putenv(name: Any, value: Any) -> None:
    _inside.written[os.fsdecode(name)] = None
    _putenv(name, value)


def _note_unsetenv(name: Any) -> None:
    _inside.written[os.fsdecode(name)] = None
    _unsetenv(name)


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
    """Puts ours before os._exit, the writers of the environment (os.environ calls them) and the
    standard streams, which other code may have replaced."""
    if os._exit is not _refuse_exit:
        os._exit = _refuse_exit
        os.putenv, os.unsetenv = _note_putenv, _note_unsetenv
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
