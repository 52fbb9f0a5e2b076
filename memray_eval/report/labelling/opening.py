"""Opens a run for labelling: reads which units a judge was asked about, and how uncertain each
verdict is, a batch of records at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from memray_eval.analysis.score_table import ScoreTable
from memray_eval.errors import ConfigError, DataError, nearest
from memray_eval.report.labelling.queue import UnitColumns, choices_for, doubt_of
from memray_eval.report.labelling.session import LabelSession
from memray_eval.report.labelling.store import LabelStore
from memray_eval.report.sections import metric_scales
from memray_eval.report.view.parquet_parts import read_columns
from memray_eval.results.parts import Part
from memray_eval.results.run_folder import RunFolder
from memray_eval.storage.paths import readable

_LABELLED = ("scored", "abstained", "error")


def open_labelling(folder: RunFolder, metric: str | None = None) -> LabelSession:
    """Opens a run for labelling by a metric; None: its headline, or the first that a judge scored.
    Raises ConfigError for another metric or a run in a cloud, DataError for unreadable records."""
    local = folder.local_path
    if local is None:
        raise ConfigError(
            f"labels are added to a file of the run's folder, and {folder.path} is in the "
            "cloud: copy it to this machine, and label it there"
        )
    with readable(folder.path):
        parts = folder.some_parts()
    judged = _judged_metrics(folder, parts)
    summary = None
    with suppress(DataError):  # the run has not ended
        summary = folder.read_summary()
    name = metric or ""
    if metric is None:
        headline = summary.headline if summary else ""
        name = headline if headline in judged else next(iter(judged), "")
    if name not in judged:
        hint = f"; did you mean {close!r}?" if (close := nearest(name, judged)) else ""
        names = ", ".join(judged) or "none"
        raise ConfigError(f"no judge scored {name!r} in this run{hint} There are: {names}")
    scale = metric_scales(summary).get(name, (0.0, 1.0))
    store = LabelStore(local, name)
    units = UnitColumns(f"{folder.run_id}\x1f{name}")
    seen: set[float] = set()
    fields: set[str] = set()
    for number, part in enumerate(parts):
        first = 0
        for batch in read_columns(folder, part, ("unit_id", "response", "error", "scores")):
            for row, score in _scores_in(batch, name):
                doubt = doubt_of(score, scale, store.precedes_queue)
                units.add(batch["unit_id"][row].as_py(), number, first + row, doubt)
                seen |= set() if score["value"] is None else {score["value"]}
                fields |= {key for key, _ in score["parts"] or ()}
            first += batch.num_rows
    if not units.ids:
        raise ConfigError(f"the run has no answer that {name} was asked about")
    is_integer = scale[1] - scale[0] > 1 and all(float(value).is_integer() for value in seen)
    choices = choices_for(scale, is_integer, seen, fields)
    return LabelSession(folder, name, units, choices, parts, store)


def _scores_in(batch: pa.RecordBatch, metric: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The rows of a batch that can be labelled, with their score."""
    table = ScoreTable.of(batch)
    labelled = table.only(table.codes([metric]) == 0)
    failed = batch["error"].is_valid().to_pylist()
    empty = pc.equal(pc.utf8_trim_whitespace(pc.fill_null(batch["response"], "")), "").to_pylist()
    chosen = zip(labelled.unit.tolist(), labelled.scores.to_pylist(), strict=True)
    for row, score in chosen:
        if score["status"] in _LABELLED and not failed[row] and not empty[row]:
            yield row, score


def _judged_metrics(folder: RunFolder, parts: Sequence[Part]) -> list[str]:
    """The metrics whose scores have a judgment, in the order of the records."""
    metrics: dict[str, None] = {}
    for part in parts[:1]:
        for batch in read_columns(folder, part, ("scores",)):
            scores = ScoreTable.of(batch)
            judged = scores.column("metric").filter(scores.column("judgment").is_valid())
            metrics |= dict.fromkeys(judged.unique().to_pylist())
    return list(metrics)
