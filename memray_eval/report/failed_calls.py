"""The causes of judge calls that failed: how many verdicts each cost, and of which metrics."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

import pyarrow as pa
import pyarrow.compute as pc

from memray_eval.analysis.reduce import causes_of
from memray_eval.analysis.score_table import ScoreTable, read_score_tables
from memray_eval.errors import EvalError
from memray_eval.metric import JudgedMetric
from memray_eval.metrics import all_metrics
from memray_eval.report.sections import Content, Row, Section, Table
from memray_eval.results.run_folder import RunFolder
from memray_eval.storage.paths import readable
from memray_eval.types import FALLBACKS, WITHOUT_CALL, Summary

CAUSES_SHOWN = 10


class FailedCalls:
    """Counts the verdicts that judges failed to give of answers that there are, a rule's in their
    place included; `UNITS` and `SCORES` are the columns that are read."""

    UNITS, SCORES = ("error",), ("metric", "status", "judge", "error")

    def __init__(self) -> None:
        self._n: Counter[tuple[str, str]] = Counter()  # by cause and metric
        metrics = all_metrics().items()
        self._judged = [name for name, metric in metrics if isinstance(metric, JudgedMetric)]

    def add(self, table: ScoreTable) -> None:
        answered = table.units["error"].is_null().to_numpy(zero_copy_only=False)
        is_error = pc.equal(table.column("status"), "error").to_numpy(zero_copy_only=False)
        # a judge that fails is named; a jury of which nobody was reached may be not
        is_judged = table.is_judge(lambda name: name != "" and name not in WITHOUT_CALL)
        is_judged |= table.codes(self._judged) >= 0
        is_failed = (is_error & is_judged) | table.is_judge(FALLBACKS.__contains__)
        rows = pa.array(is_failed & answered[table.unit])
        texts = table.column("error").filter(rows).fill_null("no reason was given")
        coded = texts.dictionary_encode()
        causes = list(causes_of(coded.dictionary))
        failed = pa.table({"text": coded.indices, "metric": table.column("metric").filter(rows)})
        counted = failed.group_by(["text", "metric"]).aggregate([([], "count_all")])
        for row in counted.to_pylist():
            self._n[causes[row["text"]], row["metric"]] += row["count_all"]

    def section(self) -> Section | None:
        """A row a cause, the most frequent first; None if no call failed."""
        of_cause: dict[str, Counter[str]] = {}
        for (cause, metric), n in sorted(self._n.items()):
            of_cause.setdefault(cause, Counter())[metric] = n
        most_first = sorted(of_cause.items(), key=lambda item: -item[1].total())
        rows: list[Row] = [("n", "cause", "metrics")]
        for cause, metrics in most_first[:CAUSES_SHOWN]:
            names = ", ".join(f"{name} {n:,}" for name, n in metrics.most_common())
            rows.append((f"{metrics.total():,}", cause, names))
        parts: list[Content] = [Table(rows, left=(1, 2))]
        if (rest := len(most_first) - CAUSES_SHOWN) > 0:
            parts.append(f"and {rest:,} other causes")
        return Section("FAILED JUDGE CALLS", parts) if of_cause else None


def read_failed_calls(folder: RunFolder, summary: Summary) -> Section | None:
    """The section of a run; None if no call failed, or its records cannot be read."""
    failed = FailedCalls()
    if summary.n_failed_units or summary.replaced:
        with suppress(EvalError), readable(folder.path):
            for table in read_score_tables(folder.records(), failed.UNITS, failed.SCORES):
                failed.add(table)
    return failed.section()
