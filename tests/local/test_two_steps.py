"""Generate, then evaluate: seed 000's two steps, through the command line."""

import json
from pathlib import Path

import pytest
import yaml

from memray_eval.benchmarks import get_suite
from tests.build import Job
from tests.conftest import REPOSITORY, Call
from tests.servers.provider import serving


def test_responses_are_written_and_then_judged(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Call
) -> None:
    monkeypatch.chdir(tmp_path)
    with serving(lambda body: "Rest more, and ask your doctor.") as server:
        path = tmp_path / "job.yaml"
        path.write_text(yaml.safe_dump(job(server, limit=4).model_dump(mode="json")))
        code, out, _ = cli("generate", str(path), "--json")
        assert code == 0
        folder, responses = map(Path, out.splitlines())
        written = json.loads(responses.read_text())
        assert (written["model"], len(written["results"])) == ("served", 4)
        assert not list(folder.glob("scores*"))
        n_requests = len(server.requests)
        keys = {"model": "openai/hashed", "base_url": server.base_url}
        settings = [f"--set=embedding.{key}={value}" for key, value in keys.items()]
        for source in (folder, responses):
            metrics = ("--metrics", "relevance,memory_utilization", "--judge", "rules")
            code, out, err = cli("evaluate", str(source), *metrics, "--json", *settings)
            assert code == 0
            assert out.splitlines()[0].startswith("memory: 4 answers of served (m)")
            assert "\nrelevance " in out
            assert "generate" not in err
            evaluation = json.loads(Path(err.splitlines()[-1]).read_text())
            assert set(evaluation["results"][0]["scores"]) == {"relevance", "memory_utilization"}
            assert evaluation["summary"]["n_units"] == 4
            assert {
                candidate["candidate"] for candidate in evaluation["summary"]["candidates"]
            } == {"served"}
        assert len(server.requests) == n_requests  # nothing was generated again


def test_a_companion_run_is_evaluated_as_one_and_a_metric_that_applies_to_nothing_ends_with_1(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Call
) -> None:
    monkeypatch.chdir(tmp_path)
    companion = get_suite("companion")
    with serving(lambda body: "That sounds hard. What happened?") as server:
        path = tmp_path / "job.yaml"
        dataset = str(REPOSITORY / "dataset" / "companion")
        keys = {"suite": "companion", "dataset": dataset, "metrics": [], "limit": 6}
        path.write_text(yaml.safe_dump(job(server, **keys).model_dump(mode="json")))
        code, out, _ = cli("generate", str(path), "--json")
        assert code == 0
        folder, responses = map(Path, out.splitlines())
    for source in (folder, responses):
        code, _, err = cli("evaluate", str(source), "--judge", "rules")
        assert (code, "nothing would be scored: overall_quality, " in err) == (2, True)
        code, _, err = cli("evaluate", str(source), "--metrics", "readability_score", "--json")
        assert (code, "Suite companion, that of " in err) == (0, True)
        evaluation = json.loads(Path(err.splitlines()[-1]).read_text())
        assert all(set(row["scores"]) == {"readability_score"} for row in evaluation["results"])
        assert evaluation["summary"]["suite"] == "companion"
        # Six samples, one of each
        assert {row["task"] for row in evaluation["summary"]["tasks"]} == set(companion.tasks)
    named = ("--metrics", "readability_score,exact_match")
    code, _, err = cli("evaluate", str(folder), *named)
    assert code == 1
    why = "(the sample has no answers; --map answers=COLUMN names a column of them)"
    assert f"warning: exact_match applied to none of 6 responses {why}" in err
    assert "more than the tolerance allows" not in err
