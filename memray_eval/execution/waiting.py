"""Shows what a run waits for before its stages are up, and the stderr that a display writes to."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import IO, TypeAlias

from rich.console import Console

from memray_eval.text_processing.printable import escape_controls

# Around what a run waits for, with its name
Waiting: TypeAlias = Callable[[str], AbstractContextManager[None]]
SOON_S = 0.7  # what is there sooner needs no line
REFRESHES_PER_S = 2.0
PLAIN_EVERY_S = 60.0  # what is no terminal gets a line so often


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
    """A console that draws on a stream; None if it is no terminal that can be drawn on."""
    if not stream.isatty():  # whatever FORCE_COLOR makes rich believe
        return None
    console = Console(file=stream, highlight=False, markup=False, emoji=False)
    return console if console.is_terminal and not console.is_dumb_terminal else None


def open_cell() -> Callable[[str], None] | None:
    """A function that shows a text in this notebook's cell in place of the last one; None outside
    of a notebook. To be called in the cell's own thread."""
    ipython = sys.modules.get("IPython")
    if ipython is None or getattr(ipython.get_ipython(), "kernel", None) is None:
        return None
    handle = ipython.display.display({"text/plain": ""}, raw=True, display_id=True)
    return lambda text: handle.update({"text/plain": text}, raw=True)


@contextmanager
def beside(
    work: Callable[[threading.Event], None], name: str, timeout_s: float | None = 5.0
) -> Iterator[None]:
    """Runs `work` in a thread while the block runs. Its event is set at the block's end, which then
    waits for it (None: without limit)."""
    is_over = threading.Event()
    thread = threading.Thread(target=work, args=(is_over,), daemon=True, name=name)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join(timeout=timeout_s)


@contextmanager
def no_waiting(what: str) -> Iterator[None]:
    """Says nothing."""
    yield


@contextmanager
def show_waiting(what: str) -> Iterator[None]:
    """Says on stderr that `what` is waited for, if longer than SOON_S: on a terminal in a line that
    counts seconds and goes at the end, else in a line every PLAIN_EVERY_S."""

    def show(is_over: threading.Event) -> None:
        if not is_over.wait(SOON_S):
            _show_until(is_over, f"Waiting for {escape_controls(what)}", stream)

    with open_stderr() as stream, beside(show, "waiting", timeout_s=None):
        yield


def _show_until(is_over: threading.Event, text: str, stream: IO[str]) -> None:
    began = time.monotonic() - SOON_S
    console = open_console(stream)
    if console is None:
        print(f"{text} ...", file=stream, flush=True)
        while not is_over.wait(PLAIN_EVERY_S):
            print(f"{text} ({time.monotonic() - began:.0f} s) ...", file=stream, flush=True)
        return
    from rich.live import Live
    from rich.text import Text

    def draw() -> Text:
        line = f"{text} ({time.monotonic() - began:.0f} s)"
        return Text(line, style="dim", no_wrap=True, overflow="ellipsis")

    with Live(
        get_renderable=draw,
        console=console,
        refresh_per_second=REFRESHES_PER_S,
        transient=True,
        redirect_stdout=False,
    ):
        is_over.wait()
