"""The counter of a run on Ray, as workers see it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from memray_eval.execution.ray.progress_counter import REPORTS, RemoteCounter
from memray_eval.execution.run_counter import RunCounter


def test_what_is_reported_goes_to_a_method_of_the_counter() -> None:
    sent = list[tuple[object, ...]]()
    actor = SimpleNamespace(call=SimpleNamespace(remote=lambda *values: sent.append(values)))
    RemoteCounter(actor).add("judge", 3, 0.0, 1.0)
    assert sent == [("add", "judge", 3, 0.0, 1.0)]
    for name in REPORTS:
        assert hasattr(RunCounter, name)


def test_a_counter_has_no_other_methods() -> None:
    with pytest.raises(AttributeError):
        RemoteCounter(SimpleNamespace()).absent  # noqa: B018
