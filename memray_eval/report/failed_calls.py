"""The causes of failed judge calls and computed metrics: how many scores each cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

import pyarrow as pa
import pyarrow.compute as pc

from memray_eval.analysis.reduce import causes_of
from memray_eval.analysis.score_table import Flags, ScoreTable, read_score_tables
from memray_eval.config.sections import EMBEDDED
from memray_eval.errors import EvalError
from memray_eval.metric import JudgedMetric
from memray_eval.metrics import all_metrics
from memray_eval.report.sections import Content, Row, Section, Table
from memray_eval.results.run_folder import RunFolder
from memray_eval.storage.paths import readable
from memray_eval.types import FALLBACKS, RULES, Summary

CAUSES_SHOWN = 10
JUDGE_CALLS, COMPUTED = "FAILED JUDGE CALLS", "METRICS THAT FAILED WITHOUT A JUDGE"


class FailedCalls:
    """Counts the scores that judges and computed metrics failed to give of answers that there are,
    a rule's in a judge's place included; `UNITS` and `SCORES` are the columns that are read."""

    UNITS, SCORES = ("error",), ("metric", "status", "judge", "error")

    def __init__(self) -> None:
        self._n: dict[str, Counter[tuple[str, str]]] = {JUDGE_CALLS: Counter(), COMPUTED: Counter()}
        self._judged, self._computed = list[str](), list[str]()
        for name, metric in all_metrics().items():
            (self._judged if isinstance(metric, JudgedMetric) else self._computed).append(name)

    def add(self, table: ScoreTable) -> None:
        answered = table.units["error"].is_null().to_numpy(zero_copy_only=False)
        is_error = pc.equal(table.column("status"), "error").to_numpy(zero_copy_only=False)
        # A judge that fails is named PROVIDER/MODEL; a jury of which nobody was reached may be not
        by_rules = table.is_judge(lambda name: name.partition("+")[0] == RULES)
        is_named = table.is_judge(lambda name: "/" in name or name.startswith(EMBEDDED))
        is_judged = table.codes(self._judged) >= 0
        is_judged |= is_named & (table.codes(self._computed) < 0)
        is_judged &= ~by_rules
        is_answered = answered[table.unit]
        replaced = table.is_judge(FALLBACKS.__contains__)
        self._count(JUDGE_CALLS, table, ((is_error & is_judged) | replaced) & is_answered)
        self._count(COMPUTED, table, is_error & ~is_judged & is_answered)

    def _count(self, kind: str, table: ScoreTable, failed: Flags) -> None:
        rows = pa.array(failed)
        texts = table.column("error").filter(rows).fill_null("no reason was given")
        coded = texts.dictionary_encode()
        causes = list(causes_of(coded.dictionary))
        by_metric = pa.table({"text": coded.indices, "metric": table.column("metric").filter(rows)})
        counted = by_metric.group_by(["text", "metric"]).aggregate([([], "count_all")])
        for row in counted.to_pylist():
            self._n[kind][causes[row["text"]], row["metric"]] += row["count_all"]

    def sections(self) -> Iterator[Section]:
        """Of each kind that failed, a row a cause, the most frequent first."""
        for kind, counted in self._n.items():
            if counted:
                yield Section(kind, list(self._causes(counted)))

    def _causes(self, counted: Counter[tuple[str, str]]) -> Iterator[Content]:
        of_cause: dict[str, Counter[str]] = {}
        for (cause, metric), n in sorted(counted.items()):
            of_cause.setdefault(cause, Counter())[metric] = n
        most_first = sorted(of_cause.items(), key=lambda item: -item[1].total())
        rows: list[Row] = [("n", "cause", "metrics")]
        for cause, metrics in most_first[:CAUSES_SHOWN]:
            names = ", ".join(f"{name} {n:,}" for name, n in metrics.most_common())
            rows.append((f"{metrics.total():,}", cause, names))
        yield Table(rows, left=(1, 2))
        if (rest := len(most_first) - CAUSES_SHOWN) > 0:
            yield f"and {rest:,} other causes"


def read_failed_calls(folder: RunFolder, summary: Summary) -> list[Section]:
    """The sections of a run; none if nothing failed, or its records cannot be read."""
    failed = FailedCalls()
    if summary.n_failed_units or summary.replaced:
        with suppress(EvalError), readable(folder.path):
            for table in read_score_tables(folder.records(), failed.UNITS, failed.SCORES):
                failed.add(table)
    return list(failed.sections())
