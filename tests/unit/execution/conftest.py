"""The folder of a run, its stages' context, what goes to Ray's metrics, and a process that Ctrl-C
interrupts."""

import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from memray_eval.execution.ray.reporting import KINDS
from memray_eval.execution.stages.context import StageContext
from memray_eval.results.run_folder import RunFolder
from tests.unit.execution.near import Exported, KeptReports


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder(str(tmp_path / "run"))
    folder.create()
    return folder


@pytest.fixture
def context(folder: RunFolder) -> StageContext:
    """A context whose counter keeps its reports."""
    return StageContext(folder.path, KeptReports())


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Python's own handler of SIGINT, which a shell's background jobs come without."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> list[Exported]:
    """What goes to Ray's metrics, in this order. A call without all its tags fails."""
    seen = list[Exported]()

    class Recorder:
        def __init__(self, name: str, about: str, tag_keys: tuple[str, ...], **more: Any) -> None:
            self.name, self.tag_keys, self.of_all = name, {*tag_keys}, dict[str, str]()

        def set_default_tags(self, tags: dict[str, str]) -> None:
            self.of_all = tags

    def recording(kind: str) -> Callable[..., None]:
        def record(self: Recorder, amount: float, tags: Mapping[str, str]) -> None:
            assert amount > 0 or kind != "counter"
            assert tags.keys() | self.of_all == self.tag_keys
            seen.append(Exported(self.name, amount, tags, self.of_all))

        return record

    for kind, (_, method) in list(KINDS.items()):
        fake = type(kind, (Recorder,), {method: recording(kind)})
        monkeypatch.setitem(KINDS, kind, (fake, method))
    return seen
