"""Two models in turn that take all GPUs each: the second's engines start while judges are still at
work on the first's last responses."""

import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from memray_eval.results.run_folder import RunFolder
from tests.build import finish
from tests.clusters.conftest import Fakes, Nodes, two_models_job
from tests.clusters.fake_engine import read_starts
from tests.clusters.observing import again_and_again, groups
from tests.servers.judgments import judgment_reply
from tests.servers.provider import serving

pytestmark = pytest.mark.night

UNITS = 8
LATENCY_S = 4.0  # of a call; one at a time: the judge is at work for 30 s after the engines


# Ray Data leaves a log file open where two datasets are executed at once
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_engines_of_the_next_model_start_while_the_last_responses_are_judged(
    nodes: Nodes, tmp_path: Path, fakes: Fakes
) -> None:
    fakes()
    started_at, placed_at = list[float](), dict[str, float]()
    held = list[float]()

    def look() -> None:
        n_started = len(read_starts(tmp_path))
        started_at.extend([time.monotonic()] * (n_started - len(started_at)))
        created = [group for group in groups() if group.state == "CREATED" and group.gpus]
        held.append(sum(group.gpus for group in created))
        for group in created:
            placed_at.setdefault(group.id, time.monotonic())

    with serving(judgment_reply, latency_s=LATENCY_S) as server:
        job = two_models_job(
            tmp_path, server, metrics=["empathy"], cluster={"phases": "together"}, limit=UNITS
        )
        with again_and_again(look):
            done = finish(job)
        judged_at = sorted(server.times)
    assert (done.summary.n_units, done.summary.n_failed_units) == (2 * UNITS, 0)
    assert len({record.unit_id for record in RunFolder(done.folder.path).each()}) == 2 * UNITS
    assert len(started_at) == 4
    first, last = judged_at[0], judged_at[UNITS - 1]

    def seconds(moments: Iterable[float]) -> str:
        return ", ".join(f"{moment - first:.1f}" for moment in moments)

    print(
        f"seconds from the first judge call: engines have GPUs {seconds(placed_at.values())}, are "
        f"up {seconds(started_at)}; judge calls {seconds(judged_at)}"
    )
    # Of the first eight calls one at least is the first model's, whatever the order of the others
    assert len(placed_at) == 4
    assert max(placed_at.values()) < last
    assert max(held) == 4  # two engines of two GPUs: never both models'
