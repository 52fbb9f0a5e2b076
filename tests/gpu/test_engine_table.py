"""The script that prints a GPU's table: a part that fails is a row, and the others go on."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

from memray_eval.execution.plan import ENGINE_LOADS
from memray_eval.execution.prompt_stage import SECOND
from memray_eval.execution.ray.engine_client import ask_again
from tests.bench.engine_parts import CPU, GPU, Part, Sizes, table_of
from tests.bench.engine_table import RATIOS, ratio_lines, row_text, rows_of_part
from tests.conftest import REPOSITORY


def part(code: str, seconds: float, folder: Path) -> list[dict[str, object]]:
    command, rows, log = [sys.executable, "-c", code], folder / "rows", folder / "log"
    return list(rows_of_part("bare", command, time.monotonic() + seconds, rows, log))


def test_a_part_that_fails_keeps_its_rows_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "rows").write_text('{"what": "start, bare", "value": 3.0, "unit": "s"}\n{"wha')
    code = "print('ValidationError: 1 error\\n  Free memory is less', flush=True)\n"
    code += "raise RuntimeError('Engine core initialization failed. See root cause above.')"
    kept, failed = part(code, 20, tmp_path)
    assert kept["value"] == 3.0
    assert row_text(failed).startswith(
        f"  {'bare':<40} FAILED: ended with code 1: ValidationError: 1 error Free memory is less "
    )


def test_a_part_that_takes_too_long_is_ended_with_what_it_started(tmp_path: Path) -> None:
    began = time.monotonic()
    # As Ray's processes: in a session of their own, and with the part's output open
    sleeps = "import subprocess; subprocess.Popen(['sleep', '61.5'], start_new_session=True).wait()"
    (failed,) = part(sleeps, 2.0, tmp_path)
    assert time.monotonic() - began < 20
    assert str(failed["cause"]).startswith("not done in its 2 s")
    commands = (process.info["cmdline"] for process in psutil.process_iter(["cmdline"]))
    assert ["sleep", "61.5"] not in commands
    assert part("", 0, tmp_path) == [{"what": "bare", "cause": "no time was left for it"}]


def test_a_part_that_is_done_has_no_row_for_it(tmp_path: Path) -> None:
    (tmp_path / "rows").write_text('{"what": "done"}\n')
    began = time.monotonic()
    assert part("import time; time.sleep(60)", 30, tmp_path) == []
    assert time.monotonic() - began < 20  # what its workers still do to end is not waited for


def test_ratios_are_of_what_was_measured_on_both_sides() -> None:
    rows: list[dict[str, object]] = [
        {"what": "pipeline, 2k", "value": 96.0},
        {"what": "bare, 2k", "value": 100.0},
        {"what": "bare, 32k", "value": 100.0},
        {"what": "pipeline, 32k", "cause": "the engine died"},
    ]
    assert ratio_lines(rows) == [f"  {'pipeline / bare at 2k':<40} 0.960 (wanted: 0.95)"]
    sides = {side for pair in RATIOS.values() for side in pair}
    assert len(ratio_lines([{"what": side, "value": 1.0} for side in sides])) == len(RATIOS)


@pytest.mark.parametrize("sizes", [GPU, CPU])
def test_prompts_fit_the_window_and_shared_contexts_do_not_fit_the_cache(sizes: Sizes) -> None:
    assert max(sizes.contexts.values()) + sizes.answer + 1 <= sizes.window
    assert sizes.n_shared * sizes.shared >= 1.8 * sizes.window


def test_rows_have_what_the_engines_client_reads() -> None:
    async def refuse(_: object) -> pa.Table:
        raise AssertionError("nothing is to be asked again")

    table = table_of([[1, 2], [3]], 4)
    answered = asyncio.run(ask_again(table, table, refuse))
    assert answered.column(SECOND).null_count == 2


def test_the_engine_is_the_one_that_the_product_fits_to_long_prompts() -> None:
    load = ENGINE_LOADS["gpu", True]
    engine = Part("gpu", "", "", 0.0, {}).engine()
    assert engine.max_num_seqs == load.max_num_seqs
    assert engine.engine_kwargs["max_num_batched_tokens"] == load.max_num_batched_tokens


def test_the_8b_model_and_two_engines_fit_80_gb() -> None:
    shape = GPU.shape
    hidden, heads = shape["hidden_size"], shape["num_key_value_heads"] * shape["head_dim"]
    layer = 2 * hidden * (hidden + heads) + 3 * hidden * shape["intermediate_size"]
    layers = shape["num_hidden_layers"]
    weights = 2 * (layers * layer + 2 * hidden * shape["vocab_size"]) / 2**30
    window = GPU.window * 2 * layers * heads * 2 / 2**30
    assert (weights, window) == (pytest.approx(14.96, abs=0.01), 16.25)
    total, steps = 78.0, 3.0  # what an H100 has, and what its steps take beside, in GiB
    assert 0.92 * total - weights - steps > 3 * window
    with_engine, with_judge = GPU.memory
    assert with_engine * total - weights - steps > window
    assert with_judge * total - weights - steps > 8_192 / GPU.window * window
    assert with_engine + with_judge <= 0.9


@pytest.mark.night
def test_the_script_prints_its_table_without_a_gpu() -> None:
    words = [sys.executable, "-m", "tests.bench.engine_table", "--cpu"]
    done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert all(f"  {name} " in done.stdout for name in RATIOS)
