"""The command line: `memray-eval --help`. Thin: it reads options, calls the rooms below, and turns
errors into messages."""

import atexit
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from memray_eval import IMPORTED_S
from memray_eval.cli import begin, calibrate, compare, dataset, inspect, run, submit, view  # noqa: F401 (their commands join the app)
from memray_eval.cli.app import BEGAN, GROUPS, app, escape_what_cannot_be_shown, say
from memray_eval.config.loading import shipped_jobs
from memray_eval.errors import BatchesUnderWay, EvalError, Interrupted, reason_of
from memray_eval.execution.interrupts import handle_termination
from memray_eval.withdrawn import what_instead

# --help shows a group at the place of its first command
app.registered_commands.sort(key=lambda command: GROUPS.index(str(command.rich_help_panel)))
INTERRUPTED = 130  # typer's code for Ctrl-C, which it gives for SIGTERM as well


def program(at_end: Callable[[int], None] = lambda code: None) -> NoReturn:
    """The command `memray-eval`: runs `main` and keeps its exit code. An Arrow thread still at work
    when the interpreter is taken down aborts it with code 134 (apache/arrow#34314), so the process
    ends before that, once what is registered for its end has run. `at_end` is the last."""
    BEGAN.append(IMPORTED_S)
    try:
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except BrokenPipeError:
            pass
        except OSError as error:
            with suppress(OSError):
                say(f"error: the output cannot be written: {reason_of(error)}")
            code = EvalError.exit_code
    at_end(code)
    os._exit(code)


def main() -> NoReturn:
    """The command line as a function, which raises SystemExit: an error of ours is a message and
    its exit code; Ctrl-C is 130, SIGTERM 143; what the system refuses (a full disk) is a message
    and 3; anything else is a bug and shows."""
    escape_what_cannot_be_shown()
    with handle_termination() as ending:
        try:
            app()
        except Interrupted as end:
            say(str(end))
            sys.exit(end.exit_code)
        except BatchesUnderWay as end:
            say(" ".join([str(end), *getattr(end, "__notes__", ())]))
            sys.exit(end.exit_code)
        except BrokenPipeError:
            sys.exit(0)
        except (EvalError, OSError) as error:
            say("\n".join([f"error: {error}", *getattr(error, "__notes__", ())]))
            sys.exit(getattr(error, "exit_code", EvalError.exit_code))
        except SystemExit as end:
            _explain_usage(end.__context__)
            cause = getattr(end.__context__, "__cause__", None)  # typer makes an exit of Ctrl-C
            if end.code != INTERRUPTED or not isinstance(cause, KeyboardInterrupt):
                raise
            say("interrupted")
            sys.exit(ending.exit_code)
        except KeyboardInterrupt:
            say("interrupted")
            sys.exit(ending.exit_code)
    sys.exit(0)


def _explain_usage(error: object) -> None:
    """After a usage error: says what to do instead of an option or command that was withdrawn, and
    which jobs there are if none was named."""
    if hasattr(error, "format_message"):  # typer's and click's usage errors
        words = [*sys.argv[1:2], getattr(error, "option_name", "")]
        for instead in filter(None, map(what_instead, words)):
            say(instead)
    if getattr(getattr(error, "param", None), "name", "") == "config":
        command = getattr(getattr(error, "ctx", None), "info_name", "run")
        say(
            f"Name a job's file, or one of {', '.join(shipped_jobs())}. `memray-eval {command} "
            "server --model MODEL` asks a server such as Ollama"
        )
