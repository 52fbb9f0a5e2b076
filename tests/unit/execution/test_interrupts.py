"""SIGTERM ends a session as Ctrl-C does, and the command line says how and where to go on."""

import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any
from unittest.mock import Mock

import pytest

from memray_eval import cli
from memray_eval.cli.app import escape_what_cannot_be_shown
from memray_eval.errors import ConfigError, Interrupted, ServiceLost
from memray_eval.execution.interrupts import Ending, handle_termination
from memray_eval.execution.ray.cluster import keep_own_signals


def drain(numbers: Sequence[signal.Signals], limit_s: float = 30.0) -> tuple[list[str], int]:
    """What became of work that gets these signals one after the other, and takes ten seconds where
    it is not stopped; the exit code."""
    stopped, done = threading.Event(), list[str]()

    def work(ending: Ending) -> None:
        with ending.draining(stopped.set, limit_s):
            for number in numbers:
                os.kill(os.getpid(), number)
                stopped.wait(5)
            done.append("stopped" if stopped.is_set() else "not stopped")
            time.sleep(10.0 if limit_s < 1 else 0.0)
            done.append("finished")
        done.append("went on")

    with handle_termination() as ending, pytest.raises(KeyboardInterrupt):
        work(ending)
    return done, ending.exit_code


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_work_under_way_end(number: signal.Signals) -> None:
    assert drain([number]) == (["stopped", "finished"], 128 + number)
    with handle_termination():  # the command line's, around the session's
        assert drain([number]) == (["stopped", "finished"], 128 + number)


def test_a_second_signal_or_a_limit_ends_the_work_at_once() -> None:
    assert drain([signal.SIGTERM, signal.SIGTERM]) == ([], 143)
    assert drain([signal.SIGTERM], limit_s=0.5) == (["stopped"], 143)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_without_a_signal_nothing_is_stopped_and_afterwards_either_interrupts_at_once(
    number: signal.Signals, code: int
) -> None:
    before, stopped = signal.getsignal(signal.SIGTERM), threading.Event()
    with handle_termination() as ending:
        with ending.draining(stopped.set):
            pass
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    assert ending.exit_code == code
    assert signal.getsignal(signal.SIGTERM) is before
    assert not stopped.is_set()
    for thread in [thread for thread in threading.enumerate() if thread.name == "drain"]:
        thread.join(5)
        assert not thread.is_alive()


def test_a_sigint_that_is_ignored_stays_so_and_another_librarys_handler_does_not_stay() -> None:
    inherited = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with handle_termination():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
            ours = signal.getsignal(signal.SIGTERM)
            with keep_own_signals():
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            assert signal.getsignal(signal.SIGTERM) is ours
    finally:
        signal.signal(signal.SIGINT, inherited)


GO_ON = "Go on with `memray-eval resume results/r`."


def noted(error: Exception) -> Exception:
    error.add_note(GO_ON)
    return error


@pytest.mark.parametrize(
    ("raised", "code", "message"),
    [
        (Interrupted("By SIGTERM: 3 of 9. Go on.", 143), 143, "By SIGTERM: 3 of 9. Go on.\n"),
        (noted(ServiceLost("the ledger died")), 3, f"error: the ledger died\n{GO_ON}\n"),
        (ConfigError("no such key"), 2, "error: no such key\n"),
        (OSError(28, "No space left", "/x"), 3, "error: [Errno 28] No space left: '/x'\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
    ],
)
def test_how_a_command_ends(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    raised: BaseException,
    code: int,
    message: str,
) -> None:
    monkeypatch.setattr(cli, "app", Mock(side_effect=raised))
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert (end.value.code, capsys.readouterr().err) == (code, message)


def test_an_interrupt_that_typer_takes_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import typer

    app = typer.Typer()

    @app.command()
    def wait() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()

    monkeypatch.setattr(cli, "app", app)
    monkeypatch.setattr(sys, "argv", ["memray-eval"])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert (end.value.code, capsys.readouterr().err) == (143, "interrupted\n")


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [("ascii", "caf\\u00e9 \\ud83d\\ude00"), ("latin-1", "café \\ud83d\\ude00")],
)
def test_output_that_is_no_utf8_is_escaped_as_json_is(
    monkeypatch: pytest.MonkeyPatch, encoding: str, shown: str
) -> None:
    out, err = (
        io.TextIOWrapper(io.BytesIO(), encoding=name, write_through=True)
        for name in (encoding, "utf-8")
    )
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    escape_what_cannot_be_shown()
    print("café \U0001f600")
    print("\U0001f600")
    written: Any = out.buffer
    assert written.getvalue().decode(encoding).splitlines()[0] == shown
    notes: Any = err.buffer
    assert notes.getvalue().decode().count("note: the output is") == 1


@pytest.mark.heavy
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_a_full_disk_below_the_output_is_a_message() -> None:
    command = [sys.executable, "-m", "memray_eval", "list", "suites"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 3
    assert "[Errno 28] No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
