"""Whole runs that judge in batches: what the records, the summary and the messages say; detaching
and resuming; budgets; a model that takes none."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memray_eval.config.schema import RunConfig
from memray_eval.config.sections import Budget
from memray_eval.errors import BatchesUnderWay, ConfigError, Stopped
from memray_eval.execution.runs import resume, run
from memray_eval.judges.batches.journal import BatchJournal
from memray_eval.results.run_folder import RunFolder
from memray_eval.types import Record
from tests.build import JUDGE, Job, judging_job, write_responses
from tests.servers.batches import BatchApis, Course, serving_batches
from tests.servers.judgments import judgment_reply
from tests.servers.refusals import RefusingServer

METRICS = ("helpfulness", "safety")
UNITS = 6
CALLS = UNITS * len(METRICS)
PRICE = {JUDGE: {"input_usd": 2.0, "output_usd": 8.0, "batch_factor": 0.5}}


@pytest.fixture
def apis() -> Iterator[BatchApis]:
    with serving_batches(judgment_reply) as apis:
        yield apis


@pytest.fixture
def configured(tmp_path: Path, apis: BatchApis) -> Job:
    data = write_responses(tmp_path, UNITS)

    def configure(
        metrics: tuple[str, ...] = METRICS, usd: float | None = None, **judging: Any
    ) -> RunConfig:
        batch = {"poll_s": 0.05} | judging.pop("batch", {})
        judging = {"mode": "batch", "price": PRICE, "batch": batch} | judging
        config = judging_job(data, tmp_path, apis.provider.base_url, metrics, "local", **judging)
        return config.model_copy(update={"out": str(tmp_path / "out"), "budget": Budget(usd=usd)})

    return configure


def records_of(folder: RunFolder) -> list[Record]:
    return sorted(folder.each(), key=lambda record: record.sample.id)


def only_run(tmp_path: Path) -> str:
    (folder,) = (tmp_path / "out").iterdir()
    return str(folder)


def test_a_run_in_batches_scores_as_a_live_one_at_half_the_price(
    tmp_path: Path, apis: BatchApis, configured: Job
) -> None:
    batched = run(configured(), print, quiet=True)
    stats = apis.stats()
    assert (stats["n_calls"], stats["n_live"], stats["n_batches"]) == (CALLS, 0, 1)
    live_config = configured(mode="live", cache=str(tmp_path / "live.sqlite"))
    live = run(live_config, print, quiet=True)
    ours, theirs = records_of(batched.folder), records_of(live.folder)
    (entry,) = BatchJournal(batched.folder).load()
    assert (entry.state, entry.outcomes) == ("collected", {"verdict": CALLS})
    calls = list(BatchJournal(batched.folder).read_calls(entry.tag))
    assert {call.unit for call in calls} == {record.unit_id for record in ours}
    for our, other in zip(ours, theirs, strict=True):
        verdicts = [(score.value, score.served_model) for score in our.scores]
        assert verdicts == [(score.value, score.served_model) for score in other.scores]
        assert all(model for _, model in verdicts)
        assert [(score.calls, score.cached) for score in our.scores] == [(1, False)] * 2
    cost = sum(score.cost_usd for record in ours for score in record.scores)
    assert cost == pytest.approx(stats["usd"])
    assert batched.summary.cost_usd == pytest.approx(stats["usd"])
    assert live.summary.cost_usd == pytest.approx(2 * stats["usd"])
    assert any("in batches" in note for note in batched.summary.notes), batched.summary.notes


def test_what_a_batch_refuses_is_left_out_of_the_live_calls_that_follow(
    apis: BatchApis, configured: Job
) -> None:
    script = RefusingServer("openai", ("temperature",))
    apis.provider.reply = script
    done = run(configured(), print, quiet=True)
    assert done.summary.n_failed_units == 0
    assert script.refusals == {"temperature": CALLS}  # by the one batch
    live = apis.provider.requests
    assert len(live) == CALLS
    assert not any("temperature" in body for body in live)
    (left_out,) = done.folder.read_manifest()["parameters_left_out"].values()
    assert left_out == {"temperature": ""}


def test_detach_ends_after_submitting_and_resume_goes_on(
    tmp_path: Path, apis: BatchApis, configured: Job
) -> None:
    config = configured(batch={"calls": 4, "at_once": 2})
    with pytest.raises(BatchesUnderWay) as ended:
        run(config, print, quiet=True, detach=True)
    assert "2, with 8 judge calls" in str(ended.value)
    assert "resume" in ended.value.__notes__[0]
    assert ended.value.exit_code == 4
    assert apis.stats()["n_answered"] == 0
    finished = resume(only_run(tmp_path), print, quiet=True)
    assert (finished.exit_code, finished.summary.n_units) == (0, UNITS)
    stats = apis.stats()
    assert (stats["n_batches"], stats["n_calls"], stats["n_live"]) == (3, CALLS, 0)


def test_a_detached_run_without_batches_is_refused(configured: Job) -> None:
    with pytest.raises(ConfigError, match="under way in batches"):
        run(configured(mode="live"), print, detach=True)


def test_the_verdicts_of_another_machine_are_fetched_again_and_not_paid_again(
    tmp_path: Path, apis: BatchApis, configured: Job
) -> None:
    folder = run(configured(), print, quiet=True).folder
    folder.delete_parts(folder.parts())  # killed before a record was written
    elsewhere = [f"judging.cache={tmp_path / 'elsewhere.sqlite'}"]
    finished = resume(folder.path, print, quiet=True, settings=elsewhere)
    assert finished.summary.n_units == UNITS
    stats = apis.stats()
    assert (stats["n_calls"], stats["n_live"], stats["n_batches"]) == (CALLS, 0, 1)
    assert finished.summary.cost_usd == pytest.approx(apis.usd)
    assert any("fetched again" in line for line in events(folder))


def test_the_budget_holds_for_batches(apis: BatchApis, configured: Job) -> None:
    # a call may cost 1.2 times its prompt and 2,048 tokens of output: $0.0082 and some more
    finished = run(configured(usd=0.05), print, quiet=True)
    spent = finished.summary.cost_usd or 0.0
    assert spent == pytest.approx(apis.usd)
    assert spent <= 0.05
    assert apis.stats()["n_calls"] + apis.stats()["n_live"] == CALLS
    assert max(apis.stats()["sizes"]) < CALLS  # cut to what fits


def test_no_money_for_a_single_call_stops_the_run(apis: BatchApis, configured: Job) -> None:
    with pytest.raises(Exception, match="does not fit the budget"):
        run(configured(usd=0.001), print, quiet=True)
    assert apis.stats()["n_answered"] == 0


def test_without_a_memory_batches_keep_their_own(apis: BatchApis, configured: Job) -> None:
    finished = run(configured(cache="off"), print, quiet=True)
    assert finished.summary.n_units == UNITS
    assert (apis.stats()["n_calls"], apis.stats()["n_live"]) == (CALLS, 0)
    run(configured(cache="off"), print, quiet=True)
    assert apis.stats()["n_calls"] == 2 * CALLS  # it asks anew


def test_a_jury_and_repeats_go_in_batches_too(apis: BatchApis, configured: Job) -> None:
    jury = {"judge": [JUDGE, "openai/other"]}
    config = configured(metrics=("helpfulness",), repeats=2)
    config = RunConfig.model_validate(config.model_dump() | jury)
    finished = run(config, print, quiet=True)
    stats = apis.stats()
    assert (stats["n_batches"], stats["n_calls"], stats["n_live"]) == (2, 4 * UNITS, 0)
    assert stats["paid_again"] == 2 * UNITS  # repeats are the same words
    assert all(record.scores[0].calls == 4 for record in records_of(finished.folder))


def events(folder: RunFolder) -> list[str]:
    return list(folder.read_manifest()["events"])


def test_a_judge_of_google_is_asked_live_and_said_once(
    apis: BatchApis, configured: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", "key-of-nobody")
    config = configured(base_urls={"google": apis.provider.root})
    config = config.model_copy(update={"judge": "google/gemini-3.8-flash"})
    finished = run(config, print, quiet=True)
    stats = apis.stats()
    assert (finished.exit_code, stats["n_batches"], stats["n_live"]) == (0, 0, CALLS)
    lines = [line for line in events(finished.folder) if "take no batches: google/" in line]
    assert len(lines) == 1


def test_the_journal_of_an_earlier_version_is_gone_on_with(
    tmp_path: Path, apis: BatchApis, configured: Job
) -> None:
    apis.course = Course(looks=0)
    with pytest.raises(BatchesUnderWay):
        run(configured(batch={"calls": 4}), print, quiet=True, detach=True)
    folder = RunFolder(only_run(tmp_path))
    entries = sorted(BatchJournal(folder).load(), key=lambda entry: entry.batch_id)
    first, second, third = (Path(folder.path, "batches", f"{of.tag}.json") for of in entries)
    earlier = {"model": "local", "round": 1, "n_bytes": 9, "tokens": 9}
    for path, changes in (
        (first, {"state": "uploaded", "batch_id": ""}),
        (second, {"state": "collected", "outcomes": {"expired": 4}}),
        (third, {"judge": "google/gemini", "provider": "google"}),
    ):
        path.write_text(json.dumps(json.loads(path.read_text()) | earlier | changes))
    second.with_suffix(".left.jsonl").write_text('["k", "expired"]\n')
    stored = Path(folder.path, "run.yaml")
    stored.write_text(stored.read_text().replace("mode: batch", "mode: auto"))
    finished = resume(folder.path, print, quiet=True, settings=["judging.mode=batch"])
    assert finished.exit_code == 0
    lines = events(folder)
    assert any("google/gemini is not fetched" in line for line in lines), lines
    assert any("fetched again" in line for line in lines), lines
    stats = apis.stats()
    # only what Google has is sent again
    counts = (stats["n_batches"], stats["n_calls"], stats["n_live"], stats["paid_again"])
    assert counts == (4, CALLS, 0, 0)


def test_a_provider_that_answers_no_submission_stops_the_run(
    tmp_path: Path, apis: BatchApis, configured: Job
) -> None:
    apis.course = Course(refuse=(500, "overloaded"))
    with pytest.raises(Stopped, match="is out of reach"):
        run(configured(), print, quiet=True)
    assert apis.stats()["n_answered"] == 0
    apis.course = Course()
    done = resume(only_run(tmp_path), print, quiet=True)
    stats = apis.stats()
    assert (done.summary.n_units, stats["n_batches"], stats["n_live"]) == (UNITS, 1, 0)
