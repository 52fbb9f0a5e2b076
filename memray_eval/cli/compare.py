"""The command that compares runs: compare."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from memray_eval.cli.app import JsonOption, MetricsOption, app, say, show
from memray_eval.errors import ConfigError, DataError

if TYPE_CHECKING:
    from memray_eval.report.comparing import Comparison, Side
    from memray_eval.results.run_folder import RunFolder

FLIPS_IN_HTML = 20  # units a metric


@app.command()
def compare(
    runs: Annotated[
        list[str],
        typer.Argument(
            help="Run folders, the first the baseline; RUN:CANDIDATE picks one of several.",
            show_default=False,
        ),
    ],
    metrics: MetricsOption = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            help="Units that belong together: a key of the samples' metadata, scenario, task, "
            "...; none: each stands alone.  "
            "[default: the user or context that samples name]",
            show_default=False,
        ),
    ] = None,
    bootstrap: Annotated[
        bool, typer.Option("--bootstrap", help="Intervals of the bootstrap instead of Student's.")
    ] = False,
    flips: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="List N units a metric that changed, such as from 0 to 1 or back.  [default: 0; "
            "20 with both texts in --html]",
            show_default=False,
        ),
    ] = None,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            help='Exit with 1 where a difference from the baseline is so: --fail-if "empathy < '
            '-0.1"; repeatable.'
        ),
    ] = None,
    html: Annotated[
        str | None, typer.Option(help="Also write the comparison to this file, as one HTML page.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare candidates on the units that they share: differences, intervals, tests, flips, and
    what makes them hard to compare. Exit code 1 where a --fail-if says so."""
    from memray_eval.report.comparing import compare as compare_sides
    from memray_eval.report.comparing import failures, parse_gate, render
    from memray_eval.report.statistics import Settings

    gates = [parse_gate(text) for text in fail_if or ()]
    chosen = list(
        dict.fromkeys(name.strip() for name in (metrics or "").split(",") if name.strip())
    )
    opened = _pick_candidates(runs)
    field = _find_cluster_field(opened, cluster)
    sides = [one.side(field) for one in opened]
    listed = flips if flips is not None else FLIPS_IN_HTML if html else 0
    found = compare_sides(
        sides, metrics=chosen, cluster=field, settings=Settings(bootstrap=bootstrap), flips=listed
    )
    found = found.model_copy(update={"failed_gates": tuple(failures(found, gates))})
    show(
        found.model_dump_json(indent=2) if as_json else render(found, flips or 0),
        end="\n" if as_json else "",
    )
    if html is not None:
        _write_html(found, opened, html)
    for failed in found.failed_gates:
        say(f"failed: {failed}")
    if found.failed_gates:
        raise typer.Exit(1)


class _ComparedRun(NamedTuple):
    """One candidate of a run, under the name it has in the comparison."""

    name: str
    folder: RunFolder
    candidate: str

    def side(self, cluster: str | None) -> Side:
        from memray_eval.report.comparing import Side
        from memray_eval.report.reading import readable
        from memray_eval.report.scores import read_scores

        with readable(self.folder.path):
            scores = read_scores(self.folder.records(), self.candidate, cluster)
        return Side(self.name, self.candidate, self.folder.read_manifest(), scores)


def _find_cluster_field(opened: Sequence[_ComparedRun], cluster: str | None) -> str | None:
    """The field that clusters units: the one asked for, else the one that the baseline's samples
    name."""
    from memray_eval.report.reading import readable
    from memray_eval.report.scores import find_cluster

    if cluster is not None:
        return None if cluster == "none" else cluster
    with readable(opened[0].folder.path):
        return find_cluster(opened[0].folder.records())


def _write_html(found: Comparison, opened: Sequence[_ComparedRun], path: str) -> None:
    """Writes the HTML page, with the texts of the units that it lists."""
    from memray_eval.metrics import all_metrics
    from memray_eval.report.html.comparison import write_comparison
    from memray_eval.report.scores import read_texts

    units = {(flip.sample_id, flip.task) for metric in found.metrics for flip in metric.flips}
    texts = (
        {one.name: read_texts(one.folder.records(), one.candidate, units) for one in opened}
        if units
        else {}
    )
    write_comparison(
        found, {name: metric.scale for name, metric in all_metrics().items()}, texts, path
    )
    say(path)


def _pick_candidates(runs: Sequence[str]) -> list[_ComparedRun]:
    """Opens the runs and picks a candidate of each. Raises ConfigError for fewer than two, and for
    a candidate that is not there or not chosen; DataError for a folder that is not a run's."""
    from memray_eval.report.reading import readable
    from memray_eval.report.scores import candidates_of

    if len(runs) < 2:
        raise ConfigError("compare takes two or more run folders: memray-eval compare A B [C...]")
    picked = []
    for run in runs:
        folder, candidate = _open_run(run)
        with readable(folder.path):
            there = candidates_of(folder.records())
        picked.append((folder, _choose_candidate(run, candidate, there), len(there) > 1))
    short = [f"{folder.run_id}:{candidate}" if is_one_of_several else folder.run_id
             for folder, candidate, is_one_of_several in picked]  # fmt: skip
    named = [
        name if Counter(short)[name] == 1 else run for name, run in zip(short, runs, strict=True)
    ]
    if twice := [name for name, count in Counter(named).items() if count > 1]:
        raise ConfigError(f"{twice[0]} is given twice; compare it with another run or candidate")
    return [
        _ComparedRun(name, folder, candidate)
        for name, (folder, candidate, _) in zip(named, picked, strict=True)
    ]


def _open_run(run: str) -> tuple[RunFolder, str | None]:
    """Opens the folder of RUN or RUN:CANDIDATE and returns it with the candidate named after it.
    Either may hold colons."""
    from memray_eval.results.run_folder import RunFolder

    ends = [
        len(run),
        *(
            place
            for place in range(len(run) - 1, 0, -1)
            if run[place] == ":" and run[place + 1 : place + 3] != "//"
        ),
    ]
    for end in ends:
        folder = RunFolder(run[:end])
        if folder.has_manifest():
            folder.read_manifest()
            return folder, run[end + 1 :] or None
    raise DataError(
        f"{run} has no manifest.json; give the folder of a run (results/<run_id>), or RUN:CANDIDATE"
    )


def _choose_candidate(run: str, wanted: str | None, there: Sequence[str]) -> str:
    names = ", ".join(there)
    if not there:
        raise DataError(f"{run} holds no records")
    if wanted is None:
        if len(there) > 1:
            raise ConfigError(
                f"{run} has several candidates: {names}; pick one with {run}:{there[0]}"
            )
        return there[0]
    if wanted not in there:
        raise ConfigError(f"{run}: no candidate {wanted!r}; there are: {names}")
    return wanted
