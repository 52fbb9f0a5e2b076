"""Comparisons of runs, from Python."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from memray_eval.analysis.comparing import models
from memray_eval.analysis.comparing.open_runs import compare_runs, pick_candidates
from memray_eval.api.displayed import Displayed, Tables, to_table
from memray_eval.report.comparison_console import short_sections
from memray_eval.report.sections import Section

_COLUMNS = (
    "metric other average n mean_a mean_b difference low high p_value p_holm p_fdr effect_size "
    "wins ties losses only_a only_b mark_a mark_b"
)
_OF_GROUPS = "metric other by group n difference low high p is_shown"
_OF_MATRIX = "metric side n value low high best p_holm is_best"


class Comparison(Displayed, models.Comparison):
    """What `compare` found. Its tables: `metrics` (a row a metric and side), `groups`, and of three
    sides or more `matrix`.

        me.compare("latest~1", "latest").to_pandas()
    """

    def _sections(self) -> Iterator[Section]:
        return short_sections(self)

    def _tables(self) -> Tables:
        metrics = (row.model_dump() | row.paired.model_dump() for row in self.metrics)
        return {
            "metrics": lambda: to_table(metrics, _COLUMNS),
            "groups": lambda: to_table(map(dict, self.groups), _OF_GROUPS),
            "matrix": lambda: to_table(map(dict, self.matrix), _OF_MATRIX),
        }


def compare(
    *runs: str | os.PathLike[str],
    metrics: Sequence[str] = (),
    cluster: str | None = None,
    by: str | None = None,
) -> Comparison:
    """Paired differences of runs from the first, on the units that both have, with 95 % intervals,
    tests, and the groups that stand out. A run is a Run, a folder, "latest", or "RUN:CANDIDATE" of
    several; `cluster` and `by` are fields, as on the command line. Raises ConfigError, DataError.

        me.compare("latest~1", "latest", metrics=["relevance"]).to_pandas("groups")
    """
    opened = pick_candidates([os.fspath(run) for run in runs])
    comparison, _ = compare_runs(opened, metrics, cluster, by)
    return Comparison.model_validate(dict(comparison))
