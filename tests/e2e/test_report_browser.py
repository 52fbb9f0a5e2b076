"""The HTML report in a real browser: clicks, keys, addresses, hostile texts, speed. Its words and
figures are tests/unit/report's and tests/golden's. Skipped if there is no Chromium."""

from pathlib import Path

import pytest

from memray_eval.report.html.page import write_html
from tests.build import build_record, build_sample, build_score
from tests.e2e.browser import (
    COUNT,
    DETAIL,
    FOCUSED,
    OPENED,
    OVERFLOW,
    Tab,
    in_browser,
    needs_chromium,
)
from tests.runs import ATTACK, hostile_records, plain_records, write_run

pytestmark = needs_chromium
OPENS_WITHIN_MS = 2000


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = tmp_path_factory.mktemp("html")
    run = write_run(work / "run", [*plain_records(296), *hostile_records()], 300)
    write_html(run, str(work / "page.html"))
    return work / "page.html"


def test_a_reader_filters_sorts_and_reads_with_mouse_and_keys(page: Path, tmp_path: Path) -> None:
    async def steps(tab: Tab) -> None:
        for box, option, n in (
            ("status", "error", 31),
            ("status", "any", 300),
            ("candidate", "small-t0.5", 99),
            ("candidate", "all", 300),
        ):
            await tab.choose(box, option)
            assert await tab.evaluate(COUNT) == f"{n} of 300 answers"
        await tab.choose("sort", "memory_utilization, lowest first")
        figures = await tab.evaluate(
            "[...document.querySelectorAll('#list .score')].map((n) => Number(n.textContent))"
        )
        assert len(figures) == 40
        assert figures == sorted(figures)
        await tab.choose("sort", "order of the run")
        await tab.evaluate("document.activeElement.blur()")
        await tab.press("/")
        assert await tab.evaluate(FOCUSED) == "find"
        await tab.find("this is answer 7.")
        assert await tab.evaluate(COUNT) == "1 of 300 answers"
        await tab.press("Enter")
        await tab.press("Enter")
        assert await tab.evaluate(OPENED)
        text = await tab.text("#detail")
        assert "You live near the sea" in text
        assert "nurse on rotating nights" in text
        marks = await tab.evaluate(
            f"[...{DETAIL}.querySelectorAll('.answer mark')].map((n) => [n.className, "
            "n.textContent])"
        )
        for mark in (
            ["cited evidence", "your rotating nights"],
            ["broken evidence", "on 38,400 a year"],
            ["against", "You live near the sea"],
            ["evidence", "that sounds exhausting"],
        ):
            assert mark in marks
        await tab.evaluate(
            "document.getElementById('samples').scrollIntoView({behavior: 'instant'})"
        )
        await tab.picture("detail-light")
        await tab.press("Escape")
        assert await tab.evaluate(f"{DETAIL}.hidden") is True
        await tab.focus("#find")
        await tab.find("")
        await tab.press("Backspace")
        await tab.counts(300, 300)
        await tab.press("Enter")
        await tab.press("ArrowDown")
        chosen = "[...document.querySelectorAll('#list li')].findIndex((n) => n.ariaSelected === "
        assert await tab.evaluate(f"{chosen} 'true')") == 1
        for key, number in (("ArrowRight", 2), ("ArrowUp", 1)):
            await tab.press(key)
            await tab.until(f"document.getElementById('page').textContent === 'page {number} of 8'")

    in_browser(tmp_path, page, steps)


def test_the_back_button_undoes_and_keys_alone_reach_all(page: Path, tmp_path: Path) -> None:
    async def steps(tab: Tab) -> None:
        await tab.press("Tab")
        assert await tab.evaluate("document.activeElement.className") == "skip"
        await tab.press("Enter")
        await tab.until(f"{FOCUSED} === 'main'")
        await tab.choose("candidate", "small-t0.5")
        await tab.counts(99, 300)
        await tab.choose("sort", "coherence, lowest first")
        await tab.until("location.hash.includes('sort=coherence')")
        await tab.click("#list li", 2)
        await tab.until("document.getElementById('next-row') !== null")
        await tab.focus("#next-row")
        await tab.press("Enter")
        await tab.until("location.hash.includes('row=3')")
        assert await tab.evaluate(FOCUSED) == "next-row"
        await tab.click('nav a[href="#metrics"]')
        await tab.until("history.state?.filters.includes('row=3')")
        await tab.call("Page.reload")
        await tab.until(f"document.documentElement?.dataset.ready && {OPENED}")
        for seen in (
            f"location.hash.includes('row=3') && {OPENED}",
            f"location.hash.includes('sort=coherence') && {DETAIL}.hidden",
            f"!location.hash.includes('sort=') && {COUNT} === '99 of 300 answers'",
            f"{COUNT} === '300 of 300 answers'",
        ):
            await tab.evaluate("history.back()")
            await tab.until(seen)
        await tab.find("this is answer 7")
        await tab.find("this is answer 7.")
        await tab.counts(1, 300)
        await tab.evaluate("history.back()")
        await tab.counts(300, 300)
        await tab.look("dark", 400, 844)
        assert await tab.evaluate(OVERFLOW) <= 0
        box = "document.querySelector('[aria-label=\"Figures of all metrics\"]')"
        await tab.until(f"{box}.scrollWidth <= {box}.clientWidth && {box}.tabIndex === -1")
        await tab.picture("page-400-dark")
        await tab.click("#list li")
        await tab.until(f"{FOCUSED} === 'close'")  # it covers the page

    in_browser(tmp_path, page, steps)


