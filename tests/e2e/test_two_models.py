"""Two models' engines side by side in one run; on demand, as it starts two engines of its own."""

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import yaml

from memray_eval.models.embedded_model import resolve_model
from memray_eval.results.run_folder import RunFolder
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.night
N = 6


def engines_below(parent: int) -> int:
    """How many vLLM engines a process has started that are up now. What one of them starts has its
    name at first."""
    try:
        children = psutil.Process(parent).children(recursive=True)
        engines = {child.pid for child in children if "EngineCore" in " ".join(child.cmdline())}
        return sum(child.pid in engines and child.ppid() not in engines for child in children)
    except psutil.Error:  # one of them has just ended
        return 0


def test_two_models_are_served_at_the_same_time_and_all_units_are_scored(tmp_path: Path) -> None:
    other = tmp_path / "other-model"
    other.symlink_to(resolve_model("embedded"))
    sampling = {"temperature": 0.0, "max_tokens": 16}
    job = {
        "dataset": str(REPOSITORY / "dataset" / "samples"),
        "candidates": [
            {"name": "one", "model": "embedded", "sampling": sampling},
            {"name": "other", "model": str(other), "sampling": sampling},
        ],
        "metrics": ["completeness_score", "memory_utilization"],
        "judge": "rules",
        "engine": {"kv_cache_gib": 1, "max_model_len": 2048},
        "engines": {str(other): {"max_num_seqs": 4}},
        "cluster": {"num_cpus": 4, "models_at_once": 2},
        "limit": N,
        "out": str(tmp_path / "out"),
    }
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(job))
    most = 0
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "memray_eval", "run", str(path)], stdout=log, stderr=log
        )
        while process.poll() is None:
            most = max(most, engines_below(process.pid))
            time.sleep(0.5)
    assert process.returncode == 0, (tmp_path / "log").read_text()[-3000:]
    assert most == 2, "the engines were not up together"
    (folder,) = (tmp_path / "out").iterdir()
    records = list(RunFolder(str(folder)).each())
    assert {(record.candidate.name, record.sample.id) for record in records} == {
        (name, record.sample.id) for name in ("one", "other") for record in records
    }
    assert len(records) == 2 * N
    assert all(score.status == "scored" for record in records for score in record.scores)
