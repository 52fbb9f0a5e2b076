"""Agreement of the judge's verdict with the suite's own rule, and the units on which they differ. A
score that a rule gave because the judge failed is not compared."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from memray_eval.analysis.score_table import Flags, ScoreTable, is_fallback, score_columns
from memray_eval.metric import Metric
from memray_eval.types import RULE_METRIC, VERDICT_METRIC, Agreement

CORRECT_FROM = 0.5  # a score of at least this says that the answer is correct
RESPONSE_CHARACTERS = 500  # how much of a response the list of disagreements shows

_COMPARED = score_columns("metric", "value", "judge")
_OF_UNITS = "unit_id sample_id candidate task answers response".split()
_TEXTS = (*_OF_UNITS, *_COMPARED, *score_columns("judgment"))


def compares(metrics: Sequence[Metric]) -> bool:
    """Whether a run with these metrics has both a judge's verdict and a rule's score to compare."""
    return {VERDICT_METRIC, RULE_METRIC} <= {metric.name for metric in metrics}


def agreement(both: int, neither: int, only_judge: int, only_rule: int) -> Agreement:
    """Computes Cohen's kappa and the share agreed from the counts of a 2x2 table, not all 0."""
    n = both + neither + only_judge + only_rule
    denominator = (both + only_judge) * (only_judge + neither) + (both + only_rule) * (
        only_rule + neither
    )
    return Agreement(
        n=n,
        both=both,
        neither=neither,
        only_judge=only_judge,
        only_rule=only_rule,
        share=(both + neither) / n,
        kappa=2 * (both * neither - only_judge * only_rule) / denominator if denominator else None,
    )


def disagreements(records: pads.Dataset) -> Iterator[dict[str, Any]]:
    """Yields the units on which judge and rule disagree. Texts are decoded only for row groups that
    hold one. A unit that was written twice is listed twice."""
    for file in records.get_fragments():
        with file.open() as stream:
            parquet = pq.ParquetFile(stream)
            for group in range(parquet.num_row_groups):
                scores = parquet.read_row_group(group, columns=_COMPARED)
                rows = _find_disagreeing(ScoreTable.of(scores))
                if rows.any():
                    differing = parquet.read_row_group(group, columns=_TEXTS).filter(pa.array(rows))
                    yield from map(_describe_disagreement, differing.to_pylist())


def _find_disagreeing(table: ScoreTable) -> Flags:
    metric, values = table.codes((VERDICT_METRIC, RULE_METRIC)), table.values
    verdict = table.by_unit((metric == 0) & ~table.is_judge(is_fallback), values)
    rule = table.by_unit(metric == 1, values)
    differ: Flags = ((verdict >= CORRECT_FROM) != (rule >= CORRECT_FROM)) & ~np.isnan(
        verdict + rule
    )
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
