"""The table of figures: its cells as text, what is marked, and who judged."""

from __future__ import annotations

from pathlib import Path

from memray_eval.analysis.statistics import Interval
from memray_eval.report.html import render_html
from memray_eval.report.html.figures import list_judges, tabulate_figures
from memray_eval.report.html.plots import OnScale, scale_row
from memray_eval.types import RULES_ON_EMPTY, Figure, MetricSummary
from tests.runs import candidates, chat_records, full_summary, write_summarised


def metric(**fields: object) -> MetricSummary:
    plain = {
        "metric": "safety", "candidate": "small", "title": "SAFETY", "scale": (0.0, 1.0), "n": 9,
        "n_scored": 9, "n_abstained": 0, "n_not_applicable": 0, "n_failed": 0, "coverage": 1.0,
    }  # fmt: skip
    return MetricSummary.model_validate({**plain, **fields})


def test_a_cell_holds_the_figure_as_it_is_shown(tmp_path: Path) -> None:
    rows = [*chat_records("old"), *chat_records("new", {("empathy", "billing"): 1.0})]
    folder = write_summarised(tmp_path / "run", rows, ("empathy", "coherence"))
    summary = folder.read_summary()
    table = tabulate_figures(summary)
    assert table.candidates == ("new", "old")
    empathy, coherence = table.rows
    summarised = next(
        each_cell
        for each_cell in summary.metrics
        if (each_cell.metric, each_cell.candidate) == ("empathy", "old")
    )
    assert summarised.figure.value is not None
    cell = empathy.cells[1]
    assert (cell.metric, cell.candidate, cell.n) == ("empathy", "old", "120")
    assert cell.figure == f"{summarised.figure.value:.2f}"
    assert (cell.low, cell.high) == (
        f"{summarised.figure.low:.2f}",
        f"{summarised.figure.high:.2f}",
    )
    assert [each_cell.is_below for each_cell in empathy.cells] == [False, True]
    assert [each_cell.is_below for each_cell in coherence.cells] == [False, False]
    shown = f'data-figure="{cell.figure}" data-low="{cell.low}" data-high="{cell.high}"'
    assert f'data-metric="empathy" data-candidate="old" {shown} data-n="120"' in render_html(folder)


def test_no_claims_are_no_figure_and_a_candidate_without_the_metric_has_an_empty_cell() -> None:
    summary = full_summary(9, candidates(2)).model_copy(
        update={
            "metrics": (
                metric(candidate="small-t0", figure=Figure(average="micro", whole="claims")),
            )
        }
    )
    (row,) = tabulate_figures(summary).rows
    assert row.name == "safety (micro)"
    assert [(cell.figure, cell.low, cell.n) for cell in row.cells] == [
        ("no claims", "", "9"),
        ("-", "", ""),
    ]


def test_who_judged_most_stands_first_and_empty_answers_last() -> None:
    judged = metric(judges={RULES_ON_EMPTY: 50, "openai/a": 3, "openai/b": 4})
    judges = list_judges([judged, metric(judges={"openai/a": 6})])
    assert judges == ("openai/a (9)", "openai/b (4)", f"{RULES_ON_EMPTY} (50)")
    assert list_judges([metric(n_scored=0, n_not_applicable=9)]) == ("not applicable",)
    assert list_judges([metric(n_scored=0)]) == ("nobody",)
    assert list_judges([metric(n=0, n_scored=0)]) == ("nobody",)


def test_all_intervals_of_a_row_share_one_axis_that_is_the_scale() -> None:
    drawn = scale_row(
        [OnScale("a", 1.0, Interval(1.0, 3.0)), None, OnScale("b", 5.0, None, True)], (1.0, 5.0)
    )
    assert 'class="bar s0" x1="8.0" x2="120.0"' in drawn
    assert 'class="dot s0" cx="8.0"' in drawn
    assert 'class="dot open s2" cx="232.0"' in drawn
    assert "a 1 between 1 and 3; b 5; on a scale of 1 to 5" in drawn
