"""The quickstart on a GPU. Skipped, and said so, where there is none."""

import glob
from pathlib import Path

import pytest

from memray_eval.config.loading import load_config
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.skipif(not glob.glob("/dev/nvidia[0-9]*"), reason="no GPU on this machine")


def test_the_quickstart_runs_on_a_gpu(tmp_path: Path) -> None:
    from memray_eval.execution.runs import run

    config = load_config(
        REPOSITORY / "jobs" / "quickstart.yaml", {"out": str(tmp_path)}, ["engine.device=gpu"]
    )
    finished = run(config, say=print, quiet=True)
    assert (finished.summary.n_units, finished.summary.n_failed_units) == (20, 0)
