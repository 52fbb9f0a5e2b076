"""The services of a run, near: what a dead one is called, and what a person is told of paid calls
that cannot be read."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import ray

from memray_eval.errors import ServiceLost
from memray_eval.execution.ray.services import CallsActor, failure_reason, services_needed
from memray_eval.judges.call_cache import CachedCall

CALL = CachedCall(
    key="k",
    judge="j",
    judgment="{}",
    input_tokens=1,
    output_tokens=1,
    cost_usd=0.1,
    created=time.time(),
)


class Counter:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.add_line = self

    def remote(self, line: str) -> None:
        self.lines.append(line)


def calls_actor(folder: Path, counter: Any) -> Any:
    return CallsActor.__ray_metadata__.modified_class(None, f"file://{folder}", counter)  # type: ignore[attr-defined]


def test_paid_calls_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    calls_actor(tmp_path, None).put([CALL])
    (whole,) = tmp_path.iterdir()
    (tmp_path / f"cut-{whole.name}").write_bytes(whole.read_bytes()[:10])
    counter = Counter()
    actor = calls_actor(tmp_path, counter)
    assert actor.get(["k"]) == [CALL]
    (line,) = counter.lines
    assert line.startswith(f"Segments of paid calls in file://{tmp_path} that cannot be read")
    assert ": 1. Their calls will be paid again" in line


def test_a_dead_service_is_named() -> None:
    died = pytest.raises(ServiceLost, match=r"the ledger \(LedgerActor\) has died: The actor")
    with died, services_needed("the ledger (LedgerActor)"):
        raise ray.exceptions.ActorDiedError()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "The actor died because of an error raised in its creation task, "
            "ray::CallsActor.__init__()\n"
            "  File x, line 3\nmemray_eval.errors.ConfigError: cannot open the judge cache /x; "
            "set MEMRAY_EVAL_CACHE",
            "ConfigError: cannot open the judge cache /x; set MEMRAY_EVAL_CACHE",
        ),
        (
            "The actor died unexpectedly before finishing this task.\n\tclass_name: LedgerActor",
            "The actor died unexpectedly before finishing this task",
        ),
        ("", "RuntimeError"),
    ],
)
def test_why_an_actor_died_in_one_line(text: str, reason: str) -> None:
    assert failure_reason(RuntimeError(text)) == reason
