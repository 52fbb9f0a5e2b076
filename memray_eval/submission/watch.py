"""Follows a job to its end by asking again and again. The job runs on without followers."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from memray_eval.errors import ResourceError
from memray_eval.types import Frozen

POLL_S = 2.0
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
    """What watching needs of the cluster. Both raise ResourceError when it is out of reach."""

    def state(self, name: str) -> JobState: ...
    def log(self, name: str) -> str: ...


def watch(
    jobs: Watched,
    job_id: str,
    write: Callable[[str], None] | None = None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> JobState:
    """Waits until the job is over and returns its last state; `write` gets what it prints, each
    character once. Raises ResourceError when the cluster is out of reach for over PATIENCE_S."""
    reached, n_written = clock(), 0
    while True:
        try:
            state = jobs.state(job_id)  # before the log, which is whole once the job is over
            reached = clock()
        except ResourceError:
            if clock() - reached > PATIENCE_S:
                raise
        else:
            if write is not None:
                with suppress(ResourceError):  # the log may have gone with its node
                    text = jobs.log(job_id)
                    write(text[n_written:])
                    n_written = max(n_written, len(text))
            if state.is_over:
                return state
        sleep(POLL_S)
