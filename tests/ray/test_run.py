"""Whole runs on Ray, a real HTTP server in place of the model and of the embedding provider: what
Ray is to do, and that the figures are those of a run in one process."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import ray

from memray_eval.config.sections import Budget
from memray_eval.errors import GenerationError, ResourceError
from memray_eval.execution.ray import engine
from memray_eval.execution.runs import RunResult
from memray_eval.results.schema import from_table
from memray_eval.types import SESSION, Record
from tests.build import (
    JUDGE,
    Job,
    UntilWritten,
    echo_memory,
    embedded_job,
    finish,
    judging_job,
    write_lines,
    write_responses,
)
from tests.conftest import shipped_samples
from tests.servers.batches import serving_batches
from tests.servers.judgments import reply_to
from tests.servers.process import serving_process
from tests.servers.provider import serving
from tests.servers.refusals import RefusingServer

ANSWER = "Rest more. You sleep 4.5 hours, and your mild anemia matters. Drink water."
night = pytest.mark.night


def records(done: RunResult) -> list[Record]:
    return list(from_table(done.folder.records().to_table()))


def scores(done: RunResult) -> dict[str, Any]:
    """The scores of every unit, without how long they took."""
    return {
        record.unit_id: [
            score.model_dump(exclude={"latency_s"})
            for score in sorted(record.scores, key=lambda score: score.metric)
        ]
        for record in records(done)
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


@night
def test_a_combined_json_flows_too(job: Job, tmp_path: Path) -> None:
    raws = [sample.model_dump(mode="json", exclude={"suite"}) for sample in shipped_samples()]
    (tmp_path / "data.json").write_text(json.dumps(raws))
    last = UntilWritten(shipped_samples()[-1].query, tmp_path / "results")
    # Judges that leave less than a CPU, as an engine does on two: spreading the rows must not want
    # a whole one.
    room = {"judging": {"actors": 1, "cpus": 1.2}, "server": {"max_in_flight": 3}}
    with serving(lambda body: ANSWER, ready=last) as server:
        done = finish(job(server, dataset=str(tmp_path / "data.json"), **room))
    assert done.summary.n_units == 120
    assert last.saw, "no answer was written before the last one came"


def test_a_plan_that_would_hang_is_refused(job: Job, tmp_path: Path) -> None:
    with serving(lambda body: ANSWER) as server:
        judge = {"judge": "lab/m", "servers": {"lab": {"url": server.base_url}}}
        with pytest.raises(ResourceError, match=r"needs 50\.54 CPUs"):
            finish(job(server, judging={"actors": 50, "cpus": 1.0}, **judge))
    assert not (tmp_path / "results").exists()


@night
def test_a_pipeline_that_stands_still_ends_with_what_to_do(job: Job) -> None:
    keys = {"metrics": ["memory_utilization"], "cluster": {"no_progress_timeout_s": 20}}
    with serving_process(latency_s=60) as server, pytest.raises(GenerationError) as raised:
        finish(job(server, limit=1, **keys))
    message = str(raised.value)
    assert "nothing moved in the pipeline for m for 20 s" in message
    assert "still at work: MapBatches(" in message
    assert "cluster.no_progress_timeout_s" in message


@night
def test_turns_of_sessions_are_those_of_a_run_in_one_process(job: Job, tmp_path: Path) -> None:
    def answer(body: dict[str, Any]) -> str:
        return f"Answer after {len(body['messages'])} messages to {body['messages'][-1]['content']}"

    def turns(done: RunResult) -> dict[str, Any]:
        return {
            record.unit_id: (record.sample, record.response and record.response.text)
            for record in records(done)
        }

    rows = [{"id": f"s{n}", "turns": [f"{k} of {n}" for k in range(4)]} for n in range(40)]
    dataset = str(write_lines(tmp_path / "sessions.jsonl", rows))
    keys = {"suite": "chat", "dataset": dataset, "metrics": ["length_appropriateness"]}
    with serving(answer, latency_s=0.05) as server:
        on_ray = finish(job(server, executor="ray", rows_per_block=8, **keys))
        n_requests = len(server.requests)
        local = finish(job(server, executor="local", **keys))
    assert (on_ray.exit_code, on_ray.n_missing, n_requests) == (0, 0, 160)
    assert turns(on_ray) == turns(local)
    assert on_ray.summary.metrics == local.summary.metrics
    stages = on_ray.folder.read_manifest()["stages"]
    assert {stage["rows"] for stage in stages.values()} == {160, 0}


REFUSED = ("max_tokens", "temperature", "top_p", "seed", "stop", "top_k")


@night
def test_a_parameter_is_refused_once_over_all_actors(job: Job) -> None:
    """Two actors ask the candidate and two the judge, in blocks of one row: what one learns of a
    model's parameters all others know."""
    script, judge = RefusingServer("openai", REFUSED, reply_to), RefusingServer("vllm", REFUSED)
    with serving(script, 0.05) as server, serving(judge, 0.05) as judging:
        urls, stop = {"lab": server.base_url, "other": judging.base_url}, ["END"]
        candidate = {"name": "c", "model": "lab/o9", "extra": {"top_k": 5}}
        config = job(
            server,
            executor="ray",
            servers={name: {"url": url} for name, url in urls.items()},
            candidates=[candidate | {"sampling": {"stop": stop}}],
            server={"actors": 2},
            metrics=["empathy", "politeness"],
            judge="other/o9",
            judging={"actors": 2, "parameters": {"top_k": 5, "top_p": 0.9, "stop": stop}},
            limit=16,
        )
        done = finish(config)
    assert (done.exit_code, done.summary.n_failed_units) == (0, 0)
    assert script.refusals == judge.refusals == dict.fromkeys(REFUSED, 1)
    assert len(done.folder.read_manifest()["parameters_left_out"]) == 2


