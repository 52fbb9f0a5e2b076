"""The sections that a metric's summary is printed in."""

from __future__ import annotations

from typing import TypeAlias

from memray_eval.types import FigureForm, SummaryLine, SummarySection

# A label, the field of its figure in the MetricSummary, its form unless it is a score, and a note
Row: TypeAlias = tuple[str, str] | tuple[str, str, FigureForm] | tuple[str, str, FigureForm, str]


def section(*rows: Row, heading: str = "") -> SummarySection:
    """A section with a line for each row."""
    fields = ("label", "field", "form", "note")
    lines = [SummaryLine.model_validate(dict(zip(fields, row, strict=False))) for row in rows]
    return SummarySection(heading=heading, lines=tuple(lines))
