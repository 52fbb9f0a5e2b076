"""Runs in this process, without Ray: what a run does, whatever drives its stages."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.build import Job, served_job


@pytest.fixture(scope="session", autouse=True)
def _keys() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MY_TEST_KEY", "test-key")
        patch.setenv("SECOND_TEST_KEY", "second-test-key")
        yield


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """tests.build.served_job, into this test's folder."""
    return partial(served_job, tmp_path, executor="local")
