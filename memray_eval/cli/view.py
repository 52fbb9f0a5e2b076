"""The commands that show runs: view, in a browser, and list runs."""

import asyncio
import json
import signal
import threading
import webbrowser
from contextlib import AbstractAsyncContextManager

import typer

from memray_eval.cli.app import LOOK, app, list_app, now_and_then, say, show
from memray_eval.cli.options import JobOptions, flag, option
from memray_eval.errors import DataError

RESULTS = "results"  # the default folder of runs
FOLDER = typer.Argument(RESULTS, help="A folder of runs; a path or a cloud URL.")


@list_app.command("runs", epilog="Example: memray-eval list runs")
def list_runs(folder: str = FOLDER, as_json: bool = JobOptions.as_json) -> None:
    """List a folder's runs, newest first: status, headline figure, answers, cost and duration."""
    from memray_eval.report.runs_list import RunList, to_lines
    from memray_eval.results.lookup import holds_runs
    from memray_eval.results.run_folder import RunFolder

    if RunFolder(folder).has_manifest():
        raise DataError(f"{folder} is one run; name the folder that holds it")
    if not holds_runs(folder):
        raise DataError(_what_instead_of(folder))
    rows = list(RunList(folder).rows().values())
    if not rows and not as_json:
        say(f"no run in {folder}; start with: memray-eval run quickstart")
        return
    listed = json.dumps([row.model_dump(mode="json") for row in rows], indent=2, ensure_ascii=False)
    show(listed if as_json else "\n".join(to_lines(rows)))


@app.command(rich_help_panel=LOOK, epilog="Example: memray-eval view results")
def view(
    folder: str = typer.Argument(
        RESULTS,
        help="A folder of runs, or one run folder, finished or not; a path or a cloud URL; or "
        "latest, or latest~1 for the run before.",
    ),
    port: int = option("Port to listen on; 0 picks a free one.", default=0, min=0, max=65535),
    is_opened: bool = flag("Open the page in the browser.", None, "--open"),
) -> None:
    """Browse runs of any size in the browser.

    For a folder: the list of its runs, updated while they run, and a comparison of those you
    pick. For a run: the report, and every sample to filter, sort, search and read. Every page
    has a permanent address.

    The server only reads, listens on this machine only (to all of its users), and ends with
    Ctrl-C."""
    from memray_eval.report import run_view, view_server
    from memray_eval.report.runs_list import RunList
    from memray_eval.results.lookup import find_run, holds_runs
    from memray_eval.results.run_folder import RunFolder

    folder = find_run(folder)
    if holds_runs(folder):
        asyncio.run(_serve(view_server.serving_runs(RunList(folder), port), is_opened))
        return
    run = RunFolder(folder)
    if not run.has_manifest():
        raise DataError(_what_instead_of(folder))
    viewed = run_view.open_view(run, now_and_then(lambda n: say(f"  {n:,} answers read")))
    asyncio.run(_serve(view_server.serving(viewed, port), is_opened))


def _what_instead_of(folder: str) -> str:
    from memray_eval.results.run_folder import RunFolder

    if folder == RESULTS:
        first = "no run was made here yet; start with: memray-eval run quickstart"
        return RunFolder(folder).what_instead(first)
    what_to_do = "give one of them, such as results/<run_id>"
    what = f"{folder} has no manifest.json, and is no folder that holds run folders"
    return f"{what}; {RunFolder(folder).what_instead(what_to_do)}"


async def _serve(serving: AbstractAsyncContextManager[str], is_opened: bool) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with serving as url:
        show(url)
        say("Ctrl-C ends it")
        # In a thread of its own: a browser within the terminal stays until it is closed
        if is_opened:
            threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
        await ended.wait()
