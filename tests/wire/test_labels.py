"""`memray-eval view RUN --label` over real HTTP: labels given, and what is turned away."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yarl import URL

from memray_eval.report.labelling import LabelSession, open_labelling
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
async def asking(
    run: RunFolder, session: LabelSession | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[tuple[Callable[..., Awaitable[Asked]], str]]:
    async with (
        serving_labels(session or open_labelling(run, "empathy"), host=host) as url,
        aiohttp.ClientSession() as client,
    ):

        async def ask(path: str, method: str = "GET", at: str = url, **about: Any) -> Asked:
            async with client.request(method, URL(at + path, encoded=True), **about) as answer:
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
            queue, line = labels_of(run)
            assert (json.loads(queue)["kind"], json.loads(line)["value"]) == ("queue", 4)
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


def test_slow_clients_hold_up_nobody(run: RunFolder) -> None:
    """Forty that send half a label, or never read what they asked for."""

    async def whole() -> None:
        async with asking(run) as (ask, url):
            address, path = URL(url), URL(url).path
            held = []
            for number in range(40):
                _, writer = await asyncio.open_connection(address.host, address.port)
                head = f"Host: 127.0.0.1:{address.port}\r\n"
                half = f"POST {path}answer HTTP/1.1\r\n{head}Content-Type: application/json\r\n"
                half += 'Content-Length: 500\r\n\r\n{"rater"'
                unread = f"GET {path} HTTP/1.1\r\n{head}\r\n" * 50
                writer.write((half if number % 2 else unread).encode())
                await writer.drain()
                held.append(writer)
            start = time.monotonic()
            _, _, body = await ask("state?rater=ana&tab=t1")
            label = {**WHO, "id": "e1", "unit": json.loads(body)["unit"]["id"], "value": 4}
            assert (await ask("answer", "POST", json=label))[0] == 200
            assert time.monotonic() - start < 5
            for writer in held:
                writer.close()

    asyncio.run(whole())


def test_raters_of_a_queue_see_no_labels_until_all_are_done(run: RunFolder) -> None:
    async def whole() -> None:
        session = open_labelling(run, "empathy")
        session.share(["ana", "bo"], limit=1)
        async with asking(run, session=session) as (ask, _):
            assert (await ask("state?rater=eve&tab=t"))[0] == 400
            _, _, body = await ask("state?rater=ana&tab=t1")
            unit = json.loads(body)["unit"]["id"]
            label = {**WHO, "id": "e1", "unit": unit, "value": 4, "answer": "Rest.", "comment": "!"}
            assert (await ask("answer", "POST", json=label))[0] == 200
            status, _, text = await ask("labels.csv")
            assert (status, "Rest" in text) == (400, False)
            agreement = json.loads((await ask("agreement"))[2])
            assert (agreement["left"], agreement["figures"]) == ({"ana": 0, "bo": 1}, None)
            label |= {"rater": "bo", "id": "e2", "value": 3}
            assert (await ask("answer", "POST", json=label))[0] == 200
            assert json.loads((await ask("agreement"))[2])["figures"] is not None
            assert "Rest." in (await ask("labels.csv"))[2]

    asyncio.run(whole())


def test_other_machines_need_the_token(run: RunFolder) -> None:
    """Beyond this machine the server has any name; its own pages alone may write."""

    async def whole() -> None:
        async with asking(run, host="0.0.0.0") as (ask, url):
            port, path = URL(url).port, URL(url).path
            here = f"http://127.0.0.1:{port}"
            lab = {"Host": f"lab.example:{port}"}
            asked = "state?rater=ana&tab=t1"
            assert (await ask(path + asked, at=here, headers=lab))[0] == 200
            assert (await ask(f"/{asked}", at=here, headers=lab))[0] == 404
            other = lab | {"Origin": "http://evil.example"}
            label = {**WHO, "id": "e", "unit": "u", "value": 1}
            for headers, status in ((other, 403), (lab | {"Sec-Fetch-Site": "cross-site"}, 403)):
                sent = await ask(f"{path}answer", "POST", at=here, json=label, headers=headers)
                assert sent[0] == status
        assert labels_of(run) == []

    asyncio.run(whole())
