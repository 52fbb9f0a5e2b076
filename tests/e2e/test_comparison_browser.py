"""The page of a comparison in a real browser: pages of units, both texts, light and dark, phone
width, hostile texts.

Skipped where there is no Chromium. With SCREENSHOTS=DIR it leaves pictures there."""

from __future__ import annotations

from pathlib import Path

import pytest

from memray_eval.analysis.comparing import Side, compare
from memray_eval.analysis.scores import read_scores, read_texts
from memray_eval.metrics import all_metrics
from memray_eval.report.html.comparison import write_comparison
from memray_eval.results.run_folder import RunFolder
from memray_eval.results.schema import to_table
from memray_eval.types import Candidate, Record, Response, Sample, Score
from tests.e2e.test_report_browser import CHROMIUM, OVERFLOW, Tab, in_browser
from tests.runs import ATTACK, PLAIN, RTL

pytestmark = [
    pytest.mark.night,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium"),
]
N, LISTED = 60, 25
SHOWN = (
    "[...document.querySelectorAll('.changes')].map((list) => [...list.children].filter((one) => "
    "!one.hidden).length)"
)


def answers(shift: int) -> list[Record]:
    """Answers whose empathy rises by `shift` for two in three, the first three of them hostile."""
    hostile = [ATTACK, RTL, "x" * 1_000_000]
    return [
        Record(
            unit_id=str(place),
            sample=Sample(
                id=f"S{place}" if place else f"S{ATTACK}",
                query=f"{ATTACK}?" if place < 2 else "Why?",
                suite="memory",
            ),
            candidate=Candidate(name="small", model="m"),
            response=Response(
                text=f"{hostile[place] if place < 3 else PLAIN} Answer {place} of {shift}."
            ),
            scores=(
                Score(
                    metric="empathy",
                    status="scored",
                    value=3.0 + shift * (place % 3 > 0) - shift * (place % 7 == 0),
                ),
                Score(metric="rule_score", status="scored", value=float((place + shift) % 4 > 0)),
                Score(metric="coherence", status="scored", value=2.0 + (place * 7 + shift) % 3),
            ),
        )
        for place in range(N)
    ]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs")
    folders = {name: RunFolder(str(place / name)) for name in ("before", "after")}
    for shift, folder in enumerate(folders.values()):
        folder.create()
        folder.write_part(to_table(answers(shift)))
    sides = [
        Side(name, "small", {"status": "finished"}, read_scores(one.records(), "small"))
        for name, one in folders.items()
    ]
    found = compare(sides, flips=LISTED)
    units = {(flip.sample_id, flip.task) for metric in found.metrics for flip in metric.flips}
    texts = {name: read_texts(folder.records(), "small", units) for name, folder in folders.items()}
    path = place / "comparison.html"
    write_comparison(
        found, {name: metric.scale for name, metric in all_metrics().items()}, texts, str(path)
    )
    return path


def test_units_page_open_and_stay_inert(tmp_path: Path, page: Path) -> None:
    async def steps(tab: Tab) -> None:
        assert await tab.evaluate("window.hacked") is None
        assert await tab.evaluate("document.querySelectorAll('img').length") == 0
        assert await tab.evaluate(SHOWN) == [10, 10, 10]
        await tab.evaluate("document.querySelector('.pager button:last-child').click()")
        await tab.evaluate("document.querySelector('.pager button:last-child').click()")
        assert (await tab.evaluate(SHOWN))[0] == LISTED - 20
        assert await tab.evaluate("document.querySelector('.pager button:last-child').disabled")
        assert (
            await tab.evaluate("document.querySelector('.pager span').textContent") == "page 3 of 3"
        )
        await tab.evaluate(
            "document.querySelectorAll('.changes')[2].querySelector('summary').click()"
        )
        texts = (
            "[...document.querySelector('details[open]').querySelectorAll('.text')].map((one) => "
            "one.textContent)"
        )
        query, before, after = await tab.evaluate(texts)
        assert query
        assert before.endswith("of 0.") or "more characters" in before
        assert after.endswith("of 1.") or "more characters" in after
        assert await tab.evaluate("window.hacked") is None

    in_browser(tmp_path, page, steps)


def test_the_page_fits_a_phone_and_both_schemes(tmp_path: Path, page: Path) -> None:
    async def steps(tab: Tab) -> None:
        ground = "getComputedStyle(document.body).backgroundColor"
        await tab.look("light", 1280, 1000)
        light = await tab.evaluate(ground)
        await tab.picture("comparison-light")
        await tab.evaluate("document.getElementById('theme').click()")
        assert await tab.evaluate(ground) != light
        await tab.picture("comparison-dark")
        await tab.evaluate(
            "document.querySelector('.changes').previousElementSibling.previousElementSibling.scrollIntoView()"
        )
        await tab.evaluate("document.querySelectorAll('.changes summary')[1].click()")
        await tab.picture("comparison-changed-dark")
        await tab.evaluate("document.getElementById('theme').click()")
        await tab.look("light", 390, 844)
        assert await tab.evaluate(OVERFLOW) <= 0
        await tab.picture("comparison-changed-phone")
        await tab.evaluate("window.scrollTo(0, 0)")
        await tab.picture("comparison-phone")

    in_browser(tmp_path, page, steps)
