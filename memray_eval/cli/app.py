"""The typer apps, and what commands print."""

from __future__ import annotations

import codecs
import io
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from textwrap import TextWrapper
from typing import TYPE_CHECKING, TextIO

import typer

from memray_eval._version import __version__
from memray_eval.cli.options import flag, option
from memray_eval.text_processing.values import escape_controls

if TYPE_CHECKING:
    from memray_eval.results.run_folder import RunFolder

PROGRESS_S = 5.0
BEGAN: list[float] = []  # when the process of a command began; of other callers of the app none
COMMAND = "memray-eval "
# Colours of lines by their start: red, yellow, bold (what a run was, a section's title), cyan
COLOURS = (
    (re.compile("error: "), "31"),
    (re.compile("warning: |Stopping"), "33"),
    (re.compile(r"[\w-]+: [\d,]+ answers of |[A-Z][A-Z ,-]+$"), "1"),
    (re.compile(rf" +(\S.*:  )?{COMMAND}"), "36"),
)
_ESCAPE = "memray_eval_escape"  # the handler of what an encoding lacks
# Options of other programs, by ours; --help does not show them
_ALIASES = {"data": "dataset", "judge-model": "judge"}
app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={
        "help_option_names": ["-h", "--help"],
        "token_normalize_func": lambda token: _ALIASES.get(token, token),
    },
    help="Evaluate language models with a memory of their user, and long-context models, on a "
    "laptop or a Ray cluster.\n\n"
    "Start with: memray-eval run quickstart (no key, no GPU needed). Coming from another program's "
    "commands or fields: jobs/COMING_FROM.md.\n\n"
    "Exit codes: 0 done; 1 finished with too many failed answers, "
    "stopped early, a named metric applied to nothing, or a gate of compare failed; 2 wrong usage, "
    "config or dataset; 3 nothing could run, or a service that the run needs has died; 4 judge "
    "calls are in provider batches (--detach); 5 a gate of compare is inconclusive; 130 ended by "
    "Ctrl-C, 143 by SIGTERM: finished work is kept, and `memray-eval resume latest` continues.",
)
dataset_app = typer.Typer(no_args_is_help=True, help="Check and make datasets.")
cache_app = typer.Typer(no_args_is_help=True, help="Inspect or clear the cache of judge calls.")
list_app = typer.Typer(
    no_args_is_help=True, help="List runs, metrics, suites, judges and providers."
)
config_app = typer.Typer(no_args_is_help=True, help="Show what a job's keys resolve to.")
# The groups of commands that --help shows
GROUPS = RUN, LOOK, DATA, CLUSTER = "Run", "Look", "Data and jobs", "Cluster and machine"
app.add_typer(dataset_app, name="dataset", rich_help_panel=DATA)
app.add_typer(list_app, name="list", rich_help_panel=DATA)
app.add_typer(cache_app, name="cache", rich_help_panel=CLUSTER)
app.add_typer(config_app, name="config", rich_help_panel=DATA)


@app.callback(invoke_without_command=True)
def version(
    show: bool = flag("Print the version.", None, "--version"),
    verbosity: int = option(
        "Show a run's log on stderr; -vv shows all of it. The run folder's log.jsonl always has "
        "it.",
        None,
        "--verbose",
        "-v",
        default=0,
        count=True,
    ),
) -> None:
    if verbosity:
        from memray_eval.execution.run_log import show_log

        show_log(verbosity)
    if show:
        print(__version__)
        raise typer.Exit


def say(text: str) -> None:
    """Prints a line for a person on stderr, with control characters escaped."""
    print(for_terminal(escape_controls(text), sys.stderr, wraps=True), file=sys.stderr, flush=True)


def show(text: str, end: str = "\n") -> None:
    """Prints a result on stdout, with control characters escaped."""
    print(for_terminal(escape_controls(text), sys.stdout), end=end, flush=True)


def for_terminal(text: str, stream: TextIO, wraps: bool = False) -> str:
    """The text as a terminal shows it: lines in the colours of COLOURS, unless NO_COLOR
    (no-color.org) is set; with `wraps`, broken between words at its width, but for commands, which
    are copied. Unchanged if the stream is not a terminal."""
    if not stream.isatty() or os.environ.get("TERM") == "dumb":
        return text
    lines = text.split("\n")
    if wraps:
        width = shutil.get_terminal_size().columns
        words = TextWrapper(width, subsequent_indent="  ", break_long_words=False)
        words.break_on_hyphens = False
        lines = [
            part
            for line in lines
            for part in ([line] if COMMAND in line else words.wrap(line) or [""])
        ]
    if not os.environ.get("NO_COLOR"):
        colours = [next((code for mark, code in COLOURS if mark.match(line)), "") for line in lines]
        pairs = zip(colours, lines, strict=True)
        lines = [f"\x1b[{code}m{line}\x1b[0m" if code else line for code, line in pairs]
    return "\n".join(lines)


@contextmanager
def prints_on_stderr(is_on: bool) -> Iterator[None]:
    """Sends what users' code prints to stderr, so that stdout has the result alone."""
    if not is_on:
        yield
        return
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def now_and_then(report: Callable[[int], None]) -> Callable[[int], None]:
    """The same function, called at most every PROGRESS_S seconds."""
    last = time.monotonic()

    def call(n: int) -> None:
        nonlocal last
        if time.monotonic() - last >= PROGRESS_S:
            last = time.monotonic()
            report(n)

    return call


def shorten_path(path: str) -> str:
    """A path below the working folder relative to it; others whole."""
    return path.removeprefix(f"{os.getcwd()}{os.sep}")


def print_report(run: RunFolder, as_json: bool, full: bool) -> None:
    """Prints a run's summary: on one screen, in full, or as JSON; of a pairwise run its figures."""
    from memray_eval.analysis.pairs import read_report
    from memray_eval.report.comparison_console import render_pairs
    from memray_eval.report.console import render, render_brief
    from memray_eval.report.tables import read_failed_calls

    summary = run.read_summary()
    path = shorten_path(run.path)
    if as_json:
        show(summary.model_dump_json(indent=2))
    elif full:
        show(render(summary, read_failed_calls(run, summary)), end="")
    elif (pairs := read_report(run)) is not None:
        show(f"{render_pairs(pairs)}The run is in {path}")
    else:
        show(render_brief(summary, path), end="")


def escape_what_cannot_be_shown() -> None:
    """Makes stdout and stderr write what their encoding lacks as JSON's escapes, such as \\u00e9,
    instead of raising."""
    noted: set[str] = set()

    def escape(error: UnicodeError) -> tuple[str, int]:
        if not isinstance(error, UnicodeEncodeError):
            raise error
        if error.encoding not in noted and error.encoding not in ("utf-8", "utf8"):
            noted.add(error.encoding)
            print(
                f"note: the output is {error.encoding}; what that cannot show is escaped. Set "
                "PYTHONIOENCODING=utf-8 to see it.",
                file=sys.stderr,
                flush=True,
            )
        return json.dumps(error.object[error.start : error.end])[1:-1], error.end

    codecs.register_error(_ESCAPE, escape)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ESCAPE)
