"""Follows a job to its end, across dropped streams. The job runs on without followers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Protocol

from memray_eval.errors import ResourceError
from memray_eval.types import Frozen

POLL_S = 2.0
QUIET_S = 60.0  # a stream that is silent for this long may be dead: it is opened again
PATIENCE_S = 120.0  # how long the cluster may be out of reach before we say so and go
NO_EXIT_CODE = 3  # of a job whose driver never ran, or whose node was lost


class JobState(Frozen):
    """A job's state as the cluster reports it, times in epoch seconds. `run_id`, `suite`, `samples`
    and `out` are what `submit` noted."""

    job_id: str
    status: str
    run_id: str | None = None
    suite: str | None = None
    samples: str | None = None
    out: str | None = None
    message: str | None = None
    driver_exit_code: int | None = None
    started_s: float | None = None
    ended_s: float | None = None

    @property
    def is_over(self) -> bool:
        return self.status in ("SUCCEEDED", "FAILED", "STOPPED")

    @property
    def exit_code(self) -> int:
        """0 for a job that succeeded; the driver's own code if it failed, 128 + n when signal n
        ended it, NO_EXIT_CODE when there is none; 1 for one that was stopped, and while it runs."""
        if self.status == "SUCCEEDED":
            return 0
        if self.status != "FAILED":
            return 1
        code = self.driver_exit_code
        return NO_EXIT_CODE if not code else 128 - code if code < 0 else code


class Watched(Protocol):
    """What watching needs of the cluster. All raise ResourceError when it is out of reach."""

    def state(self, name: str) -> JobState: ...
    def log(self, name: str) -> str: ...
    def tail(self, job_id: str) -> AsyncIterator[str]: ...


class Patience:
    """Measures how long the cluster has been out of reach. Times in seconds of `clock`."""

    def __init__(
        self, limit_s: float = PATIENCE_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit_s, self._clock = limit_s, clock
        self._last = clock()

    def reached(self) -> None:
        self._last = self._clock()

    def missed(self, error: ResourceError) -> None:
        """Raises `error` when it has been too long."""
        if self._clock() - self._last > self._limit_s:
            raise error


def wait_for_end(
    jobs: Watched,
    job_id: str,
    patience: Patience | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> JobState:
    """Waits until the job is over and returns its last state. Raises ResourceError when the cluster
    stays out of reach for longer than `patience`."""
    patience = patience or Patience()
    while not (state := _ask_state(jobs, job_id, patience)) or not state.is_over:
        sleep(POLL_S)
    return state


def follow(
    jobs: Watched,
    job_id: str,
    write: Callable[[str], None],
    patience: Patience | None = None,
    sleep: Callable[[float], None] = time.sleep,
    quiet_s: float = QUIET_S,
) -> JobState:
    """Writes what the job prints, each character once, until it is over, and returns its last
    state. A stream that drops is opened again and skips what was written."""
    patience, written = patience or Patience(), 0

    def write_from(start: int, text: str) -> int:
        nonlocal written
        end = start + len(text)
        if end > written:
            write(text[max(0, written - start) :])
            written = end
        return end

    while True:
        asyncio.run(_stream(jobs, job_id, write_from, quiet_s))
        state = _ask_state(jobs, job_id, patience)
        if state is not None and state.is_over:
            with suppress(ResourceError):  # the log may have gone with its node
                write_from(0, jobs.log(job_id))
            return state
        sleep(POLL_S)


async def _stream(
    jobs: Watched, job_id: str, write_from: Callable[[int, str], int], quiet_s: float
) -> None:
    """Reads one stream until it ends, drops or falls silent."""
    chunks, position = jobs.tail(job_id).__aiter__(), 0
    try:
        while True:
            position = write_from(position, await asyncio.wait_for(anext(chunks), quiet_s))
    except (StopAsyncIteration, TimeoutError, ResourceError):
        return


def _ask_state(jobs: Watched, job_id: str, patience: Patience) -> JobState | None:
    """The job's state; None if the cluster is out of reach, within `patience`."""
    try:
        state = jobs.state(job_id)
    except ResourceError as error:
        patience.missed(error)
        return None
    patience.reached()
    return state
