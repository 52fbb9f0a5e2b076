"""Engines that die while they answer, and pools that grow: the rest is tried by `python -m
tests.bench.engine_kills`, with whole runs, whose cases are tests of the night."""

import os
import signal
import threading
from pathlib import Path

import pytest
import ray

from memray_eval.config.sections import EngineConfig
from memray_eval.execution.plan import fit_engine
from memray_eval.execution.ray.engine import add_engines
from memray_eval.execution.ray.pipeline import set_up_data_context
from memray_eval.execution.ray.placement_groups import (
    EnginePlacement,
    NodeReservation,
    group_of_engine,
)
from tests.bench.engine_kills import CASES, play, problems
from tests.build import wait_until
from tests.clusters.conftest import Fakes, Nodes
from tests.clusters.fake_engine import prompt_rows, read_asked, read_starts
from tests.clusters.observing import groups
from tests.conftest import HANG_S

pytestmark = pytest.mark.night

ROWS, BATCH, AT_ONCE = 40, 2, 2


def test_a_second_engine_comes_and_takes_what_the_first_leaves_when_it_dies(
    nodes: Nodes, tmp_path: Path, fakes: Fakes
) -> None:
    job = {"replicas": {"min": 1, "max": 2}, "device": "gpu", "cpus": 0.1, "batch_size": BATCH}
    config = EngineConfig.model_validate(job | {"concurrent_batches": AT_ONCE})
    config = fit_engine(config, 1.0, "gpu")
    fakes(row_s=0.2, load_s=0.1, answers_from=2)
    set_up_data_context(no_progress_timeout_s=HANG_S)

    def kill_first() -> None:
        wait_until(lambda: len(read_starts(tmp_path)) >= 2, "no second one comes by itself")
        os.kill(read_starts(tmp_path)[0].pid, signal.SIGKILL)

    threading.Thread(target=kill_first, daemon=True).start()
    with EnginePlacement(group_of_engine(config, "gpu"), NodeReservation()) as placement:
        prompts = ray.data.from_items(prompt_rows(ROWS), override_num_blocks=ROWS // BATCH)
        answered = add_engines(prompts, config, "embedded", "gpu", placement)
        assert len(list(answered.iter_rows())) == ROWS
    assert len(read_starts(tmp_path)) in (2, 3), "the dead one comes up again, if there is time"
    again = len(read_asked(tmp_path)) - ROWS
    assert len(set(read_asked(tmp_path))) == ROWS
    assert 0 <= again <= BATCH * AT_ONCE, "what it worked on"
    assert groups() == []


@pytest.mark.parametrize("name", list(CASES))
def test_a_case_of_the_table(name: str) -> None:
    played = play(name)
    print(played.said)
    assert problems(CASES[name], played) == []
