"""What a row costs by its width: CPU seconds of scoring three rows, over those of three narrow
ones, as columns, keys of memory, turns and metrics double. Linear is a ratio of about 2.

    python -m tests.bench.wide_inputs [--doublings 3] [--largest 100000]
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.build import write_lines

ROWS, LIMIT_S = 3, 600
ROW = {"query": "What?", "response": "Yes."}
OWN = "def m{0}(sample, response):\n    return 1.0\n"


def csv_columns(folder: Path, n: int) -> list[str]:
    names = ["id", *ROW, *(f"x{number}" for number in range(n))]
    rows = [",".join([f"r{row}", *ROW.values(), *["1"] * n]) for row in range(ROWS)]
    (path := folder / "columns.csv").write_text("\n".join([",".join(names), *rows]) + "\n")
    return [str(path)]


def json_columns(folder: Path, n: int) -> list[str]:
    return _rows(folder, {f"x{number}": number for number in range(n)})


def memory_keys(folder: Path, n: int) -> list[str]:
    return _rows(folder, {"memory": {f"key_{number}": f"value {number}" for number in range(n)}})


def turns(folder: Path, n: int) -> list[str]:
    roles = ("user", "assistant")
    messages = [{"role": roles[k % 2], "content": f"Line {k}."} for k in range(2 * (n // 2))]
    rows = [{"id": f"r{row}", "messages": messages} for row in range(ROWS)]
    return [str(write_lines(folder / "turns.jsonl", rows))]


def metrics(folder: Path, n: int) -> list[str]:
    (code := folder / "own.py").write_text("\n\n".join(OWN.format(k) for k in range(n)))
    named = [part for k in range(n) for part in ("--metrics", f"{code}:m{k}")]
    return [*_rows(folder, {}), *named]


# With how many the largest is, of `--largest`: a session has at most 5,000 messages, say
KINDS: dict[str, tuple[Callable[[Path, int], list[str]], float]] = {
    "CSV columns": (csv_columns, 1),
    "JSON columns": (json_columns, 1),
    "keys of memory": (memory_keys, 1),
    "turns": (turns, 0.04),
    "metrics": (metrics, 0.001),
}


def _rows(folder: Path, more: dict[str, Any]) -> list[str]:
    rows = [{"id": f"r{row}", **ROW, **more} for row in range(ROWS)]
    return [str(write_lines(folder / "rows.jsonl", rows))]


def cpu_s(make: Callable[[Path, int], list[str]], n: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        arguments = make(Path(folder), n)
        command = [sys.executable, "-m", "memray_eval", "evaluate", *arguments, "--out", folder]
        if "--metrics" not in arguments:
            command += ["--metrics", "length_appropriateness"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, capture_output=True, timeout=LIMIT_S)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--doublings", type=int, default=3)
    parser.add_argument("--largest", type=int, default=100_000)
    options = parser.parse_args()
    for name, (make, share) in KINDS.items():
        narrow, before = cpu_s(make, 2), None
        for power in range(options.doublings, -1, -1):
            n = round(options.largest * share) >> power
            took = max(cpu_s(make, n) - narrow, 1e-9)
            ratio = "" if before is None else f", {took / before:.2f} times the half"
            print(f"{name}: {n:,} in {took:.2f} s of CPU{ratio}", flush=True)
            before = took


if __name__ == "__main__":
    main()
