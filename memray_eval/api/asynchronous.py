"""The same for a program with an event loop: each call works in a thread, and a cancelled one stops
its run, which `resume` goes on with. Runs of a process go one after the other, since they share
Ray, the limits of judges and the log."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

from memray_eval.api import running, runs
from memray_eval.errors import Interrupted
from memray_eval.execution.interrupts import DRAIN_S, POLL_S, cancelled

P = ParamSpec("P")
T = TypeVar("T")
_ONE_RUN = threading.Lock()


def _work(stop: threading.Event, function: Callable[[], T]) -> T:
    """Works when no other run does, unless that is cancelled before."""
    cancelled.set(stop)
    while not _ONE_RUN.acquire(timeout=POLL_S):
        if stop.is_set():
            raise Interrupted("cancelled before its run began")
    try:
        return function()
    finally:
        _ONE_RUN.release()


def _to_async(
    function: Callable[P, T], arguments: str, is_run: bool = True
) -> Callable[P, Coroutine[Any, Any, T]]:
    """The function as a coroutine. Cancelled, it has its run finish what is in flight (for up to
    DRAIN_S), and the error's notes say how to go on."""

    @wraps(function)
    async def call(*args: P.args, **keywords: P.kwargs) -> T:
        stop, bound = threading.Event(), partial(function, *args, **keywords)
        in_thread = asyncio.to_thread(_work, stop, bound) if is_run else asyncio.to_thread(bound)
        work = asyncio.ensure_future(in_thread)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError as error:
            stop.set()
            with suppress(asyncio.CancelledError):
                await asyncio.wait([work], timeout=DRAIN_S)
            if work.done() and (ended := work.exception()):
                error.add_note(str(ended))
            raise

    name = function.__name__
    call.__name__ = call.__qualname__ = f"{name}_async"
    call.__doc__ = f"""`{name}` in a thread, for `await`: the loop goes on. If it is cancelled, what
    is in flight is finished and kept, and the run can be resumed.

        await me.{name}_async({arguments})
    """
    return call


run_async = _to_async(running.run, '"jobs/memory.yaml", limit=10')
generate_async = _to_async(running.generate, '"jobs/memory.yaml", limit=10')
evaluate_async = _to_async(running.evaluate, '"answers.csv", ["relevance"]')
compare_async = _to_async(runs.compare, '"latest~1", "latest"', is_run=False)
