"""What the job commands make of a server that is no Ray dashboard, or a proxy before one."""

import pytest
from aiohttp import web

from memray_eval.errors import ResourceError
from memray_eval.submission.package import Jobs
from tests.servers.provider import serving


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (200, b"<html>", "is not a Ray dashboard"),
        (200, b"[]", "is not a Ray dashboard"),
        (404, b"", "is not a Ray dashboard"),
        (403, b"", "did not let us in"),
        (400, b"a bad request", "answered 400: a bad request"),
        (429, b"slowly", "answered 429: slowly"),
        (502, b"", "answered 502: no text"),
    ],
)
def test_a_server_that_is_not_rays_is_a_message(
    status: int, body: bytes, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "")  # Jobs sets it; put back afterwards

    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=status, body=body)

    with (
        serving(lambda body: "", more=lambda provider: [web.get("/{path:.*}", answer)]) as server,
        pytest.raises(ResourceError, match=message),
    ):
        Jobs(server.root)
