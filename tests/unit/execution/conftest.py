"""The folder of a run, its stages' context, and a process that Ctrl-C interrupts."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from memray_eval.execution.stages.context import StageContext
from memray_eval.results.run_folder import RunFolder
from tests.unit.execution.near import KeptReports


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
