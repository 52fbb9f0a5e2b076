"""The section of a comparison's page on pairs: who is preferred, and what the judge is worth."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from memray_eval.analysis.marks import NOTHING
from memray_eval.analysis.pairs.models import Criterion, PairwiseReport
from memray_eval.report.html.view_model import Cell, Grid, label
from memray_eval.report.pairs_console import (
    format_ends,
    format_ranks,
    format_strength,
    how_measured,
    judge_lines,
    leader_in_words,
    percent,
)


class PairSection(NamedTuple):
    """One metric of pairs: a sentence, tables of candidates and duels, notes on the judge."""

    metric: str
    says: str
    about: str
    tables: tuple[Grid, ...]
    notes: tuple[str, ...]


def draw_pairs(report: PairwiseReport | None) -> Iterator[PairSection]:
    """The sections of a pairwise run, one a metric."""
    for found in () if report is None else report.criteria:
        pairs = f"{found.n_pairs:,} pairs on {found.n_questions:,} questions, both orders"
        tables = [_standings(found)]
        if len(found.standings) > 2 and found.duels:
            tables.append(_duels(found))
        yield PairSection(
            metric=label(found.metric),
            says=leader_in_words(found),
            about=f"{pairs}, judged by {', '.join(found.judges) or 'nobody'}; run "
            f"{', '.join(report.runs if report else ())}.",
            tables=tuple(tables),
            notes=(*judge_lines(found), how_measured(report) if report else ""),
        )


def _standings(found: Criterion) -> Grid:
    return Grid(
        f"{label(found.metric)}: candidates",
        ("candidate", "win rate", "95% interval", "win / tie / loss", "strength", "ranks"),
        tuple(
            (
                one.candidate,
                tuple(
                    Cell(text)
                    for text in (
                        percent(one.rate.value),
                        format_ends(one.rate) or NOTHING,
                        f"{one.wins:,} / {one.ties:,} / {one.losses:,}",
                        format_strength(one),
                        format_ranks(one),
                    )
                ),
            )
            for one in found.standings
        ),
    )


def _duels(found: Criterion) -> Grid:
    return Grid(
        f"{label(found.metric)}: each two",
        ("pair", "win rate", "95% interval", "win / tie / loss", "at equal length (estimated)"),
        tuple(
            (
                f"{one.a} against {one.b}",
                tuple(
                    Cell(text)
                    for text in (
                        percent(one.rate.value),
                        format_ends(one.rate) or NOTHING,
                        f"{one.wins:,} / {one.ties:,} / {one.losses:,}",
                        percent(one.at_equal_length),
                    )
                ),
            )
            for one in found.duels
        ),
    )
