"""A long run in miniature, on the local executor: judge calls of which 35 % fail, three kills, and
a disk that is full for a while. -s shows the books. The night's has 2,000 calls; 50,000 take up to
half an hour:

    MEMRAY_EVAL_SOAK=50000 python -m pytest -s -m night tests/processes/test_soak.py
"""

from __future__ import annotations

import os
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil
import pytest

from memray_eval.results.schema import from_table
from tests.bench.judge_throughput import METRICS
from tests.build import judging_job, write_responses
from tests.processes.killing import evaluating, run_folder
from tests.servers.process import ServerProcess, serving_process

pytestmark = pytest.mark.night
CALLS = int(os.environ.get("MEMRAY_EVAL_SOAK", "2000"))
UNITS, IN_FLIGHT = CALLS // len(METRICS), 64
DISK_MB, LEFT_FREE = 64 + CALLS // 1000, 256 * 1024
STORM = (7, 0.10, 0.10, 0.05, 0.05, 0.05)  # seed, 429, 500, hang, reset, malformed
KILLS, FULL = (0.1, 0.2, 0.3), 0.45  # after these shares of the calls
LONGEST_S = max(300.0, CALLS / 10)


class Ending(NamedTuple):
    """A session: its exit code (-9: killed), its memory in MB over the answers so far, and the end
    of its log."""

    code: int
    memory: list[tuple[int, float]]
    log: str


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A disk of its own."""
    folder.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "soak", str(folder)]
    if subprocess.run(mounting, stderr=subprocess.DEVNULL, check=False).returncode:
        pytest.skip("a disk can be mounted by root only")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path) -> Path:
    """A file that leaves LEFT_FREE bytes of the disk."""
    ballast = disk / "ballast"
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, psutil.disk_usage(str(disk)).free - LEFT_FREE)
    return ballast


def session(job: Path, log: Path, server: ServerProcess, until: int, *, kill: bool) -> Ending:
    """Runs the job, or goes on with it, until so many answers: then it is killed, or the disk is
    full until it ends."""
    memory, is_reached, began = list[tuple[int, float]](), False, time.monotonic()
    with evaluating(job, log) as process:
        seen = psutil.Process(process.pid)
        while process.poll() is None:
            assert time.monotonic() - began < LONGEST_S, log.read_text()[-2000:]
            answered = server.stats()["n_answered"]
            with suppress(psutil.Error):
                if held := seen.memory_info().rss:  # none once it has ended
                    memory.append((answered, held / 1e6))
            if answered >= until and not is_reached:
                is_reached = True
                if kill:
                    process.kill()
                else:
                    fill(job.parent)
            time.sleep(0.2)
    return Ending(process.returncode, memory, log.read_text()[-2000:])


def scores_in(disk: Path) -> Counter[str]:
    """How many scores have which status, each unit being there once."""
    records = list(from_table(run_folder(disk).records().to_table()))
    assert len(records) == len({record.unit_id for record in records}) == UNITS
    return Counter(score.status for record in records for score in record.scores)


def slope(memory: list[tuple[int, float]]) -> float:
    """MB of memory a thousand answers, once a session is warm: over its last two thirds."""
    steady = np.array(memory[len(memory) // 3 :])
    return float(np.polyfit(steady[:, 0], steady[:, 1], 1)[0] * 1000)


def test_nothing_is_lost_and_little_is_paid_twice(tmp_path: Path) -> None:
    storm = {"storm": STORM, "hang_s": 10.0, "retry_after_s": 1.0}
    with small_disk(tmp_path / "disk") as disk, serving_process(latency_s=0.1, **storm) as server:
        judging = {"timeout_s": 2.0, "tries": 12, "max_in_flight": IN_FLIGHT}
        out, dataset = disk / "out", write_responses(tmp_path, UNITS)
        config = judging_job(dataset, out, server.base_url, METRICS, "local", **judging)
        job, log = disk / "job.yaml", tmp_path / "log"
        job.write_text(config.model_dump_json())
        paid_again = []
        for share in KILLS:
            killed = session(job, log, server, round(share * CALLS), kill=True)
            assert killed.code == -9, killed.log
            paid_again.append(server.stats()["paid_again"])
        full = session(job, log, server, round(FULL * CALLS), kill=False)
        after_full = server.stats()["n_answered"] - round(FULL * CALLS)
        (disk / "ballast").unlink()
        assert full.code > 0, full.log
        last = session(job, log, server, 2 * CALLS, kill=True)
        assert last.code == 0, last.log
        given_up = scores_in(disk)["error"]  # three malformed verdicts of a call in a row
        again = session(job, log, server, 2 * CALLS, kill=True)
        assert again.code == 0, again.log
        stats, scores = server.stats(), scores_in(disk)
        used_mb = psutil.disk_usage(str(disk)).used / 1e6
    print(
        f"\n{CALLS} calls: {stats['n_requests']} requests, {stats['n_faults']} faults, "
        f"{stats['n_answered']} answers; paid again: {stats['paid_again']}, after each kill "
        f"{paid_again}; {after_full} answers came while the disk was full; {dict(scores)}, "
        f"{given_up} errors in the session before; "
        f"{slope(last.memory):+.2f} MB a thousand answers to {last.memory[-1][1]:.0f} MB; "
        f"{used_mb:.0f} MB on disk"
    )
    assert scores.total() == CALLS
    assert not scores["error"]
    assert stats["paid_again"] <= len(KILLS) * IN_FLIGHT + after_full + 3 * given_up
    if CALLS >= 20_000:  # before, a session is not warm
        assert slope(last.memory) < 2.0
