"""The page of a comparison: its figures, what it lists and leaves out, and that no text of a run
becomes markup or code."""

import re

import pytest

from memray_eval.analysis.comparing import CommonUnits, Compared, Flip, MetricComparison
from memray_eval.analysis.statistics import CompareOptions, Interval, Paired
from memray_eval.report.html.comparison import render_comparison
from memray_eval.report.html.why import MEANS, MOST_CHARACTERS
from memray_eval.types import Response
from tests.build import build_record, build_sample, build_score
from tests.runs import ATTACK, RTL
from tests.unit.report.page import Page

SCALES = {"empathy": (1.0, 5.0), "recall": (0.0, 1.0)}
CHANGED = (
    Flip(sample_id="S1", task="sleep", direction="up", a=2.0, b=5.0),
    Flip(sample_id=ATTACK, task="", direction="down", a=4, b=3),
)
EMPATHY = MetricComparison(
    metric="empathy", other="run-b", p_holm=0.0004, p_fdr=0.0002, only_a=3, only_b=1,
    interval_a=Interval(3.1, 3.3),
    flips=CHANGED,
    paired=Paired(n=100, mean_a=3.2, mean_b=3.6, difference=0.4, stderr=0.1, low=0.2, high=0.6,
                  p_value=0.0002, effect_size=0.41, wins=40, ties=50, losses=10, detectable=0.28),
)  # fmt: skip
RECALL = MetricComparison(
    metric="recall", other="run-b", p_holm=0.6, p_fdr=0.6, flips_up=6, flips_down=4,
    paired=Paired(n=100, mean_a=0.5, mean_b=0.52, difference=0.02, stderr=0.03, low=-0.04,
                  high=0.08, p_value=0.6, effect_size=0.06, wins=6, ties=90, losses=4,
                  detectable=0.09),
)  # fmt: skip
UNSCORED = MetricComparison(metric="safety", other="run-b", paired=Paired(n=0), only_b=100)
ASKED = build_sample(query="Why?")
TEXTS = {
    "run-a": {
        ("S1", "sleep"): [build_record(build_sample(query=f"Why? {ATTACK}"), "Sleep early.")],
        (ATTACK, ""): [build_record(build_sample(query=RTL), Response(error="Throttled: 429"))],
    },
    "run-b": {("S1", "sleep"): [build_record(ASKED, ATTACK + "x" * (MOST_CHARACTERS + 5))]},
}


def comparison(*metrics: MetricComparison, **more: object) -> Compared:
    plain = Compared(
        baseline="run-a", others=("run-b",), cluster=None, settings=CompareOptions(),
        metrics=metrics, scales=SCALES,
        common=(CommonUnits(other="run-b", letter="B", n=100, only_a=0, only_b=0),),
    )  # fmt: skip
    return plain.model_copy(update=more)


@pytest.fixture(scope="module")
def page() -> Page:
    warned = {
        "warnings": (f"B is not finished {ATTACK}",),
        "failed_gates": ("empathy < 1: run-b differs by +0.4000",),
    }
    return Page(render_comparison(comparison(EMPATHY, RECALL, UNSCORED, **warned), TEXTS))


def recall(difference: float, low: float, high: float, **more: object) -> MetricComparison:
    between = {"difference": difference, "low": low, "high": high}
    paired = RECALL.paired.model_copy(update=between)
    return RECALL.model_copy(update={"paired": paired, **more})


def test_rows_share_an_axis_in_percent_of_their_scales() -> None:
    """Empathy's difference is 0.4 of a scale 4 wide, and so is 0.1 of one that is 1 wide."""
    html = render_comparison(comparison(EMPATHY, recall(0.1, 0.05, 0.15)), {})
    assert len(dots := re.findall(r'class="dot[^"]*" cx="([\d.]+)"', html)) == 2
    assert dots[0] == dots[1]
    assert 160 < float(dots[0]) < 308
    assert len(set(re.findall(r'class="bar" x1="([\d.]+)" x2="([\d.]+)"', html))) == 1
    assert re.findall(r'class="dot[^"]*"', html) == ['class="dot"', 'class="dot open"']


def test_a_bar_that_the_correction_takes_back_is_drawn_corrected() -> None:
    row = recall(0.1, 0.02, 0.18, corrected=Interval(-0.02, 0.22))
    html = render_comparison(comparison(row), {})
    ((low, high),) = re.findall(r'class="bar" x1="([\d.]+)" x2="([\d.]+)"', html)
    assert float(low) < 160 < float(high)
    assert "[-0.0200, +0.2200] (corrected)" in html


def test_the_head_says_how_sure_it_is_and_links_to_what_differs(page: Page) -> None:
    sure = "n = 100 pairs per difference; corrected for the number of differences (Holm)"
    assert sure in page.text
    links = [attrs.get("href") for tag, attrs in page.tags if tag == "a"]
    ids = {attrs.get("id") for _, attrs in page.tags}
    assert links[1:3] == ["#warnings", "#changed-B"]
    assert {str(link).removeprefix("#") for link in links} <= ids


def test_changed_units_are_listed_with_both_texts(page: Page) -> None:
    assert "2 of 50 answers that changed most." in page.rows()
    assert "2 → 5S1sleepWhy? " + ATTACK in page.rows()
    assert f"x … ({len(ATTACK) + 5:,} more characters)" in page.text
    assert "(failed: Throttled: 429)" in page.text
    assert "(not in the records)" in page.text


def test_of_several_answers_those_nearest_to_the_means_are_shown() -> None:
    values = (1.0, 2.0, 5.0)
    answers = [build_record(ASKED, f"answer {v:g}", build_score("empathy", v)) for v in values]
    texts = {side: {("S1", "sleep"): answers} for side in ("run-a", "run-b")}
    page = Page(render_comparison(comparison(EMPATHY), texts)).text
    assert "answer 2" in page  # of A, 2 on average
    assert "answer 5" in page
    assert "answer 1" not in page
    assert MEANS in page


def test_no_text_becomes_markup_and_the_policy_lets_no_other_script_run(page: Page) -> None:
    assert page.text.count(ATTACK) >= 4  # warning, id, question, answer
    assert [tag for tag, _ in page.tags].count("script") == 1
    page.check_safe()


def test_nothing_scored_is_a_page_without_a_plot() -> None:
    page = Page(render_comparison(comparison(UNSCORED), {}))
    assert not [attrs for _, attrs in page.tags if attrs.get("class") in ("differences", "changes")]
    assert "safety" in page.text