@pytest.mark.night
def test_hostile_texts_stay_texts(page: Path, tmp_path: Path) -> None:
    async def open_found(tab: Tab, wanted: str) -> None:
        await tab.find(wanted)
        await tab.counts(1, 300)
        await tab.click("#list li")

    async def steps(tab: Tab) -> None:
        await tab.focus("#find")
        for wanted, result in (
            ("a-attack", "A-attack"),
            ("a-rtl", "A-rtl"),
            ("needle-in-hay", "A-huge"),
            ("an id that", f"A-{ATTACK}"),
        ):
            await open_found(tab, wanted)
            for title in ("#list [aria-selected=true] b", "#detail h3"):
                shown = f"document.querySelector({title!r}).textContent"
                assert await tab.evaluate(shown) == result
            planted = "document.querySelectorAll('main script, main img, [onerror]').length"
            assert await tab.evaluate(planted) == 0
        assert await tab.evaluate("typeof window.hacked") == "undefined"
        answer = f"{DETAIL}.querySelector('.answer').textContent"
        await open_found(tab, "a-attack")
        assert ATTACK in await tab.evaluate(answer)
        await open_found(tab, "needle-in-hay")
        assert await tab.evaluate(f"{answer}.length") > 1_000_000
        await tab.look("dark", 390, 844)
        assert await tab.evaluate(OVERFLOW) <= 0

    in_browser(tmp_path, page, steps)


@pytest.mark.night
def test_ten_thousand_records_open_within_two_seconds(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    write_html(write_run(tmp_path / "run", plain_records(10_000), 10_000), str(path))

    async def steps(tab: Tab) -> None:
        await tab.counts(10_000, 10_000)
        took = int(await tab.evaluate("document.documentElement.dataset.ready"))
        await tab.focus("#find")
        await tab.find("this is answer 9876.")
        await tab.counts(1, 10_000)
        timing = "performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"
        loaded, mb = await tab.evaluate(timing), path.stat().st_size / 1e6
        print(f"list after {took} ms, all texts after {loaded:.0f} ms, {mb:.1f} MB")
        assert took < OPENS_WITHIN_MS

    in_browser(tmp_path, path, steps)


def test_a_turn_of_a_session_is_shown_in_its_chat_with_the_marks_of_each_turn(
    tmp_path: Path,
) -> None:
    talk = [("user", "Hi"), ("assistant", "<b>Hello</b>"), ("user", "Again"), ("assistant", "Yes")]
    records = [
        build_record(
            build_sample(
                id=f"S#{turn}",
                query=talk[2 * turn - 2][1],
                history=[{"role": role, "content": text} for role, text in talk[: 2 * turn - 2]],
                metadata={"session": "S", "turn": turn, "turns": 2},
            ),
            talk[2 * turn - 1][1],
            build_score("empathy", value),
            epoch=epoch,
        )
        for epoch, turn, value in ((1, 1, 5.0), (1, 2, 2.0), (2, 1, 1.0), (2, 2, 4.0))
    ]
    write_html(write_run(tmp_path / "run", records, 2), str(tmp_path / "page.html"))

    async def steps(tab: Tab) -> None:
        await tab.find("S#1")
        await tab.click("#list [role=option]")
        await tab.until("document.querySelectorAll('.chat').length === 4")
        seen = await tab.evaluate("[...document.querySelectorAll('.chat')].map((n) => n.innerText)")
        assert [text.split() for text in seen] == [
            ["user,", "turn", "1", "Hi"],
            ["assistant,", "turn", "1", "<b>Hello</b>", "empathy", "5"],
            ["user,", "turn", "2", "Again"],
            ["assistant,", "turn", "2", "Yes", "empathy", "2"],
        ]
        assert await tab.text(".chat .bad") == "empathy 2"

    in_browser(tmp_path, tmp_path / "page.html", steps)
