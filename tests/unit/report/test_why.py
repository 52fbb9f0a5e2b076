"""The rows behind a run's figures: which ones are chosen, what is shown of them, and what scores
mean."""

import json
import re
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from memray_eval.analysis.statistics import Interval
from memray_eval.analysis.where import find_places, read_run_scores
from memray_eval.report.html.page import render_html
from memray_eval.report.html.plots import Axis, OnScale, forest_axis, scale_row
from memray_eval.report.html.view_model import doubts, heading, list_judges, list_links
from memray_eval.report.html.why import (
    MEANS,
    MOST_CHARACTERS,
    Why,
    find_meanings,
    find_reasons,
    shorten,
)
from memray_eval.results.run_folder import RunFolder
from memray_eval.types import RULES_ON_EMPTY, MetricSummary, Record, Response
from tests.build import build_metric, build_record, build_sample, build_score, build_summary
from tests.runs import chat_records, write_summarised

METRICS = ("empathy", "coherence")


def why(folder: RunFolder) -> Why | None:
    summary, records = folder.read_summary(), folder.records()
    run = read_run_scores(records, summary)
    return find_reasons(records, run, summary, find_places(run, summary))


def why_of(path: Path, rows: Iterable[Record], *metrics: str, headline: str = "") -> Why | None:
    return why(write_summarised(path, rows, metrics, headline))


def test_the_rows_that_changed_most_stand_side_by_side(tmp_path: Path) -> None:
    rows = [*chat_records("old"), *chat_records("new", {("empathy", "billing"): 1.5})]
    reasons = why_of(tmp_path / "run", rows, *METRICS)
    assert reasons.says == "The 5 samples whose empathy differs most between old and new"
    assert [row.task for row in reasons.rows] == ["billing"] * 5
    first = reasons.rows[0]
    assert [answer.side for answer in first.answers] == ["old", "new"]
    assert [answer.text.partition(" ")[0] for answer in first.answers] == ["old", "new"]
    assert first.direction == "up"
    assert "→" in first.change
    main = first.answers[1].main
    assert (main.metric, main.by) == ("empathy", "openai/gpt-4o")
    assert "explanation" in json.loads(main.judgment)
    assert [answer.metric for answer in first.answers[1].others] == ["coherence"]
    assert first.address == f"#samples?candidate=new&id={first.sample_id}"


def test_the_worst_rows_of_one_candidate_are_those_of_the_headline(tmp_path: Path) -> None:
    records = list(chat_records("small"))
    reasons = why_of(tmp_path / "run", records, *METRICS, headline="coherence")
    assert reasons.says == "The 5 answers with the lowest coherence, of small"
    scores = (score for record in records for score in record.scores)
    worst = sorted(score.value or 0.0 for score in scores if score.metric == "coherence")[:5]
    shown = [float(row.change.partition(" of ")[0]) for row in reasons.rows]
    assert shown == pytest.approx(worst, abs=0.005)


def test_of_several_answers_the_one_is_shown_that_the_row_is_about(tmp_path: Path) -> None:
    """Of one candidate the lowest, which is not the first; of two the nearest to each mean."""
    values = {"old": (1.0, 0.0, 0.0), "new": (0.0, 1.0, 1.0)}
    rows = {
        name: [
            build_record(
                build_sample(id=f"s{number}", suite="chat", task=("night", "day")[number % 2]),
                f"answer {epoch}",
                build_score("exact_match", value if number < 40 else 1.0, judge="computed"),
                candidate=name,
                epoch=epoch,
            )
            for number in range(80)
            for epoch, value in enumerate(of_epochs, 1)
        ]
        for name, of_epochs in values.items()
    }
    of_one = why_of(tmp_path / "one", rows["old"], "exact_match")
    for row in of_one.rows:
        (lowest,) = row.answers
        assert (row.change, lowest.text) == ("0.333 of 1", "answer 2")
        assert lowest.main.value == "0"
    assert of_one.says == (
        "The 5 samples with the lowest exact_match, of old (mean of several answers; the lowest "
        "one is shown)"
    )
    of_two = why_of(tmp_path / "two", [*rows["old"], *rows["new"]], "exact_match")
    for row in of_two.rows:
        assert [answer.text for answer in row.answers] == ["answer 2", "answer 2"]
    assert of_two.says.endswith(MEANS)


def test_a_failed_answer_says_why_and_a_run_without_scores_has_no_reason(tmp_path: Path) -> None:
    failed = {"response": Response(error="Throttled: 429"), "scores": ()}
    rows = [record.model_copy(update=failed) for record in chat_records("small", n=8)]
    assert why(write_summarised(tmp_path / "none", rows, METRICS)) is None
    same = [*chat_records("a", n=1), *chat_records("b", n=1)]
    assert why(write_summarised(tmp_path / "one", same, METRICS)) is None  # nothing to split by


