"""The instruction suite's samples, and the answers of ../shared/data/field-cases (not in the
repository) by its metrics."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memray_eval.benchmarks import get_suite
from memray_eval.datasets.fields import parse_answer
from memray_eval.datasets.reading import SampleReader
from memray_eval.datasets.sources import Entry
from memray_eval.metric import ComputedMetric, score_by_code, unscorable
from memray_eval.metrics import pick
from memray_eval.metrics.instruction import METRICS
from memray_eval.types import Candidate, Response, Sample
from tests.build import write_lines
from tests.conftest import REPOSITORY
from tests.unit.datasets.builders import broken_rows, read

SUITE = get_suite("instruction")
READING = SampleReader(suite="instruction", adapt=SUITE.adapt)


def scores(sample: Sample, text: str) -> dict[str, float | None]:
    """What each of the suite's metrics that applies gives a response."""
    metrics = (metric for metric in pick(SUITE.metrics) if isinstance(metric, ComputedMetric))
    result = (score_by_code(metric, sample, Response(text=text)) for metric in metrics)
    return {score.metric: score.value for score in result if score.status == "scored"}


@pytest.mark.parametrize("fields", [{}, {"prompt_type": None}, {"prompt_type": "", "task": ""}])
def test_a_plain_prompt_is_a_simple_one(fields: dict[str, Any]) -> None:
    raw = {"id": "a", "query": "Say hello in exactly three words.", **fields}
    plain = READING.sample(Entry(0, 1, "f", "0", raw, 1))
    assert plain is not None
    assert (plain.prompt_type, plain.task) == ("simple", "simple")
    assert SUITE.prompt(plain, Candidate(name="c", model="m")).max_tokens == 256
    assert scores(plain, "Hello to you.") == {"instruction_quality": 100.0}
    assert scores(plain, "Hello.")["instruction_quality"] < 75


@pytest.mark.parametrize(("fields", "_", "message"), broken_rows("instruction"))
def test_a_bad_record_is_named(
    tmp_path: Path, fields: dict[str, Any], _: str, message: str
) -> None:
    path = write_lines(tmp_path / "d.jsonl", [{"id": "a1", "query": "q", **fields}])
    (problem,) = map(str, read(path, READING).problems)
    assert f"{path}, line 1: sample a1: " in problem
    assert message in problem


CASES = REPOSITORY.parent / "shared" / "data" / "field-cases" / "answers.jsonl"
ROWS = (
    [json.loads(line) for line in CASES.read_text("utf-8").splitlines()] if CASES.exists() else []
)


@pytest.mark.skipif(not ROWS, reason="no ../shared/data/field-cases here")
@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in ROWS])
def test_a_field_case_is_right(row: dict[str, Any]) -> None:
    fields = {name: row[name] for name in ("id", "query", "response", "answers")}
    record = parse_answer(fields, "qa")
    metric = METRICS["answer_f1" if row["metric"] == "answer_f1" else "exact_match"]
    metric = replace(metric, on_no_answer="exclude")
    without = unscorable(metric, record.sample, record.response)
    if row["right"] is None:
        assert without is not None
        assert without.status == ("no_answer" if row["kind"] == "thinking" else "not_applicable")
        assert without.error
        return
    assert without is None
    assert record.response is not None
    assert metric.measure(record.sample, record.response).value == pytest.approx(row["right"])
