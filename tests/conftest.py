"""What tests of every kind share: where things are, and small real values."""

import asyncio
import inspect
import json
import os
import sys
import tempfile
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, settings

from memray_eval.config.environment import cache_dir
from memray_eval.types import Candidate, Record, Response, Sample, unit_id

# A test's end depends on nothing but the code: no clock, no dice
settings.register_profile(
    "repeatable", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("repeatable")


def own_cache() -> tempfile.TemporaryDirectory[str]:
    """A cache folder for this test session, of which only the models are the machine's: a verdict
    or speech that an earlier session left would be taken for one of this session's."""
    models = cache_dir() / "models"
    models.mkdir(parents=True, exist_ok=True)
    folder = tempfile.TemporaryDirectory(prefix="memray_eval_tests_")
    (Path(folder.name) / "models").symlink_to(models.resolve())
    os.environ["MEMRAY_EVAL_CACHE"] = folder.name  # processes that tests start inherit it
    return folder


CACHE = own_cache()  # removed when this process ends
# Ray's workers run at nice 15 otherwise, and get next to nothing beside what keeps the cores busy
os.environ.setdefault("RAY_worker_niceness", "0")
REPOSITORY = Path(__file__).parent.parent
HANG_S = 900.0  # what takes longer hangs, on a machine however busy
SAMPLES = REPOSITORY / "dataset" / "samples"
Call: TypeAlias = Callable[..., tuple[int, str, str]]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Makes captured logs sendable: xdist cannot send half a character to its main process."""
    report = yield
    report.sections = [
        (name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections
    ]
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs an async test on an event loop of its own, which its module may name as LOOP."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    with asyncio.Runner(loop_factory=getattr(pyfuncitem.module, "LOOP", None)) as runner:
        runner.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """A function of a command's words to its exit code, stdout and stderr, as a shell calls it."""
    from memray_eval.cli import main

    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["memray-eval", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return call


@pytest.fixture
def raw_sample() -> dict[str, Any]:
    """A valid raw sample, fresh for each test to break."""
    return {
        "id": "T001",
        "query": "I feel tired all day. What should I do this week?",
        "memory": {
            "name": "Jason",
            "sleep_hours_avg": "5.5",
            "caffeine_intake": "high",
            "known_condition": "mild anemia",
        },
        "required_keys": ["sleep_hours_avg", "known_condition"],
        "neutral_keys": ["name"],
    }


@pytest.fixture
def sample(raw_sample: dict[str, Any]) -> Sample:
    return Sample.model_validate(raw_sample | {"suite": "memory", "forbidden_keys": ["age"]})


@pytest.fixture
def candidate() -> Candidate:
    return Candidate(name="small", model="small-model")


@pytest.fixture
def record(sample: Sample, candidate: Candidate) -> Record:
    response = Response(
        text="With your mild anemia, ask for an iron test.", finish_reason="stop", output_tokens=10
    )
    return Record(
        unit_id=unit_id(sample.id, candidate, sample.suite),
        sample=sample,
        candidate=candidate,
        response=response,
    )


def shipped_samples() -> list[Sample]:
    files = sorted(SAMPLES.glob("*/sample.json"))
    return [
        Sample.model_validate(json.loads(file.read_text("utf-8")) | {"suite": "memory"})
        for file in files
    ]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--refresh-goldens", action="store_true", help="Write the goldens of tests/golden again."
    )
