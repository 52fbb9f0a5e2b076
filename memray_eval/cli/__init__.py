"""The command line: `memray-eval --help`. Thin: it reads options, calls the rooms below, and turns errors into messages."""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import suppress
from typing import NoReturn

from memray_eval.cli import calibrating, comparing, looking, making, running, scoring, submitting, viewing  # noqa: F401 (their commands join the app)
from memray_eval.cli.app import app, say
from memray_eval.errors import EvalError


def program() -> NoReturn:
    """The command `memray-eval`: `main`, and an exit code that stands. An Arrow thread still at work when the interpreter is
    taken down aborts it with code 134 (apache/arrow#34314), so the process ends before that, once what is registered for its
    end has run."""
    try:
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(BrokenPipeError):
            stream.flush()
    os._exit(code)


def main() -> NoReturn:
    """The command line as a function, which raises SystemExit: an error of ours is a message and its exit code; Ctrl-C is 130;
    anything else is a bug and shows."""
    try:
        app()
    except EvalError as error:
        say(f"error: {error}")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        say("interrupted")
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(0)
    sys.exit(0)
