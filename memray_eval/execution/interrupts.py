"""Handles SIGTERM as Ctrl-C: both end a session in order, and its exit code says which it was."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


@dataclass
class Ending:
    """Which signal ended the work, once one has: Ctrl-C, unless SIGTERM came."""

    number: signal.Signals = signal.SIGINT

    @property
    def exit_code(self) -> int:
        return 128 + self.number


@contextmanager
def handle_termination() -> Iterator[Ending]:
    """Makes SIGTERM raise KeyboardInterrupt in this block, as Ctrl-C does. Without effect in a
    thread beside the main one, where Python delivers no signals."""
    ending = Ending()

    def interrupt(number: int, frame: FrameType | None) -> None:
        ending.number = signal.Signals(number)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield ending
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield ending
    finally:
        signal.signal(signal.SIGTERM, before if before is not None else signal.SIG_DFL)
