"""Several answers a sample: asked with seeds of their own, once each, and read again."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from memray_eval.execution.runs import estimate_of
from memray_eval.report.exports import export_responses
from memray_eval.types import Summary, unit_id
from tests.build import GIVEN, Job, build_config, finish, go_on, served, write_lines
from tests.servers.provider import Fault, Outcome, serving

EPOCHS, SAMPLES = 3, 20


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    rows = [
        {"id": f"s{number}", "query": f"Is {number} even?", "answers": [["yes", "no"][number % 2]]}
        for number in range(SAMPLES)
    ]
    dataset = str(write_lines(tmp_path / "rows.jsonl", rows))
    return {"suite": "qa", "dataset": dataset, "metrics": ["exact_match"], "epochs": EPOCHS}


def by_seed(body: dict[str, Any]) -> str:
    return "yes" if body["seed"] != 8 else "no"


def ends_of(summary: Summary) -> list[float | None]:
    (figures,) = summary.epochs
    shares = [share for row in figures.passes for share in (row.any_right, row.all_right)]
    return [end for share in shares if share for end in (share.value, share.low, share.high)]


def test_a_run_that_ends_early_goes_on_and_asks_nothing_twice(
    job: Job, settings: dict[str, Any], tmp_path: Path
) -> None:
    with serving(by_seed) as server:
        candidate = served(server, "c", sampling={"temperature": 0.7, "seed": 7})

        def fails_at_half(body: dict[str, Any]) -> str | Outcome:
            return Fault(400) if len(server.requests) == SAMPLES * EPOCHS // 2 else by_seed(body)

        server.reply = fails_at_half
        few = {"on_error": "fail", "rows_per_block": 4, "server": {"max_in_flight": 4}}
        config = job(server, candidates=[candidate], **few, **settings)
        first = finish(config)
        assert first.stopped is not None
        assert 0 < first.summary.n_units < SAMPLES * EPOCHS
        server.reply = by_seed
        done = go_on(first.folder.path)
        times = Counter((json.dumps(of["messages"]), of["seed"]) for of in server.requests)
    assert sum(times.values()) == SAMPLES * EPOCHS + 1  # that which failed was asked again
    assert Counter(seed for _, seed in times) == dict.fromkeys((7, 8, 9), SAMPLES)
    summary = done.summary
    assert (done.exit_code, summary.n_units, summary.n_samples) == (0, SAMPLES * EPOCHS, SAMPLES)
    records = list(done.folder.each())
    units = {(record.sample.id, record.epoch): record for record in records}
    assert len(units) == len({record.unit_id for record in records}) == len(records)
    assert {record.candidate.sampling.seed for record in records} == {7}
    for (sample_id, epoch), record in units.items():
        assert record.unit_id == unit_id(sample_id, record.candidate, "qa", epoch)
    (figures,) = summary.epochs
    last = figures.passes[-1]
    assert (last.k, last.n_samples, last.any_right.value, last.all_right.value) == (3, 20, 1.0, 0.0)
    assert figures.is_floored
    assert "clustered by sample" in summary.intervals
    assert not any("temperature 0" in note for note in summary.notes)

    # Its rows, and a file of them, are read as such
    exported = tmp_path / "responses.json"
    export_responses(str(exported), records, "c", "now")
    for dataset in (done.folder.path, str(exported)):
        rows = {**settings, "dataset": dataset, "epochs": 1}
        again = finish(job(server, candidates=[GIVEN], **rows))
        assert again.summary.n_units == SAMPLES * EPOCHS
        assert ends_of(again.summary) == pytest.approx(ends_of(summary))
        assert {record.epoch for record in again.folder.each()} == {1, 2, 3}


def test_greedy_answers_are_warned_of_and_a_null_seed_stays(
    job: Job, settings: dict[str, Any]
) -> None:
    with serving(lambda body: "yes") as server:
        candidates = [served(server, "c", sampling={"seed": None})]
        config = job(server, candidates=candidates, limit=2, **settings)
        done = finish(config)
        assert [body.get("seed") for body in server.requests] == [None] * 6
    (note,) = [note for note in done.summary.notes if "temperature 0" in note]
    assert note.startswith("c answers at temperature 0: its 3 answers to a sample")
    assert len({record.unit_id for record in done.folder.each()}) == 6
    estimated = estimate_of(config)
    assert estimated.units == 6
    assert note in estimated.warnings


def test_epochs_of_answers_that_exist_are_refused() -> None:
    with pytest.raises(ValidationError, match="a column `epoch`"):
        build_config(epochs=2, candidates=[GIVEN])
