from __future__ import annotations

import json
from pathlib import Path

from memray_eval.report.exports import evaluated_row, export_responses
from memray_eval.types import Candidate, Record, Score


def test_groundedness_is_what_was_counted_and_the_judges_own_numbers_are_named_so(
    record: Record,
) -> None:
    judgment = {"claims": [], "groundedness_score": 0.123, "hallucination_rate": 0.9}
    score = Score(
        metric="groundedness",
        status="scored",
        value=2 / 3,
        parts={"claims": 3, "grounded": 2, "hallucinated": 1},
        judgment=json.dumps(judgment),
    )
    row = evaluated_row(record.model_copy(update={"scores": (score,)}))["scores"]["groundedness"]
    assert (row["groundedness_score"], row["hallucination_rate"]) == (2 / 3, 1 / 3)
    assert (row["judge_groundedness_score"], row["judge_hallucination_rate"]) == (0.123, 0.9)
    failed = score.model_copy(update={"value": None, "status": "error", "judgment": None})
    row = evaluated_row(record.model_copy(update={"scores": (failed,)}))["scores"]["groundedness"]
    assert "groundedness_score" not in row


def test_a_responses_file_holds_its_models_rows_alone(record: Record, tmp_path: Path) -> None:
    other = record.model_copy(update={"candidate": Candidate(name="other", model="m2")})
    for name in (record.candidate.name, "other"):
        path = tmp_path / f"responses_{name}.json"
        export_responses(str(path), [record, other], name, "20261125_000000")
        exported = json.loads(path.read_text())
        assert exported["model"] == name
        assert [row["candidate"] for row in exported["results"]] == [name]