def test_a_long_text_is_cut_and_says_by_how_much() -> None:
    cut = f"{'x' * MOST_CHARACTERS} … (7 more characters)"
    assert shorten("x" * (MOST_CHARACTERS + 7)) == cut


def test_what_scores_mean_is_said_where_the_rubric_is_still_the_same(tmp_path: Path) -> None:
    folder = write_summarised(tmp_path / "run", chat_records("small", n=4), METRICS)
    manifest = folder.read_manifest()
    meanings = find_meanings(manifest, [*METRICS, "relevance"])
    assert list(meanings) == list(METRICS)
    assert [level for level, _ in meanings["empathy"].levels] == ["5", "4", "3", "2", "1"]
    page = render_html(folder)
    assert "rubric version 3; agreement with people: not measured" in page
    assert meanings["empathy"].levels[-1][1] in page
    coherence = f"{manifest['rubrics']['coherence']}, no answer: zero"
    manifest["rubrics"] = {"empathy": "another", "coherence": coherence}
    assert list(find_meanings(manifest, METRICS)) == ["coherence"]
    assert find_meanings({}, METRICS) == find_meanings({"rubrics": "broken"}, METRICS) == {}


def metric(**fields: Any) -> MetricSummary:
    return build_metric("safety", **{"n": 9, "n_scored": 9, "candidate": "small", **fields})


def test_who_judged_most_stands_first_and_empty_answers_last() -> None:
    judged = metric(judges={RULES_ON_EMPTY: 50, "openai/a": 3, "openai/b": 4})
    judges = list_judges([judged, metric(judges={"openai/a": 6})])
    assert judges == ("openai/a (9)", "openai/b (4)", f"{RULES_ON_EMPTY} (50)")
    assert list_judges([metric(n_scored=0, n_not_applicable=9)]) == ("not applicable",)
    assert list_judges([metric(n_scored=0)]) == ("not scored",)
    assert list_judges([metric(n=0, n_scored=0)]) == ("not scored",)


def test_all_intervals_of_a_row_share_one_axis_that_is_the_scale() -> None:
    drawn = scale_row(
        [OnScale("a", 1.0, Interval(1.0, 3.0)), None, OnScale("b", 5.0, None, True)], (1.0, 5.0)
    )
    assert 'class="bar s0" x1="8.0" x2="120.0"' in drawn
    assert 'class="dot s0" cx="8.0"' in drawn
    assert 'class="dot open s2" cx="232.0"' in drawn
    assert "a 1 between 1 and 3; b 5; on a scale of 1 to 5" in drawn


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ["every answer is scored"]),
        ({"n_scored": 90, "coverage": 0.9}, ["safety has 90 of 100 answers scored"]),
        ({"n": 8, "n_scored": 8}, ["every answer is scored", "few answers: n = 8 each"]),
        ({"judges": {"rules": 100}}, ["every answer is scored", "estimates, not verdicts: safety"]),
        ({"n_scored": 0, "coverage": 0.0}, []),
    ],
)
def test_the_head_says_what_there_is_to_doubt(fields: dict[str, Any], expected: list[str]) -> None:
    summary = build_summary(metrics=(metric(**{"n": 100, "n_scored": 100, **fields}),))
    assert list(doubts(summary, {})) == expected


def test_the_head_links_to_what_failed_and_to_rows_without_a_score() -> None:
    summary = build_summary(n_failed_units=2, metrics=(metric(n_scored=6, n_abstained=3),))
    assert list(list_links(summary, None, None)) == [
        ("2 failed", "#samples?status=error"),
        ("3 without a score (abstained)", "#samples?status=abstained"),
    ]


@pytest.mark.parametrize(
    ("title", "shown"),
    [
        ("EPOCHS - GPT-4o", "Epochs - GPT-4o"),
        ("LENGTH BY DEPTH: rule_score - A", "Length by depth: rule_score - A"),
        ("adjusted (Rogan-Gladen)", "Adjusted (Rogan-Gladen)"),
    ],
)
def test_a_heading_keeps_the_case_of_names(title: str, shown: str) -> None:
    assert heading(title) == shown


@pytest.mark.parametrize("span", [0.05, 0.1, 0.2, 0.25, 0.3, 0.45, 0.5, 0.75, 0.99, 1.0])
def test_labels_of_an_axis_have_room(span: float) -> None:
    drawn = forest_axis(Axis(-span, span, 8, 142))
    labels = re.findall(r'<text x="([\d.]+)"[^>]*>([^<]+)<', drawn)
    ends = [float(x) + sign * 4 * len(text) for x, text in labels for sign in (-1, 1)]
    assert len(ends) >= 2
    assert all(left < right for left, right in pairwise([-1e-9, *ends, 150 + 1e-9]))
