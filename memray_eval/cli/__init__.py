"""The command line: `memray-eval --help`. Thin: it reads options, calls the rooms below, and turns errors into messages."""

from __future__ import annotations

import sys
from typing import NoReturn

from memray_eval.cli import calibrating, comparing, looking, making, running, scoring, submitting, viewing  # noqa: F401 (their commands join the app)
from memray_eval.cli.app import app, say
from memray_eval.errors import EvalError


def main() -> NoReturn:
    """The entry point: an error of ours is a message and its exit code; Ctrl-C is 130; anything else is a bug and shows."""
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