@night
@pytest.mark.parametrize("generates", [False, True])
def test_the_driver_sends_and_fetches_batches_and_actors_find_the_verdicts(
    job: Job, tmp_path: Path, generates: bool
) -> None:
    """Of responses that exist, and of those that are generated first."""
    metrics, units = ("helpfulness", "safety"), 5
    price = {JUDGE: {"input_usd": 2.0, "output_usd": 8.0, "batch_factor": 0.5}}
    batches = {"mode": "batch", "batch": {"poll_s": 0.1}, "price": price}
    with serving_batches(reply_to) as apis:
        if generates:
            keys = {"metrics": metrics, "judge": JUDGE, "judging": batches}
            config = job(apis.provider, executor="ray", limit=units, **keys)
        else:
            data = write_responses(tmp_path, units)
            config = judging_job(data, tmp_path, apis.provider.base_url, metrics, **batches)
        done = finish(config.model_copy(update={"budget": Budget(usd=5.0)}))
        stats = apis.stats()
    assert (done.exit_code, done.summary.n_units) == (0, units)
    n_live = units if generates else 0  # the candidate's
    assert (stats["n_calls"], stats["n_live"], stats["paid_again"]) == (2 * units, n_live, 0)
    assert done.summary.cost_usd == pytest.approx(stats["usd"])
    assert sum(score.calls or 0 for of in records(done) for score in of.scores) == 2 * units
    if generates:
        assert done.folder.read_manifest()["phases"]["order"] == "apart"


class NamedEngine:
    """In vLLM's place: answers with its actor's id, after a moment."""

    def __init__(self, context: Any, model: str, kwargs: Mapping[str, Any]) -> None:
        self._name = ray.get_runtime_context().get_actor_id()

    async def answer(self, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        await asyncio.sleep(0.1 * len(rows))
        answer = {"generated_text": self._name, "generated_tokens": [1], "finish_reason": "stop"}
        return [answer | {"num_input_tokens": 3, "num_cached_tokens": 0}] * len(rows)


ON_CONTEXTS = [
    {
        "id": f"{context}-{question}",
        "query": f"What is fact {question}?",
        "context": f"Text {context}. " + "Nothing else. " * 40,
        "answers": ["x"],
    }
    for question in range(12)
    for context in range(8)
]
IN_SESSIONS = [{"id": f"{n}", "turns": [f"{k} of {n}" for k in range(4)]} for n in range(24)]


@night
@pytest.mark.parametrize(
    ("rows", "suite", "metric", "n_groups"),
    [
        (ON_CONTEXTS, "longbench", "rule_score", 8),
        (IN_SESSIONS, "chat", "length_appropriateness", 24),
    ],
    ids=["questions on a context", "turns of a session"],
)
def test_of_two_engines_of_one_model_one_answers_all(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    job: Job,
    rows: Sequence[Mapping[str, Any]],
    suite: str,
    metric: str,
    n_groups: int,
) -> None:
    monkeypatch.setattr(engine, "VllmEngine", NamedEngine)
    config = embedded_job(
        tmp_path / "out",
        dataset=str(write_lines(tmp_path / "data.jsonl", rows)),
        candidates=[{"name": "one", "model": "embedded", "sampling": {"max_tokens": 8}}],
        judge="rules",
        engine={"replicas": 2, "cpus": 0.2, "batch_size": 4, "concurrent_batches": 1},
        suite=suite,
        metrics=[metric],
    )
    engines: dict[str, set[str]] = {}
    for record in finish(config).folder.each():
        assert record.response is not None
        assert record.response.error is None
        first = str(record.sample.metadata.get(SESSION, record.sample.id)).partition("-")[0]
        engines.setdefault(first, set()).add(record.response.text)
    assert len(engines) == n_groups
    assert {len(names) for names in engines.values()} == {1}
    assert len(set.union(*engines.values())) == 2  # and both had work
