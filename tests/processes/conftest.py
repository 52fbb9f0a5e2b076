"""An S3 server, and this process let into it."""

from collections.abc import Iterator

import pytest

from tests.servers.s3 import S3Server, serving_s3


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with serving_s3() as server:
        yield server


@pytest.fixture
def open_s3(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """The server, with this process let in."""
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    return s3
