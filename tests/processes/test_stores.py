"""What goes wrong around paid calls: a store that cannot be written (a full disk, a file-size
limit) by bytes written, kill -9, two runs at once over one cache. A run ends with a code that is
not 0 and without a traceback, and `resume` finishes it. Most rows are tried at night."""

import contextlib
import os
import resource
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from memray_eval.judges.call_cache import CallCache
from memray_eval.results.run_folder import RunFolder
from memray_eval.results.schema import from_table
from tests.build import judging_job, write_responses
from tests.conftest import HANG_S
from tests.processes.killing import end_after, evaluating, finish, ran, small_disk
from tests.servers.process import ServerProcess, serving_process

METRICS = ("helpfulness", "empathy")


def job(folder: Path, server: ServerProcess, units: int, name: str = "", **judging: Any) -> Path:
    """The file of a job in this process alone, whose calls are remembered in the folder."""
    settings = {"cache": str(folder / "calls.sqlite"), "max_in_flight": 8, "actors": 1} | judging
    data, out = write_responses(folder, units), folder / f"out{name}"
    config = judging_job(data, out, server.base_url, METRICS, "local", **settings)
    path = folder / f"job{name}.yaml"
    path.write_text(config.model_copy(update={"rows_per_block": 10}).model_dump_json())
    return path


def run_of(folder: Path, name: str = "") -> RunFolder | None:
    begun = list((folder / f"out{name}").glob("*/run.yaml"))
    return RunFolder(str(begun[0].parent)) if begun else None


def n_lost(run: RunFolder | None, units: int) -> int:
    """Units without both scores, once."""
    assert run is not None
    records = [
        record.unit_id
        for record in from_table(run.records().to_table())
        if [score.status for score in record.scores] == ["scored"] * len(METRICS)
    ]
    assert len(records) == len(set(records))
    return units - len(records)


# Those that a run ends of; of the folder of temporary files it does not
AT_NIGHT = (
    "cache 32, cache 200, segments 16, folder 48, folder 64, folder 80, all 200, all 460, all 500, "
    "all 600, journal 64, temp 4, any file 16, any file 64, any file 120"
).split(", ")


@pytest.mark.parametrize(
    "full", ["cache 120", *(pytest.param(case, marks=pytest.mark.night) for case in AT_NIGHT)]
)
def test_a_full_store(tmp_path: Path, full: str) -> None:
    """A store without room after so many KB."""
    store, kb = full.rpartition(" ")[0], int(full.split()[-1])
    in_out = store in ("folder", "journal", "all")
    units, disk = 90, tmp_path / ("out" if in_out else "disk")
    judging: dict[str, Any] = {}
    if store in ("cache", "segments", "all"):
        judging = {"cache": f"{disk}/calls.sqlite"}
    if store == "segments":
        judging = {"cache": f"file://{disk}/calls"}
    if store == "journal":
        judging = {"mode": "batch"}
    how: dict[str, Any] = {"log": tmp_path / "log"}
    if store == "any file":
        most = (kb << 10, kb << 10)
        how["preexec_fn"] = partial(resource.setrlimit, resource.RLIMIT_FSIZE, most)
    if store == "temp":
        how["env"] = os.environ | {"TMPDIR": str(disk)}
    with serving_process(latency_s=0.05) as server, small_disk(disk, kb):
        config = job(tmp_path, server, units, **judging)
        code, text = ran("memray_eval", "run", str(config), **how)
        assert "Traceback" not in text, text
        assert bool(code) == (store != "temp"), text[-2000:]
        subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
        run = run_of(tmp_path)
        if code:
            assert run is None or f"memray-eval resume {run.path}" in text
            words = ["resume", run.path] if run is not None else ["run", str(config)]
            again, resumed = ran("memray_eval", *words, log=tmp_path / "log")
            assert again == 0, resumed[-2000:]
        lost, twice = n_lost(run_of(tmp_path), units), server.stats()["paid_again"]
    assert lost == 0
    assert twice <= (8 if store in ("all", "any file") else 0)


@pytest.mark.parametrize("takes_keys", [True, pytest.param(False, marks=pytest.mark.night)])
def test_kill_9(tmp_path: Path, takes_keys: bool) -> None:
    """What was in flight is asked again; the summary says how many, and with Idempotency-Keys none
    is paid twice."""
    units, in_flight = 250, 64
    with serving_process(latency_s=0.3, takes_keys=takes_keys) as server:
        config = job(tmp_path, server, units, max_in_flight=in_flight)
        with evaluating(config) as process:
            end_after(server, 150, process)
        finish(config)
        twice, run = server.stats()["paid_again"], run_of(tmp_path)
    assert run is not None
    repeated = run.read_manifest()["calls"]["repeated"]
    assert n_lost(run, units) == 0
    assert twice <= repeated <= in_flight
    assert not (takes_keys and twice)


def test_two_runs_over_one_cache(tmp_path: Path) -> None:
    units = 250
    with serving_process(latency_s=0.1) as server, contextlib.ExitStack() as stack:
        jobs = [job(tmp_path, server, units, name) for name in ("-a", "-b")]
        both = [stack.enter_context(evaluating(config)) for config in jobs]
        codes = [process.wait(HANG_S) for process in both]
        answered, twice = server.stats()["n_answered"], server.stats()["paid_again"]
    lost = sum(n_lost(run_of(tmp_path, name), units) for name in ("-a", "-b"))
    assert (codes, answered, twice, lost) == ([0, 0], units * len(METRICS), 0, 0)
    cache = CallCache(tmp_path / "calls.sqlite")
    assert len(cache.claim(["another"], "somebody", "run")) == 1
    cache.close()
