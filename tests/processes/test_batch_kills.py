"""kill -9 of a run that judges in batches, at every step, and a resume: here, from another machine
with a copy of the run's folder, and from one with the folder on S3. No call is paid twice, none is
lost, and every unit is in the output once. Every day one is killed after a submit, at night at
all steps, KILLS times each (`make night KILLS=3`); -s shows the books."""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from memray_eval.results.run_folder import RunFolder
from memray_eval.results.schema import from_table
from tests.build import JUDGE, judging_job, write_lines, write_responses
from tests.conftest import REPOSITORY
from tests.processes.batch_victim import STEPS
from tests.processes.killing import METRICS, ROUNDS, ran, run_folder
from tests.processes.test_cloud import only_run, put
from tests.servers.process import ServerProcess, serving_process
from tests.servers.s3 import S3Server

UNITS, A_BATCH = 40, 25
CALLS = UNITS * len(METRICS)
rounds = pytest.mark.parametrize("round_", range(ROUNDS))
CHEAP = "after the submit"
steps = pytest.mark.parametrize(
    "step",
    [step if step == CHEAP else pytest.param(step, marks=pytest.mark.night) for step in STEPS],
)


def long_responses(folder: Path) -> Path:
    """UNITS responses whose memory is long enough to be cached."""
    path = write_responses(folder, UNITS)
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    for row in rows:
        row["memory"]["diary"] = "I rested. " * 300
    return write_lines(path, rows)


def job_file(
    tmp_path: Path,
    server: ServerProcess,
    out: str,
    data: Path | None = None,
    metrics: tuple[str, ...] = METRICS,
    calls: int = A_BATCH,
    **changes: Any,
) -> Path:
    data = data or write_responses(tmp_path, UNITS)
    batch = {"poll_s": 0.1, "calls": calls, "at_once": 3}
    changes |= {"mode": "batch", "batch": batch}
    config = judging_job(data, Path("unused"), server.base_url, metrics, "local", **changes)
    config = config.model_copy(update={"rows_per_block": 10, "out": out})
    path = tmp_path / "job.yaml"
    path.write_text(config.model_dump_json())
    return path


def victim(config: Path, home: Path, step: str = "-", n: int = 0) -> int:
    """The exit code of a process of its own, with a cache of its own: another machine."""
    home.mkdir(exist_ok=True)
    own = {"PYTHONPATH": str(REPOSITORY), "MEMRAY_EVAL_CACHE": str(home / "cache")}
    words = ("tests.processes.batch_victim", str(config), step, str(n))
    code, text = ran(*words, log=home / "log", env=os.environ | own)
    print(text[-2000:])
    return code


def hold(folder: RunFolder, server: ServerProcess, what: str) -> None:
    """The books: everything once."""
    records = list(from_table(folder.records().to_table()))
    stats = server.batches()
    print(f"\n{what}: {len(records)} units, {stats}", file=sys.__stdout__)
    assert len(records) == len({record.unit_id for record in records}) == UNITS
    scored = [[score.status for score in record.scores] for record in records]
    assert scored == [["scored"] * len(METRICS)] * UNITS
    assert (stats["paid_again"], stats["n_answered"], stats["n_live"]) == (0, CALLS, 0)
    # each call's cost is told in one score, however often it was killed
    assert sum(score.calls or 0 for record in records for score in record.scores) == CALLS


@rounds
@steps
def test_a_kill(tmp_path: Path, step: str, round_: int) -> None:
    with serving_process() as server:
        server.script_batches(seconds=0.3)
        cache = str(tmp_path / "calls.sqlite")
        config = job_file(tmp_path, server, str(tmp_path / "out"), cache=cache)
        assert victim(config, tmp_path, step, round_ + 1) == -9
        assert victim(config, tmp_path) == 0
        hold(run_folder(tmp_path), server, f"{step}, batch {round_ + 1}")


@pytest.mark.night
def test_the_criteria_of_a_benchmark_go_in_one_batch(tmp_path: Path) -> None:
    """Those of 1,000 answers; killed while the results come in, and resumed."""
    criteria, units = 11_846, 1000
    rows = (
        {
            "id": f"r{unit}",
            "query": "Q?",
            "response": "An answer of a few words.",
            "criteria": [
                {"criterion": f"Criterion {number}.", "points": 5}
                for number in range(unit, criteria, units)
            ],
        }
        for unit in range(units)
    )
    data = write_lines(tmp_path / "rows.jsonl", rows)
    cache = str(tmp_path / "calls.sqlite")
    with serving_process() as server:
        server.script_batches(seconds=0.3)
        out = str(tmp_path / "out")
        config = job_file(tmp_path, server, out, data, ("criteria",), 50_000, cache=cache)
        assert victim(config, tmp_path, "while collecting", 1) == -9
        assert victim(config, tmp_path) == 0
        records = list(from_table(run_folder(tmp_path).records().to_table()))
        stats = server.batches()
    print(f"\n{len(records)} units, {stats}", file=sys.__stdout__)
    assert [score.status for record in records for score in record.scores] == ["scored"] * units
    assert sum(score.calls or 0 for record in records for score in record.scores) == criteria
    assert sum(score.parts["criteria"] for record in records for score in record.scores) == criteria
    assert (stats["paid_again"], stats["n_answered"], stats["n_live"]) == (0, criteria, 0)
    assert len(list(Path(run_folder(tmp_path).path).glob("batches/*.calls.jsonl"))) == 1


@pytest.mark.night
@rounds
@steps
def test_a_kill_and_a_copy_of_the_folder_on_another_machine(
    tmp_path: Path, step: str, round_: int
) -> None:
    """Prompts begin with what they share, and so hold a nonce of the session's own secret."""
    table = tmp_path / "judges.yaml"
    model = {"family": "local", "cache_floor_tokens": 1, "takes_batches": True}
    table.write_text(json.dumps({"models": {JUDGE: model}}))
    price = {"input_usd": 1, "output_usd": 2, "cached_input_usd": 0.5}
    shared = {"models": str(table), "price": {JUDGE: price}, "data": long_responses(tmp_path)}
    first, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    with serving_process() as server:
        server.script_batches(seconds=0.3)
        config = job_file(tmp_path, server, str(first / "out"), cache="auto", **shared)
        assert victim(config, first, step, round_ + 1) == -9
        shutil.copytree(first / "out", elsewhere / "out")
        config = job_file(tmp_path, server, str(elsewhere / "out"), cache="auto", **shared)
        assert victim(config, elsewhere) == 0
        hold(run_folder(elsewhere), server, f"copied, {step}, batch {round_ + 1}")


@pytest.mark.night
@rounds
@pytest.mark.parametrize("step", STEPS)
def test_a_kill_and_another_machine(
    tmp_path: Path, open_s3: S3Server, step: str, round_: int
) -> None:
    out = f"s3://bucket/batches/{step.replace(' ', '-')}-{round_}"
    with serving_process() as server:
        server.script_batches(seconds=0.3)
        config = job_file(tmp_path, server, f"{out}/results", cache="auto")
        put(f"{out}/here", b"")
        first, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
        assert victim(config, first, step, round_ + 1) == -9
        server.script_batches(seconds=0.3)
        assert victim(config, elsewhere) == 0
        hold(only_run(out), server, f"S3, {step}, batch {round_ + 1}")
