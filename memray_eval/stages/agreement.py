"""The judge's verdict against the suite's own rule: how far they agree, and on which units they do
not.

A score that a rule gave because the judge failed (judging.on_judge_failure) is no verdict and is
not compared."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from memray_eval.metric import Metric
from memray_eval.types import FALLBACKS, JURORS, RULE_METRIC, VERDICT_METRIC, Agreement

CORRECT_FROM = 0.5  # a score from here on says that the answer is correct
RESPONSE_CHARACTERS = 500  # of a response, in the list of disagreements

_SCORE = "scores.list.element"
_COMPARED = tuple(f"{_SCORE}.{name}" for name in ("metric", "value", "judge"))
_TEXTS = (
    "unit_id",
    "sample_id",
    "candidate",
    "task",
    "answers",
    "response",
    *_COMPARED,
    f"{_SCORE}.judgment",
)


def compares(metrics: Sequence[Metric]) -> bool:
    """Whether a run with these metrics has both a judge's verdict and a rule's score to compare."""
    return {VERDICT_METRIC, RULE_METRIC} <= {metric.name for metric in metrics}


def agreement(both: int, neither: int, only_judge: int, only_rule: int) -> Agreement:
    """Cohen's kappa and the share agreed, of a table with at least one unit."""
    n = both + neither + only_judge + only_rule
    apart = (both + only_judge) * (only_judge + neither) + (both + only_rule) * (
        only_rule + neither
    )
    return Agreement(
        n=n,
        both=both,
        neither=neither,
        only_judge=only_judge,
        only_rule=only_rule,
        share=(both + neither) / n,
        kappa=2 * (both * neither - only_judge * only_rule) / apart if apart else None,
    )


def disagreements(records: pads.Dataset) -> Iterator[dict[str, Any]]:
    """The units that judge and rule disagree on, for people to look at; texts are decoded only
    where there is one. Units are taken as they stand: one that was written twice is here twice,
    unless execution/resume_state.py dropped it before."""
    for file in records.get_fragments():
        with file.open() as stream:
            parquet = pq.ParquetFile(stream)
            for group in range(parquet.num_row_groups):
                rows = _find_disagreeing(
                    parquet.read_row_group(group, columns=_COMPARED)["scores"].combine_chunks()
                )
                if rows.any():
                    found = parquet.read_row_group(group, columns=_TEXTS).filter(pa.array(rows))
                    yield from map(_describe_disagreement, found.to_pylist())


def _find_disagreeing(scores: pa.ListArray) -> npt.NDArray[np.bool_]:
    """Which units have a verdict and a rule's score that say different things."""
    unit, each = pc.list_parent_indices(scores).to_numpy(), scores.flatten()
    metric = map_names(
        pc.struct_field(each, "metric"),
        (VERDICT_METRIC, RULE_METRIC).index,
        among=(VERDICT_METRIC, RULE_METRIC),
    )
    values = pc.struct_field(each, "value").to_numpy(zero_copy_only=False)
    fallback = map_names(pc.struct_field(each, "judge"), is_fallback) > 0
    verdict, rule = np.full(len(scores), np.nan), np.full(len(scores), np.nan)
    of_judge, of_rule = (metric == 0) & ~fallback, metric == 1
    verdict[unit[of_judge]], rule[unit[of_rule]] = values[of_judge], values[of_rule]
    differ: npt.NDArray[np.bool_] = (
        (verdict >= CORRECT_FROM) != (rule >= CORRECT_FROM)
    ) & ~np.isnan(verdict + rule)
    return differ


def _describe_disagreement(row: dict[str, Any]) -> dict[str, Any]:
    scores = {score["metric"]: score for score in row["scores"]}
    judged, ruled = scores[VERDICT_METRIC], scores[RULE_METRIC]
    return {
        **{name: row[name] for name in ("unit_id", "sample_id", "task", "candidate")},
        "response": (row["response"] or "")[:RESPONSE_CHARACTERS],
        "answers": row["answers"],
        "judge": judged["judge"],
        "verdict": "CORRECT" if judged["value"] >= CORRECT_FROM else "INCORRECT",
        "reasoning": json.loads(judged["judgment"] or "{}").get("reasoning"),
        "rule": ruled["judge"],
        "rule_value": ruled["value"],
    }


def map_names(
    names: pa.Array, figure: Callable[[str], int], among: Sequence[str] | None = None
) -> npt.NDArray[np.int64]:
    """A figure for each name of a column, worked out once a distinct name; -1 for those not
    `among`."""
    coded = names.dictionary_encode()  # as it is, where it was read so
    known = [
        figure(name) if among is None or name in among else -1
        for name in coded.dictionary.to_pylist()
    ]
    figures: npt.NDArray[np.int64] = np.array(known, dtype=np.int64)[coded.indices.to_numpy()]
    return figures


def is_fallback(judge: str) -> bool:
    return any(name in FALLBACKS for name in judge.split(JURORS))
