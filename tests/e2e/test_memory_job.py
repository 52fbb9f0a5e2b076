"""The memory job end to end: real vLLM on the CPU, the real embedding model, the command line."""

import json
import time

import pytest

from memray_eval.results.run_folder import RunFolder
from memray_eval.types import Record
from tests.build import run_command
from tests.conftest import REPOSITORY
from tests.e2e.conftest import MAX_TOKENS, TOO_LONG, CommandRun, memory_samples

N_UNITS = 41
EAGER = "Enforce eager set"  # as engines on a CPU are told

SCORED = {"memory_utilization", "relevance"}  # without a judge


@pytest.fixture(scope="session")
def records(memory_run: CommandRun) -> list[Record]:
    return list(RunFolder(str(memory_run.folder)).each())


def test_every_sample_is_answered_and_scored_once(
    memory_run: CommandRun, records: list[Record]
) -> None:
    assert memory_run.code == 0, memory_run.err[-4000:]
    assert len(records) == N_UNITS
    assert {record.sample.id for record in records} == {
        sample.id for sample in memory_samples()
    } | {TOO_LONG}
    answered = [record for record in records if record.sample.id != TOO_LONG]
    for record in answered:
        status = {score.metric: score.status for score in record.scores}
        assert len(status) == len(record.scores) == 12
        for metric, outcome in status.items():
            assert outcome == ("scored" if metric in SCORED else "not_applicable"), metric


def test_responses_are_real_and_measured(records: list[Record]) -> None:
    responses = [
        record.response for record in records if record.response and record.sample.id != TOO_LONG
    ]
    assert len({response.text for response in responses}) > 30
    # One of them or none ends before its 40 tokens: which, differs with what is computed together
    assert {"length"} <= {response.finish_reason for response in responses} <= {"stop", "length"}
    for response in responses:
        assert response.error is None
        assert response.prompt_tokens is not None
        assert response.prompt_tokens > 100
        assert response.output_tokens is not None
        assert 0 < response.output_tokens <= MAX_TOKENS
        assert response.finish_reason == "stop" or response.output_tokens == MAX_TOKENS
        assert 0 < (response.ttft_s or 0) <= (response.duration_s or 0)
        assert time.time() - 3600 < (response.ended_s or 0) < time.time()  # of the wall clock


def test_a_prompt_longer_than_the_window_is_a_row_with_its_error(
    memory_run: CommandRun, records: list[Record]
) -> None:
    (record,) = [record for record in records if record.sample.id == TOO_LONG]
    assert record.response is not None
    assert "the engine refused the prompt" in (record.response.error or "")
    assert record.sample.query.startswith("again and again")
    assert f"1 of {N_UNITS} answers failed:" in memory_run.out


def test_the_summary_is_printed_and_printed_again(memory_run: CommandRun) -> None:
    lines = memory_run.out.splitlines()
    assert lines[0].startswith(f"memory: {N_UNITS} answers of ")
    assert len(lines) <= 40
    assert max(map(len, lines[:-3])) <= 80  # after them come the run's path and commands
    again = run_command(
        "report", f"out/{memory_run.folder.name}", cwd=memory_run.folder.parent.parent
    )
    assert (again.returncode, again.stdout) == (0, memory_run.out)
    full = run_command("report", str(memory_run.folder), "--full", cwd=memory_run.folder)
    assert full.stdout.startswith("=" * 70 + "\nBENCHMARK EVALUATION SUMMARY\n")
    assert full.stdout == (memory_run.folder / "summary.txt").read_text()
    as_json = run_command("report", str(memory_run.folder), "--json", cwd=memory_run.folder)
    summary = json.loads(as_json.stdout)
    assert summary["n_samples"] == N_UNITS
    assert [row["output_tokens_per_s"] > 0 for row in summary["candidates"]] == [True]


def test_the_way_is_told_and_nothing_else(memory_run: CommandRun) -> None:
    assert "memory_utilization: rules (offline estimate" in memory_run.err
    assert f"write {N_UNITS}/{N_UNITS}" in memory_run.err
    for noise in ("Traceback", "WARNING", "ERROR", "sk-not-to-be-used"):
        assert noise not in memory_run.err


def test_what_vllm_warns_of_is_in_the_runs_log(memory_run: CommandRun) -> None:
    """Both of the actor's own process and of the one that vLLM starts; each message once."""
    lines = (memory_run.folder / "log.jsonl").read_text("utf-8").splitlines()
    warned = [
        (entry["logger"], entry["message"])
        for entry in map(json.loads, lines)
        if entry["level"] == "WARNING" and entry["logger"].partition(".")[0] == "vllm"
    ]
    assert len(warned) == len(set(warned))
    assert ("vllm.config.vllm", EAGER) in [(name, text[: len(EAGER)]) for name, text in warned]
    assert any(name == "vllm" and text.startswith("EngineCore (pid ") for name, text in warned)


def test_the_doctor_finds_this_machine_fit(memory_run: CommandRun) -> None:
    done = run_command("doctor", str(REPOSITORY / "jobs" / "memory.yaml"), cwd=memory_run.folder)
    assert done.returncode == 0, done.stdout
    assert "fits this machine" in done.stdout
