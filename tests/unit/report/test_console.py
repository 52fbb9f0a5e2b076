"""The forms of the console's tables; tests/golden/odd_summary.py holds its words."""

from pathlib import Path

import numpy as np
import pytest

from memray_eval.analysis.where import length_label
from memray_eval.metric import NEEDS_JUDGE, MetricColumns, summarise
from memray_eval.metrics import all_metrics
from memray_eval.report.console import render, render_brief
from memray_eval.report.html.page import render_html
from memray_eval.report.html.view_model import metric_rows
from memray_eval.report.tables import heat_sections, judge_label, read_failed_calls
from memray_eval.types import HeatMap, MacroSummary, Response, Score, TaskSummary
from tests.build import build_score, build_summary
from tests.golden.odd_summary import HEAT, MACROS, TASKS, odd_summary
from tests.runs import plain_records, write_run
from tests.unit.report.page import Page


@pytest.mark.parametrize(
    ("judges", "label"),
    [
        ({"rules": 2}, "estimate"),
        ({"rules+minilm": 2, "rules (empty response)": 1}, "estimate"),
        ({"openai/gpt-4o": 1, "rules (empty response)": 1}, "gpt-4o"),
        ({"openai/gpt-4o + google/gemini": 2, "zero": 1}, "jury"),
        ({"openai/gpt-4o": 1, "google/gemini": 2}, "judges"),
        ({"openai/a-model-with-a-very-long-name": 1}, "a-model-with-a-ver"),
        ({"zero": 1}, "judge"),
    ],
)
def test_the_column_of_verdicts_is_named_after_who_judged(
    judges: dict[str, int], label: str
) -> None:
    metric, n = all_metrics()["semantic_correctness"], sum(judges.values())
    columns = dict.fromkeys(metric.columns, np.zeros(n)) | {"value": np.ones(n)}
    verdicts = summarise(metric, MetricColumns("gemma", {"scored": n}, judges, columns))
    judged = build_summary(metrics=(verdicts,), tasks=TASKS, macro=MACROS[:1])
    assert judge_label(judged, "gemma") == judge_label(judged) == label
    assert judge_label(judged, "another") == "judge"
    assert f"{label}, rule: mean x 100;" in render(judged)


def test_a_page_counts_quotes_that_were_not_found() -> None:
    counts = [of_metric[1] for of_metric in metric_rows(odd_summary())]
    assert counts[0] == "2 scored, 1 abstained, 3 of 12 quotes unverified"
    assert counts[1] == "100 scored"


def test_what_was_not_measured_has_no_empty_table() -> None:
    tasks = (TaskSummary(candidate="gemma", task="lcc", bucket=None, n=3, metrics=()),)
    macro = (MacroSummary(candidate="gemma", n=3, means={}, n_tasks={}),)
    assert render(build_summary(tasks=tasks, macro=macro)) == render(build_summary())
    nothing = {"n": ((0, 0),) * 3, "values": ((None, None),) * 3, "n_without_depth": (0, 0)}
    assert list(heat_sections([HEAT.model_copy(update=nothing)])) == []


@pytest.mark.parametrize(("n_lengths", "n_tables"), [(12, 1), (13, 2)])
def test_the_largest_heat_map_fits_eighty_columns_and_more_lengths_go_on_below(
    n_lengths: int, n_tables: int
) -> None:
    heat = HeatMap(
        candidate="gemma", metric="coherence", scale=(0, 1),
        lengths=tuple(float(1024 << step) for step in range(n_lengths)),
        depths=tuple(float(5 * step) for step in range(21)),
        values=((1.0,) * n_lengths,) * 21, n=((1,) * n_lengths,) * 21,
        without_depth=(1.0,) * n_lengths, n_without_depth=(1,) * n_lengths,
    )  # fmt: skip
    (section,) = heat_sections([heat])
    lines = list(section.lines())
    assert len(lines) == 1 + n_tables * (1 + 21 + 1)
    assert max(map(len, lines)) == 80


def test_a_length_has_a_short_label() -> None:
    labels = {512: "512", 4096: "4k", 4000: "4000", 1 << 20: "1M", 128_000: "125k",
              100_000: "~98k", 1_500_000: "~1.4M"}  # fmt: skip
    assert {length: length_label(length) for length in labels} == labels


def test_a_metric_that_needs_a_judge_is_in_the_notes_alone() -> None:
    outcomes = MetricColumns("c", {"not_applicable": 3}, {}, {"value": np.array([])})
    idle = summarise(all_metrics()["safety"], outcomes).model_copy(update={"reason": NEEDS_JUDGE})
    note = f"not scored: safety; each {NEEDS_JUDGE}."
    summary = build_summary(metrics=(idle,), notes=(note,))
    assert "SAFETY" not in render(summary)
    assert f"Note: {note}" in render(summary)
    screen = render_brief(summary, "results/r")
    assert screen.count("safety") == 1
    assert not any(line.startswith("safety") for line in screen.splitlines())


THROTTLED, BROKEN = "Throttled: 429", "JudgeError: it is no JSON"


def failed(metric: str, error: str = "a bug", judge: str = "") -> Score:
    return build_score(metric, None, error=error, judge=judge)


def test_causes_are_counted_by_metric_and_those_of_generation_are_left_out(tmp_path: Path) -> None:
    scores = (
        (failed("empathy", THROTTLED), failed("coherence", THROTTLED), failed("mine"),
         failed("relevance", judge="all-MiniLM"), failed("own", judge="computed"),
         failed("memory_utilization", judge="rules+all-MiniLM")),
        (failed("empathy", THROTTLED), failed("safety", BROKEN)),
        (build_score(judge="zero", error=BROKEN),),
        (failed("empathy", "generation failed"),),
    )  # fmt: skip
    *records, last = (
        record.model_copy(update={"scores": of})
        for record, of in zip(plain_records(4), scores, strict=True)
    )
    good = [record for record in plain_records(9) if not record.is_failed]
    went_well = write_run(tmp_path / "good", good, len(good))
    assert not read_failed_calls(went_well, went_well.read_summary())
    gone = last.model_copy(update={"response": Response(error="the engine died")})
    folder = write_run(tmp_path / "run", [*records, gone], 4)
    sections = read_failed_calls(folder, folder.read_summary())
    assert [" ".join(line.split()) for section in sections for line in section.lines()] == [
        "n cause metrics",
        f"3 {THROTTLED} empathy 2, coherence 1",
        f"2 {BROKEN} empathy 1, safety 1",
        "n cause metrics",
        "4 a bug memory_utilization 1, mine 1, own 1, relevance 1",
    ]
    titles = ["FAILED JUDGE CALLS", "METRICS THAT FAILED WITHOUT A JUDGE"]
    assert [section.title for section in sections] == titles
    assert THROTTLED in Page(render_html(folder)).text
