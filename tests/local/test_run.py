"""Whole runs in this process, a real HTTP server in place of the model and of the embedding
provider."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from memray_eval.config.schema import RunConfig
from memray_eval.errors import ConfigError, DataError, EmbeddingError
from memray_eval.execution.runs import RunResult
from memray_eval.report.console import render
from memray_eval.results.run_folder import RunFolder
from memray_eval.results.schema import RECORD_SCHEMA
from memray_eval.types import Record
from tests.build import Job, UntilWritten, echo_memory, finish, served
from tests.conftest import shipped_samples
from tests.servers.provider import Fault, serving

ANSWER = (
    "Rest more. You sleep 4.5 hours, and your mild anemia matters. Drink water. Your age of 34 "
    "matters here."
)


def records(finished: RunResult) -> list[Record]:
    return list(finished.folder.each())


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    """One run of the whole dataset that several tests look at. The last answer comes when another
    is written: the stages must overlap."""
    out = tmp_path_factory.mktemp("results")
    last = UntilWritten(shipped_samples()[-1].query, out)
    with serving(echo_memory, ready=last) as server:
        config = {
            "dataset": str(Path(__file__).parents[2] / "dataset" / "samples"),
            "candidates": [served(server)],
            "embedding": {"model": "openai/hashed", "base_url": server.base_url},
            "server": {"max_in_flight": 2},
            "judge": "rules",
            "out": str(out),
        }
        done = finish(RunConfig.model_validate(config))
        assert len(server.requests) == 120
        assert last.saw, "no answer was written before the last one came"
        return done


def test_every_unit_goes_through_every_stage_once_into_one_file(finished: RunResult) -> None:
    written = records(finished)
    assert len(written) == len({record.unit_id for record in written}) == 120
    assert {record.sample.id for record in written} == {sample.id for sample in shipped_samples()}
    stages = finished.folder.read_manifest()["stages"]
    assert {stage["rows"] for stage in stages.values()} == {120}
    (file,) = Path(finished.folder.path).glob("records/*")  # nothing pending
    assert pq.read_schema(file).equals(RECORD_SCHEMA)
    assert finished.exit_code == 0
    for record in written:
        response = record.response
        assert response is not None
        assert (response.finish_reason, response.prompt_tokens) == ("stop", 10)
        assert 0 < (response.ttft_s or 0) <= (response.duration_s or 0)


def test_micro_figures_equal_a_recomputation_from_the_records(finished: RunResult) -> None:
    tp = fp = fn = 0
    for record in records(finished):
        by_name = {score.metric: score for score in record.scores}
        cited = set(json.loads(by_name["memory_utilization"].judgment or "")["cited_keys"])
        required, forbidden = set(record.sample.required_keys), set(record.sample.forbidden_keys)
        tp += len(cited & required)
        fp += len(cited & forbidden)
        fn += len(required - cited)
    summary = {metric.metric: metric for metric in finished.summary.metrics}
    memory = summary["memory_utilization"].micro
    assert tp > 0
    assert fp > 0
    assert (memory["tp"], memory["fp"], memory["fn"]) == (tp, fp, fn)
    precision, recall = tp / (tp + fp), tp / (tp + fn)
    assert memory["precision"] == pytest.approx(precision)
    assert memory["recall"] == pytest.approx(recall)
    assert memory["f1"] == pytest.approx(2 * precision * recall / (precision + recall))
    scored = {name for name, metric in summary.items() if metric.n_scored}
    assert scored == {"memory_utilization", "relevance"}
    (note,) = [note for note in finished.summary.notes if note.startswith("not scored: ")]
    assert all(name in note for name in summary.keys() - scored)


def test_the_folder_tells_the_whole_run(finished: RunResult) -> None:
    folder = Path(finished.folder.path)
    manifest = finished.folder.read_manifest()
    assert manifest["status"] == "finished"
    assert manifest["dataset"]["n_samples"] == 120
    assert manifest["judges"]["relevance"] == "embeddings openai/hashed"
    assert manifest["judged_by"]["memory_utilization/served"] == {"rules+openai/hashed": 120}
    assert manifest["versions"]["ray"]
    assert RunFolder(str(folder)).read_summary() == finished.summary
    assert (folder / "summary.txt").read_text() == render(finished.summary)
    assert not list(folder.rglob("*pending*"))


def test_no_key_reaches_the_run_folder(job: Job) -> None:
    with serving(lambda body: ANSWER) as server:
        candidates = [served(server, api_key_env="MY_TEST_KEY")]
        done = finish(job(server, candidates=candidates, limit=3))
    files = [path for path in Path(done.folder.path).rglob("*") if path.is_file()]
    assert done.summary.n_failed_units == 0
    assert not [path for path in files if b"test-key" in path.read_bytes()]


def test_a_failed_call_is_a_row_with_its_error_and_spoils_no_mean(job: Job) -> None:
    queries: list[str] = []

    def reply(body: dict[str, Any]) -> str | Fault:
        queries.append(body["messages"][-1]["content"])
        return Fault(400) if queries[-1] == queries[0] else ANSWER

    with serving(reply) as server:
        done = finish(job(server, limit=10))
    failed = [record for record in records(done) if record.is_failed]
    assert [record.sample.query for record in failed] == queries[:1]
    assert failed[0].response is not None
    error = "GenerationError: the provider answered 400 (code 400, type scripted)"
    assert str(failed[0].response.error).startswith(error)
    assert [(cause.n_units, cause.cause) for cause in done.summary.causes] == [(1, error)]
    assert {score.status for score in failed[0].scores} == {"error"}
    relevance = next(metric for metric in done.summary.metrics if metric.metric == "relevance")
    expected = (10, 9, 1, 0.9)
    assert (relevance.n, relevance.n_scored, relevance.n_failed, relevance.coverage) == expected
    assert (relevance.min or 0) > 0
    assert done.exit_code == 1
    assert "1 failed" in render(done.summary)


def test_candidates_are_asked_side_by_side_with_their_own_sampling(job: Job) -> None:
    with serving(lambda body: ANSWER) as server:
        sampling = {"max_tokens": 9, "seed": 4, "stop": ["END"]}
        candidates = [
            served(server, f"t{temperature}", sampling=sampling | {"temperature": temperature})
            for temperature in (0.0, 1.5)
        ]
        done = finish(job(server, candidates=candidates, limit=5))
    assert len({record.unit_id for record in records(done)}) == 10
    assert sorted(request["temperature"] for request in server.requests) == [0.0] * 5 + [1.5] * 5
    sent = {(body["max_tokens"], body["seed"], *body["stop"]) for body in server.requests}
    assert sent == {(9, 4, "END")}
    assert [candidate.n for candidate in done.summary.candidates] == [5, 5]
    assert "- t1.5" in render(done.summary)


def test_invalid_samples_stop_a_run_before_it_writes_anything(job: Job, tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text('{"id": "a", "query": "q", "memory": {"x": "1"}}\n{"id": "b"}\n')
    with serving(lambda body: ANSWER) as server:
        why = r"1 invalid samples, nothing was run:\n.*line 2: sample b: query: missing"
        with pytest.raises(DataError, match=why):
            finish(job(server, dataset=str(path)))
        assert not (tmp_path / "results").exists()
        assert not server.requests
        done = finish(job(server, dataset=str(path), skip_invalid=True))
    assert (done.summary.n_samples, done.summary.n_invalid) == (1, 1)
    assert "1 invalid ones skipped" in render(done.summary)
    problem = json.loads((Path(done.folder.path) / "problems.jsonl").read_text())
    assert (problem["sample_id"], problem["field"]) == ("b", "query")


def test_an_embedding_model_that_cannot_load_ends_the_run_with_its_reason(
    job: Job, tmp_path: Path
) -> None:
    is_told = pytest.raises(EmbeddingError, match="cannot load the embedding model")
    with serving(lambda body: ANSWER) as server, is_told:
        finish(job(server, embedding={"model": f"local:{tmp_path}"}, limit=2))
    (folder,) = (tmp_path / "results").iterdir()
    assert json.loads((folder / "manifest.json").read_text())["status"] == "failed"


def test_a_key_that_is_not_set_is_told_before_anything_runs(job: Job) -> None:
    candidate = {"name": "k", "model": "m", "backend": "openai", "api_key_env": "NOT_SET_ANYWHERE"}
    is_told = pytest.raises(ConfigError, match="NOT_SET_ANYWHERE")
    with serving(lambda body: ANSWER) as server, is_told:
        finish(job(server, candidates=[candidate], limit=2))
