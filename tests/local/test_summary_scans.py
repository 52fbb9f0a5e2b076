"""How often the summary of a run goes over its records, whatever the run has."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from memray_eval.execution import run_summary, session
from memray_eval.results.run_folder import RunFolder
from memray_eval.results.schema import to_table
from memray_eval.types import Record
from tests.build import Job, build_score, finish, served
from tests.conftest import REPOSITORY
from tests.servers.provider import serving

MOST_SCANS = 2


class Scanned:
    """Stands for a dataset or a file of one, and counts what reads its rows."""

    def __init__(self, of: Any, scans: Counter[str], file: str = "") -> None:
        self._of, self._scans, self._file = of, scans, file

    def __getattr__(self, name: str) -> Any:
        if name in ("open", "to_table", "subset"):
            self._scans[self._file] += 1
        return getattr(self._of, name)

    def get_fragments(self) -> Iterator[Scanned]:
        return (Scanned(file, self._scans, file.path) for file in self._of.get_fragments())


def reply(body: dict[str, Any]) -> str:
    """An answer, or a verdict by the length of the question."""
    if body.get("stream"):
        return "That was not mentioned."
    is_odd = len(body["messages"][-1]["content"]) % 2
    verdict = "CORRECT" if is_odd else "INCORRECT"
    return json.dumps({"answer": "", "reasoning": "r", "verdict": verdict, "confidence": 0.9})


def enrich(record: Record, number: int) -> Record:
    """The record as a turn of a session and a side of a pair of twins, at a length and a depth, by
    a model that its server named, with a verdict that cannot be used and a metric that never
    applies."""
    position = {"session": f"t{number // 4}", "turn": number % 4 + 1, "turns": 4}
    pair = {"case": f"c{number // 2}", "kind": "ab"[number % 2], "attribute": "age"}
    notes = {**record.sample.metadata, **position, **pair, "length": 8.0, "depth": 50.0}
    answer, judged = record.response, {score.metric: score for score in record.scores}
    assert answer is not None
    verdict = judged["semantic_correctness"]
    if number % 3 == 0:
        verdict = build_score(verdict.metric, None, status="abstained", error="Odd: no")
    conduct = build_score("memory_conduct", number % 2)
    other = build_score("empathy", None, status="not_applicable", error="no emotion")
    return record.model_copy(
        update={
            "sample": record.sample.model_copy(update={"metadata": notes}),
            "response": answer.model_copy(update={"served_model": f"m-{number % 2}"}),
            "scores": (verdict, judged["rule_score"], conduct, other),
        }
    )


def test_a_summary_goes_over_the_records_so_often(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    scans, calls = Counter[str](), list[tuple[Any, ...]]()
    summarise = run_summary.summarise_run
    monkeypatch.setattr(
        session, "summarise_run", lambda *all_of: calls.append(all_of) or summarise(*all_of)
    )
    with serving(reply) as server:
        retrieved = {"context": "retrieved", "retrieved": {"k": 2}}
        finish(
            job(
                server,
                suite="locomo",
                dataset=str(REPOSITORY / "dataset" / "locomo"),
                candidates=[served(server, "full"), served(server, "found", **retrieved)],
                metrics=["semantic_correctness", "rule_score", "memory_conduct", "empathy"],
                judge="openai/judge",
                epochs=2,
            )
        )
    [(plan, folder, *rest)] = calls
    records = sorted(folder.each(), key=lambda record: record.sample.id)
    folder.delete_parts(folder.parts())
    folder.write_part(to_table(enrich(record, row) for row, record in enumerate(records)))

    @contextmanager
    def counted(of: RunFolder) -> Iterator[Scanned]:
        yield Scanned(of.records(), scans)

    each = RunFolder.each
    monkeypatch.setattr(RunFolder, "local_records", counted)
    monkeypatch.setattr(RunFolder, "each", lambda of: scans.update(["rows"]) or each(of))
    summary, warnings = summarise(plan, folder, *rest)
    parts = (summary.arms, summary.turns, summary.tasks, summary.heat_maps, summary.epochs)
    assert all((*parts, summary.twins, summary.served_models, summary.differences))
    assert summary.n_disagreements
    assert any("could not be used" in note for note in summary.notes)
    assert any("no emotion" in text for text in warnings)
    assert scans.total() <= MOST_SCANS, scans
