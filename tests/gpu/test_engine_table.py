"""The script that prints a GPU's table: a part that fails is a row, and the others go on."""

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.bench.engine_table import RATIOS, row_text, rows_of_part
from tests.conftest import HANG_S, REPOSITORY


def part(code: str, seconds: float, folder: Path) -> list[dict[str, object]]:
    command, rows, log = [sys.executable, "-c", code], folder / "rows", folder / "log"
    return list(rows_of_part("bare", command, time.monotonic() + seconds, rows, log))


def test_a_part_that_fails_keeps_its_rows_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "rows").write_text('{"what": "start, bare", "value": 3.0, "unit": "s"}\n{"wha')
    code = "print('ValidationError: 1 error\\n  Free memory is less', flush=True)\n"
    code += "raise RuntimeError('Engine core initialization failed. See root cause above.')"
    kept, failed = part(code, HANG_S, tmp_path)
    assert kept["value"] == 3.0
    assert row_text(failed).startswith(
        f"  {'bare':<40} FAILED: ended with code 1: ValidationError: 1 error Free memory is less "
    )


def test_a_part_that_takes_too_long_is_ended_with_what_it_started(tmp_path: Path) -> None:
    began = time.monotonic()
    # As Ray's processes: in a session of their own, and with the part's output open
    sleeps = (
        "import subprocess; subprocess.Popen(['sleep', '999.5'], start_new_session=True).wait()"
    )
    (failed,) = part(sleeps, 2.0, tmp_path)
    assert time.monotonic() - began < HANG_S
    assert str(failed["cause"]).startswith("not done in its 2 s")
    commands = (process.info["cmdline"] for process in psutil.process_iter(["cmdline"]))
    assert ["sleep", "999.5"] not in commands
    assert part("", 0, tmp_path) == [{"what": "bare", "cause": "no time was left for it"}]


@pytest.mark.night
def test_the_script_prints_its_table_without_a_gpu() -> None:
    words = [sys.executable, "-m", "tests.bench.engine_table", "--cpu"]
    done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert all(f"  {name} " in done.stdout for name in RATIOS)
