"""The answers of ../shared/data/field-cases (not in the repository) by the answer metrics."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from memray_eval.datasets.answers import parse_answer
from memray_eval.metric import unscorable
from memray_eval.metrics.instruction import answer_f1, exact_match
from tests.conftest import REPOSITORY

CASES = REPOSITORY.parent / "shared" / "data" / "field-cases" / "answers.jsonl"
ROWS = (
    [json.loads(line) for line in CASES.read_text("utf-8").splitlines()] if CASES.exists() else []
)


@pytest.mark.skipif(not ROWS, reason="no ../shared/data/field-cases here")
@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in ROWS])
def test_a_field_case_is_right(row: dict[str, Any]) -> None:
    fields = {name: row[name] for name in ("id", "query", "response", "answers")}
    record = parse_answer(fields, "qa")
    metric = (answer_f1 if row["metric"] == "answer_f1" else exact_match).METRIC
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
