"""Handles SIGTERM as Ctrl-C, and a cancelled call from Python as both: each ends a session in
order, and its exit code says which it was."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType

# Set when who waits for this thread's work has cancelled it
cancelled: ContextVar[threading.Event | None] = ContextVar("cancelled", default=None)
POLL_S = 1.0  # until a thread sees that its work is over
DRAIN_S = 25.0  # Kubernetes and the clouds' spot nodes leave 30 s between SIGTERM and SIGKILL


class Ending:
    """The signal that ended the work, once one has: Ctrl-C, unless SIGTERM came."""

    def __init__(self) -> None:
        self.number = signal.SIGINT
        self._signalled: threading.Event | None = None
        self._cancelled = cancelled.get()  # of this thread; `stop` is called in another

    @property
    def cause(self) -> str:
        """What ended the work, in a word."""
        return self.number.name if self._cancelled is None else "its caller"

    @property
    def exit_code(self) -> int:
        return 128 + self.number

    @contextmanager
    def draining(self, stop: Callable[[], object], limit_s: float = DRAIN_S) -> Iterator[None]:
        """Lets the block end by itself after a signal: `stop` is called, in a thread, and is to
        have it finish what is under way. KeyboardInterrupt is raised at its end; in its middle by a
        second signal, or when it takes longer than `limit_s`. Beside the main thread `cancelled` is
        the signal, without a limit."""
        is_main = threading.current_thread() is threading.main_thread()
        if not is_main and self._cancelled is None:
            yield
            return
        signalled, is_over, lock = threading.Event(), threading.Event(), threading.Lock()
        stopping = self._cancelled or signalled
        main = threading.get_ident()

        def drain() -> None:
            while not stopping.wait(POLL_S) and not is_over.is_set():
                pass
            if is_over.is_set():
                return
            stop()
            if is_main and not is_over.wait(limit_s):
                with lock:
                    if not is_over.is_set():
                        signal.pthread_kill(main, self.number)

        self._signalled = signalled
        threading.Thread(target=drain, daemon=True, name="drain").start()
        try:
            yield
        finally:
            self._signalled = None
            was_asked = stopping.is_set()
            with lock:
                is_over.set()
            signalled.set()
        if was_asked:
            raise KeyboardInterrupt

    def handle(self, number: int, frame: FrameType | None) -> None:
        self.number = signal.Signals(number)
        if self._signalled is None or self._signalled.is_set():
            raise KeyboardInterrupt
        self._signalled.set()


@contextmanager
def handle_termination() -> Iterator[Ending]:
    """Makes SIGTERM raise KeyboardInterrupt in this block, as Ctrl-C does, or both drain what
    `Ending.draining` encloses. An ignored SIGINT stays so. No effect beside the main thread."""
    ending = Ending()
    if threading.current_thread() is not threading.main_thread():
        yield ending
        return
    numbers, interrupt = [signal.SIGTERM], signal.getsignal(signal.SIGINT)
    # Python's own handler, or that of such a block around this one
    if interrupt is signal.default_int_handler or isinstance(
        getattr(interrupt, "__self__", None), Ending
    ):
        numbers.append(signal.SIGINT)
    before = {number: signal.signal(number, ending.handle) for number in numbers}
    try:
        yield ending
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
