"""Runs users' code so that it cannot end or stall the run: its failures become an OwnCodeError, the
error of the unit that it was called for. Nothing of `os` or `sys` is patched: os._exit, and changes
of the environment or the working directory, are those of its process."""

import asyncio
import logging
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from functools import wraps
from typing import Any, TypeVar

from memray_eval.types import Sample

logger = logging.getLogger(__name__)

T = TypeVar("T")


class OwnCodeError(Exception):
    """A user's code asked for the end of the process, or took too long."""


class OwnCodeTooSlow(OwnCodeError):
    """A user's code gave no result in time."""


@contextmanager
def own_code() -> Iterator[None]:
    """Makes an OwnCodeError of sys.exit, and of any other exception that is not an Exception.
    Ctrl-C stays Ctrl-C, which comes to the main thread alone."""
    try:
        yield
    except (Exception, GeneratorExit, asyncio.CancelledError):
        raise
    except SystemExit as error:
        raise OwnCodeError(f"it called sys.exit({error.code!r})") from None
    except BaseException as error:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and isinstance(error, KeyboardInterrupt):
            raise
        raise OwnCodeError(f"it raised {type(error).__name__}, which is no Exception") from error


def guarded(
    fn: Callable[..., T], name: str, timeout_s: float, key: str = "metric_timeout_s"
) -> Callable[..., T]:
    """A function of a user's (`name`: what it is), called with copies of samples, so that none can
    change another one's. Raises OwnCodeError as `own_code`, and OwnCodeTooSlow after `timeout_s`
    seconds, which the job's `key` sets."""

    @wraps(fn)
    def call(*arguments: Any) -> T:
        copies = [deepcopy(value) if isinstance(value, Sample) else value for value in arguments]
        if _threads.worker is None:
            _threads.worker = _Worker()
        try:
            return _threads.worker.call(lambda: fn(*copies), timeout_s)
        except queue.Empty:
            _threads.worker = None  # it may never come back
            logger.error("the %s was given up: no result within %g s", name, timeout_s)
            raise OwnCodeTooSlow(
                f"no result within {timeout_s:g} s (the key {key} sets the limit)"
            ) from None

    return call


class _Worker:
    """A thread that runs users' code, so that the caller need not wait for code that hangs."""

    def __init__(self) -> None:
        self._calls = queue.SimpleQueue[Any]()
        threading.Thread(target=self._work, daemon=True, name="own-code").start()

    def call(self, fn: Callable[[], T], timeout_s: float) -> T:
        """The function's result. Raises what it raises, and queue.Empty if it has no result in
        time; the thread then ends with the function."""
        outcome = queue.SimpleQueue[Any]()
        self._calls.put((fn, outcome))
        try:
            result, error = outcome.get(timeout=min(timeout_s, threading.TIMEOUT_MAX))
        except queue.Empty:
            self._calls.put(None)
            raise
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]

    def _work(self) -> None:
        for fn, outcome in iter(self._calls.get, None):
            try:
                with own_code():
                    outcome.put((fn(), None))
            except Exception as error:
                outcome.put((None, error))
            except BaseException as error:  # of generators and coroutines, which this is not
                outcome.put((None, OwnCodeError(f"it raised {type(error).__name__}")))


class _Threads(threading.local):
    """Each thread's worker."""

    worker: _Worker | None = None


_threads = _Threads()


def to_number(value: Any) -> float:
    """A number of Python, NumPy, torch, Decimal or Fraction, or a bool of any of these. Raises
    TypeError for anything else, as a text or an array."""
    if isinstance(value, int | float):
        return float(value)
    if not isinstance(value, str | bytes | bytearray) and getattr(value, "shape", ()) == ():
        with suppress(TypeError, ValueError):
            return float(value)
    raise TypeError(f"returned {value!r:.80}, which is neither a number nor a bool")
