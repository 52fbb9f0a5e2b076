"""What an admission controller is built from: whom it asks, how, and its ways to the run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from memray_eval.config.sections import RateLimits
from memray_eval.errors import JudgeError


class JudgeEndpoint(NamedTuple):
    """A judge, the address at which it is asked, and the digest of the key it is asked with. A
    person reads the name only."""

    name: str
    address: str = ""
    account: str = ""

    @property
    def key(self) -> str:
        """What the limiter calls the judge: one name at two servers, or on two accounts, has two
        limits."""
        address = f"@{self.address}" if self.address else ""
        return self.name + address + (f"#{self.account}" if self.account else "")


@dataclass(frozen=True, kw_only=True)
class AdmissionOptions:
    """How one judge actor may ask one judge.

    `member` names the actor, one of `members` of its `run` that share the limits. `limits` are what
    is known beforehand, firm when the user set them. A judge that has let no call through for
    `patience_s`, waiting included, fails the calls that wait for it. One `in_pool` raises
    MemberRests instead of having them wait while it is down or refuses calls."""

    member: str
    run: str = ""
    members: int = 1
    limits: RateLimits = field(default_factory=RateLimits)
    is_firm: bool = False
    max_in_flight: int = 64
    max_output_tokens: int = 2048
    patience_s: float = 600.0
    in_pool: bool = False

    @property
    def first_places(self) -> int:
        """Calls in flight until the limiter says how many this member may have."""
        if not self.limits.concurrency:
            return self.max_in_flight
        return min(self.max_in_flight, max(1, self.limits.concurrency // self.members))

    def is_set_by_user(self, lane: str) -> bool:
        return self.is_firm and getattr(self.limits, lane) is not None


class Rest(NamedTuple):
    """Why a judge takes no call for so long; `is_final` where no waiting is worth it."""

    left_s: float
    error: JudgeError
    is_final: bool = False


class MemberRests(Exception):
    """A pool's member takes no call now: it is for another member. No error of a row."""


@dataclass(frozen=True, kw_only=True)
class RunHooks:
    """The run around a controller. `say` gets lines that a person should read; calls that still
    wait when `is_stopping` are not made. Clock and sleep are replaced in tests."""

    say: Callable[[str], None] = lambda line: None
    is_stopping: Callable[[], bool] = lambda: False
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
