"""The rows behind a run's figures: which ones are chosen, what is shown of them, and what judges
were asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memray_eval.analysis.where import find_places, read_run_scores
from memray_eval.metrics import all_metrics
from memray_eval.report.html import render_html
from memray_eval.report.html.why import (
    MOST_CHARACTERS,
    Why,
    explain,
    find_meanings,
    find_prompts,
    find_reasons,
    shorten,
)
from memray_eval.results.run_folder import RunFolder
from memray_eval.types import Record, Response
from tests.runs import ATTACK, chat_records, write_summarised

METRICS = ("empathy", "coherence")


def why(folder: RunFolder) -> Why | None:
    summary, records = folder.read_summary(), folder.records()
    run = read_run_scores(records, summary)
    return find_reasons(records, run, summary, find_places(run, summary))


def test_the_rows_that_changed_most_stand_side_by_side(tmp_path: Path) -> None:
    rows = [*chat_records("old"), *chat_records("new", {("empathy", "billing"): 1.5})]
    reasons = why(write_summarised(tmp_path / "run", rows, METRICS))
    assert reasons is not None
    assert reasons.says == "The 5 rows whose empathy differs most between old and new"
    assert [row.task for row in reasons.rows] == ["billing"] * 5
    first = reasons.rows[0]
    assert [answer.side for answer in first.answers] == ["old", "new"]
    assert [answer.text.partition(" ")[0] for answer in first.answers] == ["old", "new"]
    assert first.direction == "up"
    assert "→" in first.change
    main = first.answers[1].main
    assert main is not None
    assert (main.metric, main.by) == ("empathy", "openai/gpt-4o")
    assert main.says[0].startswith("It ")
    assert [answer.metric for answer in first.answers[1].others] == ["coherence"]
    assert first.address == f"#samples?candidate=new&id={first.sample_id}"


def test_the_worst_rows_of_one_candidate_are_those_of_the_headline(tmp_path: Path) -> None:
    folder = write_summarised(tmp_path / "run", chat_records("small"), METRICS, "coherence")
    reasons = why(folder)
    assert reasons is not None
    assert reasons.says == "The 5 rows with the lowest coherence, of small"
    values = [
        next(score.value for score in record.scores if score.metric == "coherence")
        for record in folder.each()
    ]
    worst = sorted(value for value in values if value is not None)[:5]
    assert [float(row.change.partition(" of ")[0]) for row in reasons.rows] == pytest.approx(
        worst, abs=0.005
    )


def test_a_failed_answer_says_why_and_a_run_without_scores_has_no_reason(tmp_path: Path) -> None:
    def failed(record: Record) -> Record:
        return record.model_copy(
            update={"response": Response(error="Throttled: 429"), "scores": ()}
        )

    rows = [failed(record) for record in chat_records("small", n=8)]
    assert why(write_summarised(tmp_path / "none", rows, METRICS)) is None
    same = [*chat_records("a", n=1), *chat_records("b", n=1)]
    assert why(write_summarised(tmp_path / "one", same, METRICS)) is None  # nothing to split by


def test_a_judgment_is_told_explanation_first_without_its_numbers() -> None:
    judgment = {
        "empathy_score": 2,
        "supportive_elements": [],
        "gaps": ["cold", "short"],
        "evidence": [{"key": "job", "quote": "nights"}],
        "is_safe": False,
        "explanation": f"Too brief. {ATTACK}",
    }
    assert list(explain(json.dumps(judgment))) == [
        f"Too brief. {ATTACK}",
        "gaps: cold; short",
        "evidence: key job, quote nights",
        "is safe: no",
    ]
    assert list(explain("no JSON at all")) == ["no JSON at all"]
    assert list(explain("[1, 2]")) == ["1; 2"]
    (long,) = explain(json.dumps({"explanation": "x" * 5000}))
    assert len(long) < 700
    assert shorten("x" * (MOST_CHARACTERS + 7)).endswith("x … (7 more characters)")


def test_the_prompt_of_a_judge_is_shown_where_its_rubric_is_still_the_same(tmp_path: Path) -> None:
    folder = write_summarised(tmp_path / "run", chat_records("small", n=4), METRICS)
    manifest = folder.read_manifest()
    prompts = find_prompts(manifest, [*METRICS, "relevance"])
    assert list(prompts) == list(METRICS)
    assert "{question}" in prompts["empathy"]
    assert "{answer}" in prompts["empathy"]
    assert prompts["empathy"].startswith("[system]\n")
    meanings = find_meanings(manifest, [*METRICS, "relevance"])
    assert list(meanings) == list(METRICS)
    assert [level for level, _ in meanings["empathy"].levels] == ["5", "4", "3", "2", "1"]
    page = render_html(folder)
    assert "rubric version 2; agreement with people: not measured" in page
    assert meanings["empathy"].levels[-1][1] in page
    coherence = f"{manifest['rubrics']['coherence']}, no answer: zero"
    manifest["rubrics"] = {"empathy": "another", "coherence": coherence}
    assert list(find_prompts(manifest, METRICS)) == ["coherence"]
    assert find_prompts({}, METRICS) == find_prompts({"rubrics": "broken"}, METRICS) == {}
    judged = [name for name, metric in all_metrics().items() if hasattr(metric, "judgment")]
    assert len(judged) > 10
