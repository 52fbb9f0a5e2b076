"""The script that prints a GPU's table: a part that fails is a row, and the others go on."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from tests.conftest import REPOSITORY
from tests.gpu.engine_table import assumptions_text, row_text, rows_of_part


def part(code: str, seconds: float) -> list[dict[str, object]]:
    return list(rows_of_part("bare", [sys.executable, "-c", code], seconds))


def test_a_part_that_fails_keeps_its_rows_and_says_why() -> None:
    first = 'print(\'{"what": "start, bare", "value": 3.0, "unit": "s"}\', flush=True)\n'
    kept, failed = part(first + "raise RuntimeError('CUDA error: out of memory')", 20)
    assert kept["value"] == 3.0
    assert row_text(failed) == (
        f"  {'bare':<44} FAILED: ended with code 1: RuntimeError: CUDA error: out of memory"
    )


def test_a_part_that_takes_too_long_is_ended_with_what_it_started() -> None:
    began = time.monotonic()
    sleeps = "import subprocess; subprocess.run(['sleep', '60'])"
    (failed,) = part(sleeps, 1.0)
    assert time.monotonic() - began < 20
    assert failed["cause"] == "not done in its 1 s"
    assert part("", 0) == [{"what": "bare", "cause": "no time was left for it"}]


def test_a_part_that_is_done_has_no_row_for_it() -> None:
    assert part('print(\'{"what": "bare done"}\')', 20) == []


def test_the_service_times_are_those_that_were_measured() -> None:
    rate, doubles_at, step_s = 30_000.0, 30_500.0, 0.008

    def alone(tokens: int) -> float:
        return step_s + tokens / rate * (1 + tokens / (2 * doubles_at))

    lengths = {"2k": 2_000, "32k": 32_000, "128k": 128_000}
    rows = [
        {"what": f"one prompt of {name}", "value": alone(tokens), "tokens": tokens}
        for name, tokens in lengths.items()
    ]
    rows += [
        {"what": "a step", "value": step_s + 2_000 / 2e7, "tokens": 2_000},
        {"what": "a step at 32k", "value": step_s + 32_000 / 2e7, "tokens": 32_000},
        {"what": "start, bare", "value": 41.4},
        {"what": "KV cache", "value": 430_000},
    ]
    assert assumptions_text(rows) == (
        "  assumptions: {engine: {prefill_tokens_per_s: 30000, step_s: 0.008, start_s: 41, "
        "doubles_at: 30500, context_tokens_per_s: 20000000, kv_tokens: 430000}}"
    )
    assert assumptions_text(rows[1:]) == "  assumptions.engine: not all of it was measured"


@pytest.mark.engine
@pytest.mark.skipif(
    not os.environ.get("MEMRAY_EVAL_ENGINES"),
    reason="engines of their own, minutes: set MEMRAY_EVAL_ENGINES=1",
)
def test_the_script_prints_its_table_with_the_embedded_model() -> None:
    words = [sys.executable, "-m", "tests.gpu.engine_table", "--cpu"]
    done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "stage / bare at 128k" in done.stdout
    assert "prefix order / shuffled" in done.stdout
    assert "assumptions: {engine:" in done.stdout
