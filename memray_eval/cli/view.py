"""The command that serves runs to a browser: view."""

from __future__ import annotations

import asyncio
import signal
import threading
import webbrowser
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from memray_eval.cli.app import LOOK, app, now_and_then, say, show
from memray_eval.cli.options import Options, argument, flag, option, takes
from memray_eval.errors import ConfigError, DataError, reason_of

if TYPE_CHECKING:
    from memray_eval.report.labelling import LabelSession
    from memray_eval.results.run_folder import RunFolder

RESULTS = "results"  # where runs go unless told otherwise


@dataclass(frozen=True, kw_only=True)
class Labels(Options):
    """The options of `view --label`."""

    metric: str | None = argument(
        "With --label: the metric to label.  [default: the run's headline metric]", None
    )
    csv: Path | None = option(
        "With --label: write the labels so far to this file for `calibrate`, and exit.",
        show_default=False,
    )
    corrected: Path | None = option(
        "With --label: write the samples to which a rater wrote the right answer to this JSONL "
        "file, a dataset for the next run, and exit.",
        show_default=False,
    )
    queue: str | None = option(
        "With --label: share the units among these raters, as in ana,bo. They see each other's "
        "labels, and how far they agree, once all are done.",
        show_default=False,
    )
    overlap: float = option(
        "With --queue: the share of the units that two raters label.", default=1.0, min=0, max=1
    )
    limit: int | None = option(
        "With --queue: it ends after N units.  [default: all]", min=1, show_default=False
    )
    port: int = option("Port to listen on; 0 picks a free one.", default=0, min=0, max=65535)
    host: str = option(
        "With --label: the address to listen at; 0.0.0.0 lets other machines in, who need the "
        "token of the printed address.",
        default="127.0.0.1",
    )

    def check(self, is_labelling: bool) -> None:
        """Raises ConfigError for an option that goes with one which is absent."""
        of_label = (self.metric, self.csv, self.corrected, self.queue)
        if not is_labelling and (of_label != (None,) * 4 or self.host != "127.0.0.1"):
            raise ConfigError(
                "METRIC, --csv, --corrected, --queue and --host go with --label: memray-eval view "
                "RUN --label METRIC"
            )
        if self.queue is None and (self.overlap != 1 or self.limit is not None):
            raise ConfigError("--overlap and --limit go with --queue ana,bo: who shares the units")

    def open(self, run: RunFolder, is_opened: bool) -> None:
        """Serves the labelling of a run, or writes what its raters said to files."""
        from memray_eval.report.labelling import open_labelling
        from memray_eval.report.view.label_server import serving_labels

        session = open_labelling(run, self.metric)
        if self.queue is not None:
            session.share(self.queue.split(","), self.overlap, self.limit)
        shares = (f"{rater} {session.queue.assigned(rater).size}" for rater in session.queue.raters)
        if shared := ", ".join(shares):
            say(f"The queue is shared: {shared} units")
        if self.corrected is not None:
            text = session.write_corrected()
            if not text:
                raise ConfigError(
                    "no rater has written a right answer yet: there is nothing to write"
                )
            _write(self.corrected, text)
            n_samples = text.count("\n")
            say(f"{n_samples} samples have a right answer of a rater, now in {self.corrected}")
            say(f"Ask them again: memray-eval run JOB --dataset {self.corrected}")
        if self.csv is not None:
            _write(self.csv, session.write_csv())
        if self.csv is None and self.corrected is None:
            asyncio.run(_serve(serving_labels(session, self.port, host=self.host), is_opened))
        _print_labels(session, str(self.csv or ""))


@app.command(rich_help_panel=LOOK)
@takes("folder metric is_labelling csv corrected queue overlap limit port host is_opened")
def view(
    labels: Labels,
    folder: str = typer.Argument(
        RESULTS,
        help="A folder of runs, or one run folder, finished or not; a path or a cloud URL; or "
        "latest, or latest~1 for the run before.",
    ),
    is_labelling: bool = flag(
        "Label a run's units by a metric without seeing the judge: view RUN --label METRIC.",
        None,
        "--label",
    ),
    is_opened: bool = flag("Open the page in the browser.", None, "--open"),
) -> None:
    """Browse runs of any size in the browser.

    For a folder: the list of its runs, updated while they run, and a comparison of those you
    pick. For a run: the report, and every sample to filter, sort, search, read, and save as CSV
    or JSONL. Every page has a permanent address.

    The server only reads, listens on this machine only (to all of its users), and ends with
    Ctrl-C. With --label it also writes each label to labels.jsonl in the run folder, and only
    for users who have the token in its address; with --host on other machines too."""
    from memray_eval.report.view import RunList, serving, serving_runs, viewing
    from memray_eval.results.lookup import find_run, holds_runs, names_like
    from memray_eval.results.run_folder import RunFolder

    labels.check(is_labelling)
    folder = find_run(folder)
    if is_labelling and holds_runs(folder):
        raise ConfigError(f"--label takes one run, and {folder} holds several: name one of them")
    if holds_runs(folder):
        asyncio.run(_serve(serving_runs(RunList(folder), labels.port), is_opened))
        return
    run = RunFolder(folder)
    if not run.has_manifest():
        what_to_do = "give one of them, such as results/<run_id>"
        if folder == RESULTS:
            what_to_do = "no run was made here yet; start with: memray-eval run quickstart"
        if like := names_like(folder):
            what_to_do = f"did you mean {like}?"
        raise DataError(
            f"{folder} has no manifest.json, and is no folder that holds run folders; {what_to_do}"
        )
    if is_labelling:
        labels.open(run, is_opened)
        return
    with viewing(run, now_and_then(lambda n: say(f"  {n:,} units read"))) as viewed:
        asyncio.run(_serve(serving(viewed, labels.port), is_opened))


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, "utf-8", "backslashreplace")
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {reason_of(error)}; name another place") from None


def _print_labels(session: LabelSession, path: str) -> None:
    agreement = session.agreement()
    raters = ", ".join(f"{name} {n}" for name, n in agreement["raters"].items()) or "nobody"
    say(f"{session.metric}: {agreement['n_units']} units labelled ({raters})")
    if left := ", ".join(f"{name} {n}" for name, n in agreement["left"].items() if n):
        say(f"  agreement is shown once all raters are done; left: {left}")
    for name in ("kappa", "alpha_ordinal") if agreement["figures"] else ():
        if (value := agreement["figures"][name]["value"]) is not None:
            title, n_shared = name.replace("_", ", "), agreement["n_shared"]
            say(f"  {title} between raters {value:z.3f}, on {n_shared} units")
    if agreement["note"]:
        say(f"  {agreement['note']}")
    if agreement["n_unknown"]:
        say(f"  {agreement['n_unknown']} labels are of units that this run does not have: left out")
    if agreement["n_units"] and not path:
        path = "labels.csv"
        write = f"memray-eval view {session.folder.path} --label {session.metric} --csv {path}"
        say(f"Write them to a file: {write}")
    if agreement["n_units"] and (command := session.calibrate_command(path)):
        say(f"Hold judges against them: {command}")


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
