"""Tables and plots of how a run went, from its manifest: stages, throughput over time, and the
outcomes of calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from markupsafe import Markup

from memray_eval.analysis.marks import NOTHING
from memray_eval.report.html.plots import throughput
from memray_eval.report.html.view_model import label, number
from memray_eval.report.sections import Row, Table, figure
from memray_eval.stages.rates import rows_per_s

_READ = "read"  # so fast a stage that beside its peak the others would look flat


def stages(manifest: Mapping[str, Any]) -> Table | None:
    """The stages of the last session: rows, when each began after the first, its span and its
    rate."""
    of_stages = {
        name: stage for name, stage in (manifest.get("stages") or {}).items() if stage.get("rows")
    }
    if not of_stages:
        return None
    rows: list[Row] = [("stage", "rows", "began after, s", "lasted, s", "rows per second")]
    starts = [stage["started"] for stage in of_stages.values() if stage.get("started") is not None]
    for name, stage in of_stages.items():
        span, begun = stage.get("span_s"), stage.get("started")
        per_s = rows_per_s(stage["rows"], span)
        after = NOTHING if begun is None else f"{begun - min(starts):,.1f}"
        rows.append((name, f"{stage['rows']:,}", after, number(span, 1), figure(per_s, ",.1f")))
    return Table(rows, title="Stages of the last session")


def timelines(manifest: Mapping[str, Any]) -> Iterator[tuple[str, Markup, list[str]]]:
    """Plots rows per second by stage, and calls per second by kind, if the run recorded them.
    Yields a title, a drawing and the names of its lines."""
    kept = manifest.get("timeline") or {}
    for key, what in (("stages", "rows"), ("calls", "calls")):
        counted = {
            name: counts
            for name, counts in (kept.get(key) or {}).items()
            if any(counts) and name != _READ
        }
        if counted:
            yield (
                f"{what.capitalize()} over time",
                throughput(kept["bin_s"], counted, what),
                list(counted),
            )


def calls(manifest: Mapping[str, Any]) -> Table | None:
    """The outcomes of the run's judge calls, in all and, if there are several, by judge. Outcomes
    that never occurred are left out."""
    whole = manifest.get("calls") or {}
    judges = whole.get("judges") or {}
    columns = {"all": whole, **(judges if len(judges) > 1 else {})}
    rows = [
        (label(name), [outcomes.get(name, 0) for outcomes in columns.values()])
        for name, count in whole.items()
        if isinstance(count, int | float) and count
    ]
    for tries in whole.get("tries") or {}:
        name = "verdicts at the first call" if tries == "1" else f"verdicts after {tries} calls"
        rows.append(
            (name, [(outcomes.get("tries") or {}).get(tries, 0) for outcomes in columns.values()])
        )
    texts = [(name, *map(_format_count, counts)) for name, counts in rows if any(counts)]
    return Table([("what", *columns), *texts], title="Calls and retries") if texts else None


def _format_count(count: float) -> str:
    """Formats an integer, or a float with two digits (four below 1)."""
    if isinstance(count, int):
        return f"{count:,}"
    return f"{count:,.{2 if count >= 1 or not count else 4}f}"
