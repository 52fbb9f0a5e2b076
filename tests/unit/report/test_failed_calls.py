"""The causes of failed judge calls, from records."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from memray_eval.report.html import render_html
from memray_eval.report.tables import read_failed_calls
from memray_eval.types import Record, Response
from tests.build import build_score
from tests.runs import plain_records, write_run
from tests.unit.report.page import Page

THROTTLED, BROKEN = "Throttled: 429", "JudgeError: it is no JSON"


def failing(
    record: Record,
    scores: dict[str, str],
    response: Response | None = None,
    computed: Mapping[str, str] = MappingProxyType({}),
) -> Record:
    failed = [build_score(name, None, error=error) for name, error in scores.items()]
    failed += [build_score(n, None, error="a bug", judge=by) for n, by in computed.items()]
    kept = {"response": response} if response else {}
    return record.model_copy(update={"scores": tuple(failed), **kept})


def test_causes_are_counted_by_metric_and_those_of_generation_are_left_out(tmp_path: Path) -> None:
    first, second, third, fourth = plain_records(4)
    rule = build_score(judge="zero", error=BROKEN)
    records = [
        failing(
            first,
            {"empathy": THROTTLED, "coherence": THROTTLED, "mine": "a bug"},
            computed={
                "relevance": "all-MiniLM",
                "memory_utilization": "rules+all-MiniLM",
                "own": "computed",
            },
        ),
        failing(second, {"empathy": THROTTLED, "safety": BROKEN}),
        failing(third, {"empathy": "generation failed"}, Response(error="the engine died")),
        fourth.model_copy(update={"scores": (rule,)}),
    ]
    folder = write_run(tmp_path / "run", records, 4)
    sections = read_failed_calls(folder, folder.read_summary())
    tables = {section.title: section.parts[0] for section in sections}
    rows = {name: [tuple(row) for row in table.rows] for name, table in tables.items()}  # type: ignore[union-attr]
    assert rows == {
        "FAILED JUDGE CALLS": [
            ("n", "cause", "metrics"),
            ("3", THROTTLED, "empathy 2, coherence 1"),
            ("2", BROKEN, "empathy 1, safety 1"),
        ],
        "METRICS THAT FAILED WITHOUT A JUDGE": [
            ("n", "cause", "metrics"),
            ("4", "a bug", "memory_utilization 1, mine 1, own 1, relevance 1"),
        ],
    }
    assert THROTTLED in Page(render_html(folder)).text


def test_a_run_whose_calls_all_went_well_has_no_section(tmp_path: Path) -> None:
    scored = [record for record in plain_records(9) if not record.is_failed]
    folder = write_run(tmp_path / "run", scored, len(scored))
    assert not read_failed_calls(folder, folder.read_summary())
