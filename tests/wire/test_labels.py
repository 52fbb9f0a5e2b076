"""`memray-eval view RUN --label` over real HTTP: labels given, and what is turned away."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yarl import URL

from memray_eval.report.labelling import open_labelling
from memray_eval.report.labelling.store import FILE
from memray_eval.report.view.label_server import serving_labels
from memray_eval.results.run_folder import RunFolder
from tests.runs import plain_records, write_run

Asked = tuple[int, dict[str, str], str]
WHO = {"rater": "ana", "tab": "t1"}


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return write_run(tmp_path / "run", plain_records(30), 30)


@asynccontextmanager
async def asking(run: RunFolder) -> AsyncIterator[tuple[Callable[..., Awaitable[Asked]], str]]:
    async with (
        serving_labels(open_labelling(run, "empathy")) as url,
        aiohttp.ClientSession() as session,
    ):

        async def ask(path: str, method: str = "GET", at: str = url, **about: Any) -> Asked:
            async with session.request(method, URL(at + path, encoded=True), **about) as answer:
                return answer.status, dict(answer.headers), await answer.text()

        yield ask, url


def labels_of(run: RunFolder) -> list[str]:
    file = Path(run.path) / FILE
    return file.read_text().splitlines() if file.exists() else []


def test_a_label_is_written_before_it_is_answered(run: RunFolder) -> None:
    async def whole() -> None:
        async with asking(run) as (ask, _):
            status, headers, page = await ask("")
            assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
            assert "openai/gpt-4o" not in page
            _, _, body = await ask("state?rater=ana&tab=t1")
            unit = json.loads(body)["unit"]
            assert "small-t" not in body  # no candidate
            assert "warm" not in body  # no judgment
            label = {**WHO, "id": "e1", "unit": unit["id"], "value": 4}
            status, _, body = await ask("answer", "POST", json=label)
            assert (status, json.loads(body)["labelled"]) == (200, 1)
            (line,) = labels_of(run)
            assert json.loads(line)["value"] == 4
            status, _, body = await ask("undo", "POST", json={**WHO, "id": "e2"})
            assert json.loads(body)["unit"]["id"] == unit["id"]
            await ask("answer", "POST", json=label | {"id": "e3", "value": 2})
            status, headers, text = await ask("labels.csv")
            assert headers["Content-Type"] == "text/csv; charset=utf-8"
            assert "labels-empathy.csv" in headers["Content-Disposition"]
            assert len(text.splitlines()) >= 2
            status, _, text = await ask("agreement")
            assert json.loads(text)["raters"] == {"ana": 1}

    asyncio.run(whole())


def test_nothing_is_read_or_written_without_the_token(run: RunFolder) -> None:
    async def whole() -> None:
        async with asking(run) as (ask, url):
            base = url[: url.rstrip("/").rindex("/") + 1]
            token = url.rstrip("/").rpartition("/")[2]
            for path in (
                "",
                "x/",
                "state",
                "x/state?rater=a&tab=b",
                f"{token}x/",
                f"{token[:-1]}/",
            ):
                assert (await ask(path, at=base))[0] == 404, path
            label = {**WHO, "id": "e", "unit": "u", "value": 1}
            assert (await ask("wrong/answer", "POST", at=base, json=label))[0] == 404
        assert labels_of(run) == []

    asyncio.run(whole())


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1.evil.example"}, 421),
    ],
)
def test_another_site_s_page_reads_and_writes_nothing(
    run: RunFolder, headers: dict[str, str], status: int
) -> None:
    async def whole() -> None:
        async with asking(run) as (ask, _):
            _, _, body = await ask("state?rater=ana&tab=t1")
            unit = json.loads(body)["unit"]["id"]
            label = {**WHO, "id": "e", "unit": unit, "value": 1}
            for path in ("", "state?rater=ana&tab=t1", "labels.csv", f"quotes?unit={unit}"):
                got, answered, text = await ask(path, headers=headers)
                assert (got, unit in text) == (status, False)
                assert "Access-Control-Allow-Origin" not in answered
            assert (await ask("answer", "POST", json=label, headers=headers))[0] == status
            assert (await ask("undo", "POST", json={**WHO, "id": "x"}, headers=headers))[
                0
            ] == status
            got, answered, _ = await ask("answer", "OPTIONS", headers=headers)
            assert got in (403, 405, 421)
            assert not [name for name in answered if name.startswith("Access-Control")]
        assert labels_of(run) == []

    asyncio.run(whole())


def test_a_form_of_another_site_cannot_be_sent(run: RunFolder) -> None:
    async def whole() -> None:
        async with asking(run) as (ask, _):
            text = json.dumps({**WHO, "id": "e", "unit": "u", "value": 1})
            for kind in ("text/plain", "application/x-www-form-urlencoded"):
                got = await ask("answer", "POST", data=text, headers={"Content-Type": kind})
                assert got[0] == 415
        assert labels_of(run) == []

    asyncio.run(whole())


@pytest.mark.parametrize(
    "sent",
    ["", "{", "[]", "null", '{"rater": "a"}', '{"rater": "a", "tab": "t", "id": "e", "unit": "u", '
     '"value": "four"}', '{"rater": "a", "tab": "t", "id": "e", "unit": "u", "value": 1, "x": 1}',
     '{"rater": "", "tab": "t", "id": "e", "unit": "u", "value": 1}'],
)  # fmt: skip
def test_what_is_no_label_is_refused_in_words(run: RunFolder, sent: str) -> None:
    async def whole() -> None:
        async with asking(run) as (ask, _):
            json_type = {"Content-Type": "application/json"}
            status, _, text = await ask("answer", "POST", data=sent, headers=json_type)
            assert status == 400
            assert json.loads(text)["error"]
            status, _, _ = await ask("answer", "POST", data="x" * 100_000, headers=json_type)
            assert status == 413
            assert (await ask("answer", "PUT", data=sent, headers=json_type))[0] == 405
        assert labels_of(run) == []

    asyncio.run(whole())
