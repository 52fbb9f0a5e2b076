"""The rows behind a run's figures, with their answers side by side and what the judge replied; what
scores mean."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import numpy as np
import pyarrow.dataset as pads

from memray_eval.analysis.marks import digits_of
from memray_eval.analysis.scores import Scores, pick_answer, read_units
from memray_eval.analysis.statistics import TIE, Rows
from memray_eval.analysis.where import RunScores, Split, common_rows
from memray_eval.metric import JudgedMetric, rubric_digest
from memray_eval.metrics import all_metrics
from memray_eval.metrics.catalogue import agreement_in_words, anchors_of
from memray_eval.ports import FloatArray
from memray_eval.report.sections import label
from memray_eval.types import Record, Response, Summary

ROWS = 5
MEANS = " (means of several answers; the nearest one is shown)"
MOST_CHARACTERS = 20_000  # shown of one text; the rest is only in the run


class Judged(NamedTuple):
    """One score of an answer: `by` names the judge, `judgment` is what the judge replied."""

    metric: str
    value: str
    by: str
    judgment: str
    total: str
    error: str


class ShownAnswer(NamedTuple):
    """An answer of one side. `main` is the score that the row is about, `others` the rest."""

    side: str
    text: str
    main: Judged | None = None
    others: tuple[Judged, ...] = ()


class WhyRow(NamedTuple):
    """A unit: `change` tells its score, or both sides'; `address` opens it in the list."""

    sample_id: str
    task: str
    query: str
    change: str
    direction: str
    answers: tuple[ShownAnswer, ...]
    address: str = ""


class Why(NamedTuple):
    """Rows on one metric; `says` tells how they were chosen."""

    says: str
    rows: tuple[WhyRow, ...]


class _Chosen(NamedTuple):
    """The sides that are shown, the metric, and for each unit its score on each side."""

    sides: tuple[str, ...]
    metric: str
    units: Mapping[tuple[str, str], tuple[float, ...]]


def find_reasons(
    records: pads.Dataset, run: RunScores, summary: Summary, splits: Sequence[Split]
) -> Why | None:
    """Finds the rows that changed most on the metric with the largest difference (of several
    candidates), or with the lowest headline score (of one). None if nothing differs."""
    chosen = _choose_pair(run, splits) if len(summary.candidates) > 1 else _worst(run, summary)
    if chosen is None or not chosen.units:
        return None
    scale = next(metric.scale for metric in summary.metrics if metric.metric == chosen.metric)
    units = read_units(records, chosen.sides, chosen.units)
    rows = tuple(_row(unit, values, chosen, scale, units) for unit, values in chosen.units.items())
    metric, n = chosen.metric, len(rows)
    has_epochs = any(run.of[side].epochs > 1 for side in chosen.sides)
    says, shown = f"The {n} samples whose {metric} differs most between ", MEANS
    if len(chosen.sides) == 1:
        what = "sample" if has_epochs else "answer"
        says = f"The {what if n == 1 else f'{n} {what}s'} with the lowest {metric}, of "
        shown = " (mean of several answers; the lowest one is shown)"
    return Why(f"{says}{' and '.join(chosen.sides)}{shown * has_epochs}", rows)


def _choose_pair(run: RunScores, splits: Sequence[Split]) -> _Chosen | None:
    """The units that differ most on the first split's metric; of equal ones, on all metrics."""
    if not splits or not splits[0].against:
        return None
    a, b, metric = splits[0].against, splits[0].of, splits[0].metric
    of_a, of_b = run.of[a], run.of[b]
    rows_a, rows_b = common_rows(of_a, of_b)
    total = np.zeros(len(rows_a))  # metric by metric: there may be a million rows
    for name in of_b.values:
        if name in of_a.values:
            total += np.nan_to_num(np.abs(of_b.values[name][rows_b] - of_a.values[name][rows_a]))
    before, after = of_a.values[metric][rows_a], of_b.values[metric][rows_b]
    change = np.nan_to_num(np.abs(after - before))
    order = np.lexsort((-total, -change))[:ROWS]
    rows = order[change[order] > TIE]
    units = _units(of_b, rows_b[rows], before[rows], after[rows])
    return _Chosen((a, b), metric, units)


