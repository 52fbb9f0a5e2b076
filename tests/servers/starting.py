"""Servers of tests as processes of their own: each prints its port first."""

import http.client
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path


@contextmanager
def started(module: str, *words: str) -> Iterator[int]:
    """The port of the server that a module runs, until the block ends or this process does."""
    command, pipe = [sys.executable, "-m", module, *words], subprocess.PIPE
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, cwd=root, text=True, stdin=pipe, stdout=pipe) as process:
        try:
            assert process.stdout is not None
            if not (line := process.stdout.readline()):
                raise RuntimeError(f"{module} ended with {process.wait()}; see its stderr")
            yield int(line)
        finally:
            process.terminate()


def ask(
    port: int, method: str, path: str, body: str | None = None, headers: Mapping[str, str] = {}
) -> bytes:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request(method, path, body, dict(headers))
        response = connection.getresponse()
        answer = response.read()
    if response.status != 200:
        raise ValueError(f"{method} {path}: {response.status}")
    return answer
