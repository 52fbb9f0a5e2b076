"""What users' metrics do wrong is an error of their unit: never the run's end, nor another one's
figure."""

import sys
import threading
import time
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch

from memray_eval.config.sections import OwnMetric
from memray_eval.errors import ConfigError
from memray_eval.extensions import call_own, find_own_object
from memray_eval.metric import ComputedMetric, score_by_code
from memray_eval.metrics.own import load_own_metric
from memray_eval.own_code import OwnCodeError, to_number
from memray_eval.types import Response, Sample, Score
from tests.build import build_sample
from tests.conftest import HANG_S

FILE = """
import sys, time
class Odd(BaseException): pass
def exits(sample, response): sys.exit(0)
def raises(sample, response): raise Odd("x")
def stops(sample, response): raise KeyboardInterrupt
def sleeps(sample, response): time.sleep(3600)
def writes(sample, response): sample.metadata["seen"] = sample.memory["key"] = "x"; return 1.0
def counts(sample, response): return 1.0
"""


def score(
    tmp_path: Path, function: str, sample: Sample = build_sample(), timeout_s: float = 30.0
) -> Score:
    file = tmp_path / "own_metrics.py"
    file.write_text(FILE)
    code = find_own_object(f"{file}:{function}")
    metric = load_own_metric(OwnMetric(name=function, code=code), timeout_s)
    assert isinstance(metric, ComputedMetric)
    return score_by_code(metric, sample, Response(text="r"))


@pytest.mark.parametrize(
    ("function", "why"),
    [("exits", "sys.exit(0)"), ("raises", "raised Odd"), ("stops", "raised KeyboardInterrupt")],
)
def test_what_would_end_the_run_is_the_units_error(tmp_path: Path, function: str, why: str) -> None:
    result = score(tmp_path, function)
    assert (result.status, result.value) == ("error", None)
    assert why in (result.error or "")


def test_a_metric_that_hangs_is_given_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    started = time.monotonic()
    result = score(tmp_path, "sleeps", timeout_s=0.3)
    assert result.status == "error"
    assert "metric_timeout_s" in (result.error or "")
    assert "sleeps" in caplog.text
    assert time.monotonic() - started < HANG_S
    assert score(tmp_path, "counts").value == 1.0  # the next one is not given up


def test_samples_are_copies(tmp_path: Path) -> None:
    sample = build_sample(metadata={"a": [1]}, memory={"m": "v"})
    assert score(tmp_path, "writes", sample).value == 1.0
    assert sample == build_sample(metadata={"a": [1]}, memory={"m": "v"})


def test_a_file_that_exits_when_imported_is_refused(tmp_path: Path) -> None:
    (tmp_path / "quits.py").write_text("raise SystemExit(0)")
    with pytest.raises(ConfigError, match=r"quits\.py.*sys\.exit"):
        _ = find_own_object(f"{tmp_path}/quits.py:f").load()  # type: ignore[union-attr]


async def _quits_later() -> None:
    sys.exit(0)


def _stops() -> None:
    raise KeyboardInterrupt


@pytest.mark.anyio
@pytest.mark.parametrize("fn", [_quits_later, lambda: sys.exit(0), _stops])
async def test_candidates_and_judges_do_not_end_the_process(fn: object) -> None:
    with pytest.raises(OwnCodeError):
        await call_own(fn)  # type: ignore[arg-type]
    assert threading.main_thread().is_alive()


HALF = (np.float32(0.5), torch.tensor(0.5), Decimal("0.5"), Fraction(1, 2), np.array(0.5))
ONE = (True, np.int64(1), np.bool_(True), torch.tensor(True))


@pytest.mark.parametrize(("values", "number"), [(HALF, 0.5), (ONE, 1.0)])
def test_numbers_of_any_kind(values: tuple[object, ...], number: float) -> None:
    assert [to_number(value) for value in values] == [number] * len(values)


@pytest.mark.parametrize("value", ["0.5", None, b"1", [1.0], 1j, np.array([0.5]), torch.ones(2)])
def test_what_is_no_number(value: object) -> None:
    with pytest.raises(TypeError, match="neither a number nor a bool"):
        to_number(value)