def _worst(run: RunScores, summary: Summary) -> _Chosen | None:
    """The units of the lowest headline scores; of equal ones, the lowest mean over all scales."""
    scales = {scored.metric: scored.scale for scored in summary.metrics if scored.n_scored}
    metric = summary.headline if summary.headline in scales else next(iter(scales), None)
    if metric is None or not summary.candidates:
        return None
    candidate = summary.candidates[0].candidate
    scores = run.of.get(candidate)
    if scores is None or metric not in scores.values:
        return None
    values = scores.values[metric]
    total, counts = np.zeros(len(values)), np.zeros(len(values), np.int64)
    for name, (low, high) in scales.items():
        if name in scores.values:
            share = (scores.values[name] - low) / ((high - low) or 1.0)
            counts += ~np.isnan(share)
            total += np.nan_to_num(share, copy=False)
    order = np.lexsort((total / np.maximum(counts, 1), values))  # those without a value come last
    rows = order[: min(ROWS, int(np.count_nonzero(values < scales[metric][1] - TIE)))]
    return _Chosen((candidate,), metric, _units(scores, rows, values[rows]))


def _units(
    scores: Scores, rows: Rows, *values: FloatArray
) -> dict[tuple[str, str], tuple[float, ...]]:
    named = scores.units.select(["sample_id", "task"]).take(rows).to_pylist()
    keys = ((unit["sample_id"], unit["task"]) for unit in named)
    return {key: tuple(float(of[number]) for of in values) for number, key in enumerate(keys)}


def _row(
    unit: tuple[str, str], values: tuple[float, ...], chosen: _Chosen, scale: tuple[float, float],
    answers: Mapping[tuple[str, str, str], Sequence[Record]],
) -> WhyRow:  # fmt: skip
    near = values if len(values) > 1 else [None]
    records = [
        pick_answer(answers.get((side, *unit), ()), chosen.metric, value)
        for side, value in zip(chosen.sides, near, strict=True)
    ]
    digits = digits_of(scale)
    shown = [f"{v:z.{digits if abs(v - round(v)) > TIE else 0}f}" for v in values]
    change = " → ".join(shown) if len(shown) > 1 else f"{shown[0]} of {scale[1]:g}"
    address = {"candidate": chosen.sides[-1], "id": unit[0]}
    return WhyRow(
        sample_id=unit[0],
        task=label(unit[1]),
        query=shorten(next((record.sample.query for record in records if record), "")),
        change=change,
        direction="up" if values[-1] > values[0] else "down",
        answers=tuple(map(describe_answer, chosen.sides, records, repeat(chosen.metric))),
        address=f"#samples?{urlencode(address, quote_via=quote)}",
    )


def describe_answer(side: str, record: Record | None, metric: str) -> ShownAnswer:
    """An answer with its scores; that of `metric` is the one that it is shown for."""
    if record is None:
        return ShownAnswer(side, "(not in the records)")
    response = record.response or Response(error="no response")
    shown = f"(failed: {shorten(response.error)})" if response.error else shorten(response.text)
    judged = {
        score.metric: Judged(
            metric=score.metric,
            value=score.status.replace("_", " ") if score.value is None else f"{score.value:.3g}",
            by=f"{score.judge or 'not scored'}{', an estimate' * score.is_estimate}",
            judgment=shorten(score.judgment or ""),
            total=total_of(score.metric),
            error=score.error or "",
        )
        for score in record.scores
    }
    others = tuple(score for name, score in judged.items() if name != metric)
    return ShownAnswer(side, shown or "(empty)", judged.get(metric), others)


def total_of(name: str) -> str:
    """How a judged metric counts its score from its parts; "" if it does not."""
    metric = all_metrics().get(name)
    return metric.total if isinstance(metric, JudgedMetric) else ""


def shorten(text: str) -> str:
    """Cuts a text that is too long for a page, and says by how much."""
    if len(text) <= MOST_CHARACTERS:
        return text
    return f"{text[:MOST_CHARACTERS]} … ({len(text) - MOST_CHARACTERS:,} more characters)"


class ScoreMeaning(NamedTuple):
    """What levels of a metric look like, and how far its judges agree with people."""

    version: int
    levels: list[tuple[str, str]]
    agreement: list[str]


def find_meanings(manifest: Mapping[str, Any], metrics: Iterable[str]) -> dict[str, ScoreMeaning]:
    """What the scores of these metrics mean. Left out are metrics that no judge scores, and those
    whose rubric is another by now, or is the user's own: the manifest has its digest."""
    digests, by_name = manifest.get("rubrics"), all_metrics()
    meanings: dict[str, ScoreMeaning] = {}
    if not isinstance(digests, Mapping):
        return meanings
    for name in metrics:
        metric = by_name.get(name)
        if isinstance(metric, JudgedMetric) and name in digests and metric.anchors:
            digest = str(digests[name]).partition(", ")[0]  # an option may follow it
            if digest in (rubric_digest(metric, of) for of in (None, *metric.rubrics.values())):
                agreement = agreement_in_words(name)
                meanings[name] = ScoreMeaning(metric.version, anchors_of(metric), agreement)
    return meanings
