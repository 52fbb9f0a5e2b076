"""The command that serves a run to a browser: view."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
import webbrowser
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from memray_eval.cli.app import LOOK, app, say, show

if TYPE_CHECKING:
    from memray_eval.report.view import View

PROGRESS_S = 5.0


@app.command(rich_help_panel=LOOK)
def view(
    run_folder: Annotated[
        str,
        typer.Argument(
            help="The folder of a run, finished or not: results/<run_id>, its cloud URL, or "
            "latest.",
            show_default=False,
        ),
    ],
    port: Annotated[
        int,
        typer.Option(min=0, max=65535, help="Where to listen on this machine; 0 is a free port."),
    ] = 0,
    is_opened: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Look at a run of any size in the browser: the report, and every sample to filter, sort,
    search and read.

    The server reads only, listens to this machine alone (whoever may use it can look), and ends
    with Ctrl-C."""
    from memray_eval.report.view import viewing
    from memray_eval.results.latest import find_run
    from memray_eval.results.run_folder import RunFolder

    with viewing(RunFolder(find_run(run_folder)), _make_progress(time.monotonic)) as viewed:
        asyncio.run(_serve(viewed, port, is_opened))


async def _serve(viewed: View, port: int, is_opened: bool) -> None:
    from memray_eval.report.view import serving

    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with serving(viewed, port) as url:
        show(url)
        say("Ctrl-C ends it")
        # In a thread of its own: a browser within the terminal stays until it is closed
        if is_opened:
            threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
        await ended.wait()


def _make_progress(clock: Callable[[], float]) -> Callable[[int], None]:
    """Makes a function that prints how many units are read, at most every PROGRESS_S seconds."""
    last_told = clock()

    def tell(n_units: int) -> None:
        nonlocal last_told
        if clock() - last_told >= PROGRESS_S:
            last_told = clock()
            say(f"  {n_units:,} units read")

    return tell
