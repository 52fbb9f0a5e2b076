"""The stderr of this process as a display writes to it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from rich.console import Console

PLAIN_EVERY_S = 10.0  # what is no terminal gets a line so often


@contextmanager
def open_stderr() -> Iterator[IO[str]]:
    """A stream of this process's stderr that stays with it where file descriptor 2 is turned away
    for a while, as it is when Ray starts."""
    try:
        number = os.dup(sys.stderr.fileno())
    except (OSError, ValueError, AttributeError):  # a test's or a notebook's: no file
        yield sys.stderr
        return
    encoding = sys.stderr.encoding
    with open(number, "w", encoding=encoding, errors="backslashreplace") as stream:
        yield stream


def open_console(stream: IO[str]) -> Console | None:
    """A console that draws on a stream; None where it is no terminal that can be drawn on."""
    if not stream.isatty():  # whatever FORCE_COLOR makes rich believe
        return None
    console = Console(file=stream, highlight=False, markup=False, emoji=False)
    return console if console.is_terminal and not console.is_dumb_terminal else None
