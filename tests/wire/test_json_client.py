"""Where a judge's calls go: redirects at one origin, the environment's proxy."""

import asyncio

import pytest

from memray_eval.errors import JudgeError
from memray_eval.provider_http.replies import Edge, HttpReply
from memray_eval.provider_http.transport import JsonClient, encode
from tests.servers.provider import Raw, serving

BODY = {"z": "é", "a": {"y": 1, "b": 2**70}}


async def post(url: str) -> HttpReply:
    client = JsonClient(Edge(url), {"Authorization": "Bearer key"}, 5.0)
    try:
        return await client.post("chat/completions", encode(BODY), {})
    finally:
        await client.aclose()


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_at_one_origin_is_followed_with_the_body(status: int) -> None:
    moved = [Raw(b"", status=status, headers={"location": "/v1/chat/completions"}), Raw(b"{}")]
    with serving(lambda body: moved.pop(0)) as server:
        reply = asyncio.run(post(f"{server.base_url}/"))
    assert (reply, server.requests) == (HttpReply(200, b"{}"), [BODY, BODY])
    assert [[*body] for body in server.requests] == [["z", "a"]] * 2, "keys keep their order"


def test_redirects_without_end_are_an_error() -> None:
    moved = Raw(b"", status=308, headers={"location": "/v1/chat/completions"})
    with serving(lambda body: moved) as server, pytest.raises(JudgeError, match="without end"):
        asyncio.run(post(f"{server.base_url}/"))
    assert len(server.requests) == 10


@pytest.mark.parametrize("without", ["", "judge.invalid"])
def test_the_proxy_of_the_environment_is_used(
    without: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(lambda body: Raw(b"{}")) as proxy:
        monkeypatch.setenv("http_proxy", f"http://user:word@127.0.0.1:{proxy.port}")
        monkeypatch.setenv("no_proxy", without)
        if without:
            with pytest.raises(OSError, match=r"judge\.invalid"):
                asyncio.run(post("http://judge.invalid/v1/"))
            assert not proxy.requests
        else:
            assert asyncio.run(post("http://judge.invalid/v1/")).status == 200
            sent = {name.lower(): value for name, value in proxy.headers[0].items()}
            expected = ("judge.invalid", "Basic dXNlcjp3b3Jk")
            assert (sent["host"], sent["proxy-authorization"]) == expected
