"""What users' metrics do wrong is an error of their unit: never the run's end, nor another one's
figure."""

import os
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

FILE = """
import ctypes, os, sys, threading, time
class Odd(BaseException): pass
def exits(sample, response): sys.exit(0)
def ends(sample, response): os._exit(0)
def raises(sample, response): raise Odd("x")
def hangs(sample, response):
    while True:
        try: time.sleep(0.01)
        except Exception: pass
def naps(sample, response): time.sleep(0.4); return 1.0
def sleeps(sample, response): time.sleep(500)
def moves(sample, response): os.chdir("/"); return 1.0
def sets(sample, response): os.environ["OWN_CODE_TEST"] = "1"; return 1.0
def unsets(sample, response): os.environ.pop("PATH"); return 1.0
def writes(sample, response): sample.metadata["seen"] = sample.memory["key"] = "x"; return 1.0
def prints(sample, response): print("y" * 1_000_000); return 1.0
def forks(sample, response):
    if (child := os.fork()) == 0: os._exit(7)
    return float(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7)
"""


def score(tmp_path: Path, function: str, sample: Sample, timeout_s: float = 30.0) -> Score:
    file = tmp_path / "own_metrics.py"
    file.write_text(FILE)
    code = find_own_object(f"{file}:{function}")
    metric = load_own_metric(OwnMetric(name=function, code=code), timeout_s)
    assert isinstance(metric, ComputedMetric)
    return score_by_code(metric, sample, Response(text="r"))


@pytest.mark.parametrize(
    ("function", "why"),
    [
        ("exits", "sys.exit(0)"),
        ("ends", "os._exit(0)"),
        ("raises", "raised Odd"),
        ("moves", "the working directory"),
        ("sets", "OWN_CODE_TEST"),
        ("unsets", "PATH"),
    ],
)
def test_what_would_end_or_change_the_run_is_the_units_error(
    tmp_path: Path, function: str, why: str
) -> None:
    before = os.getcwd(), dict(os.environ)
    result = score(tmp_path, function, Sample(id="s", query="q"))
    assert (result.status, result.value) == ("error", None)
    assert why in (result.error or "")
    assert (os.getcwd(), dict(os.environ)) == before


@pytest.mark.parametrize("function", ["hangs", "sleeps"])
def test_one_that_hangs_is_given_up_and_the_next_one_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, function: str
) -> None:
    sample, started = Sample(id="s", query="q"), time.monotonic()
    result = score(tmp_path, function, sample, timeout_s=0.3)
    assert result.status == "error"
    assert "metric_timeout_s" in (result.error or "")
    assert function in caplog.text
    assert time.monotonic() - started < 10
    time.sleep(0.6)  # nothing is raised any more
    assert score(tmp_path, "forks", sample).value == 1.0


def test_a_metric_is_not_blamed_for_what_another_thread_sets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that is loaded meanwhile sets variables of its own, which stay."""
    monkeypatch.setenv("OF_ANOTHER_THREAD", "0")  # so that it is gone in the end
    monkeypatch.delenv("OF_ANOTHER_THREAD")
    score(tmp_path, "forks", Sample(id="s", query="q"))
    setting = threading.Timer(0.1, os.environ.__setitem__, ("OF_ANOTHER_THREAD", "1"))
    setting.start()
    result = score(tmp_path, "naps", Sample(id="s", query="q"))
    setting.join()
    assert result.value == 1.0
    assert os.environ["OF_ANOTHER_THREAD"] == "1"


def test_samples_are_copies(tmp_path: Path) -> None:
    sample = Sample(id="s", query="q", metadata={"a": [1]}, memory={"m": "v"})
    assert score(tmp_path, "writes", sample).value == 1.0
    assert sample == Sample(id="s", query="q", metadata={"a": [1]}, memory={"m": "v"})


def test_prints_without_end_are_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert score(tmp_path, "prints", Sample(id="s", query="q")).value == 1.0
    assert "y" in (shown := capsys.readouterr().out)
    assert len(shown) < 200_000


def test_a_file_that_exits_when_imported_is_refused(tmp_path: Path) -> None:
    (tmp_path / "quits.py").write_text("raise SystemExit(0)")
    with pytest.raises(ConfigError, match=r"quits\.py.*sys\.exit"):
        _ = find_own_object(f"{tmp_path}/quits.py:f").load()  # type: ignore[union-attr]


async def _quits_later() -> None:
    sys.exit(0)


@pytest.mark.anyio
@pytest.mark.parametrize("fn", [_quits_later, lambda: sys.exit(0), lambda: os._exit(0)])
async def test_candidates_and_judges_do_not_end_the_process(fn: object) -> None:
    with pytest.raises(OwnCodeError):
        await call_own(fn)  # type: ignore[arg-type]
    assert threading.main_thread().is_alive()


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (True, 1.0),
        (np.float32(0.5), 0.5),
        (np.int64(1), 1.0),
        (np.bool_(True), 1.0),
        (np.array(0.25), 0.25),
        (torch.tensor(0.5), 0.5),
        (torch.tensor(True), 1.0),
        (Decimal("0.5"), 0.5),
        (Fraction(1, 4), 0.25),
    ],
)
def test_numbers_of_any_kind(value: object, number: float) -> None:
    assert to_number(value) == number


@pytest.mark.parametrize("value", ["0.5", None, b"1", [1.0], 1j, np.array([0.5]), torch.ones(2)])
def test_what_is_no_number(value: object) -> None:
    with pytest.raises(TypeError, match="neither a number nor a bool"):
        to_number(value)
