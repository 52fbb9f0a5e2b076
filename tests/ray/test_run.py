"""Whole runs on Ray, a real HTTP server in place of the model and of the embedding provider: what
Ray is to do, and that the figures are those of a run in one process."""

import json
from pathlib import Path
from typing import Any

import pytest

from memray_eval.errors import GenerationError, ResourceError
from memray_eval.execution.runs import RunResult
from memray_eval.results.schema import from_table
from tests.build import Job, UntilWritten, echo_memory, finish
from tests.conftest import shipped_samples
from tests.servers.process import serving_process
from tests.servers.provider import serving

ANSWER = "Rest more. You sleep 4.5 hours, and your mild anemia matters. Drink water."


def scores(done: RunResult) -> dict[str, Any]:
    """The scores of every unit, without how long they took."""
    return {
        record.unit_id: [
            score.model_dump(exclude={"latency_s"})
            for score in sorted(record.scores, key=lambda score: score.metric)
        ]
        for record in from_table(done.folder.records().to_table())
    }


def test_figures_are_those_of_a_run_in_one_process(job: Job, tmp_path: Path) -> None:
    last = UntilWritten(shipped_samples()[-1].query, tmp_path / "results")
    with serving(echo_memory, ready=last) as server:
        on_ray = finish(job(server, server={"max_in_flight": 2}))
        assert last.saw, "no answer was written before the last one came"
        local = finish(job(server, server={"max_in_flight": 2}, executor="local"))
    assert on_ray.exit_code == local.exit_code == 0
    assert len(scores(on_ray)) == 120
    assert scores(on_ray) == scores(local)
    assert on_ray.summary.metrics == local.summary.metrics
    for done in (on_ray, local):
        stages = done.folder.read_manifest()["stages"]
        assert stages["write"]["rows"] == stages["generate"]["rows"] == 120
        assert len(list(Path(done.folder.path).glob("records/*"))) == 1  # nothing pending


@pytest.mark.night
def test_a_combined_json_flows_too(job: Job, tmp_path: Path) -> None:
    raws = [sample.model_dump(mode="json", exclude={"suite"}) for sample in shipped_samples()]
    (tmp_path / "data.json").write_text(json.dumps(raws))
    last = UntilWritten(shipped_samples()[-1].query, tmp_path / "results")
    with serving(lambda body: ANSWER, ready=last) as server:
        # Judges that leave less than a CPU, as an engine does on two: spreading the rows must not
        # want a whole one.
        done = finish(
            job(
                server,
                dataset=str(tmp_path / "data.json"),
                judging={"actors": 1, "cpus": 1.2},
                server={"max_in_flight": 3},
            )
        )
    assert done.summary.n_units == 120
    assert last.saw, "no answer was written before the last one came"


def test_a_plan_that_would_hang_is_refused(job: Job, tmp_path: Path) -> None:
    with serving(lambda body: ANSWER) as server:
        judge = {"judge": "lab/m", "servers": {"lab": {"url": server.base_url}}}
        with pytest.raises(ResourceError, match=r"needs 50\.54 CPUs"):
            finish(job(server, judging={"actors": 50, "cpus": 1.0}, **judge))
    assert not (tmp_path / "results").exists()


@pytest.mark.night
def test_a_pipeline_that_stands_still_ends_with_what_to_do(job: Job) -> None:
    with serving_process(latency_s=60) as server, pytest.raises(GenerationError) as raised:
        finish(
            job(
                server,
                limit=1,
                metrics=["memory_utilization"],
                cluster={"no_progress_timeout_s": 20},
            )
        )
    message = str(raised.value)
    assert "nothing moved in the pipeline for m for 20 s" in message
    assert "still at work: MapBatches(" in message
    assert "cluster.no_progress_timeout_s" in message
