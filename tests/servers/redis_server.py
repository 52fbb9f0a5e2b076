"""A redis-server of Debian's package, in a process of its own."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

START_S = 20.0


@contextmanager
def serving_redis(port: int = 0, password: str = "") -> Iterator[str]:
    """Its address, for judging.limits_at. Skips a test if the program or the client is absent."""
    if (program := shutil.which("redis-server")) is None:
        pytest.skip("no redis-server here: apt-get install redis-server")
    pytest.importorskip("redis", reason="no client here: pip install 'memray-eval[redis]'")
    if not port:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
    options = ["--port", str(port), "--bind", "127.0.0.1", "--loglevel", "warning"]
    options += ["--save", "", "--appendonly", "no"]  # nothing is written
    if password:
        options += ["--requirepass", password]
    with subprocess.Popen([program, *options], stdout=subprocess.DEVNULL) as process:
        try:
            _wait_until_up(port)
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            process.kill()


def _wait_until_up(port: int) -> None:
    deadline = time.monotonic() + START_S
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.05)
