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
    for criterion in () if report is None else report.criteria:
        pairs = f"{criterion.n_pairs:,} pairs on {criterion.n_questions:,} questions, both orders"
        tables = [_standings(criterion)]
        if len(criterion.standings) > 2 and criterion.duels:
            tables.append(_duels(criterion))
        yield PairSection(
            metric=label(criterion.metric),
            says=leader_in_words(criterion),
            about=f"{pairs}, judged by {', '.join(criterion.judges) or 'nobody'}; run "
            f"{', '.join(report.runs if report else ())}.",
            tables=tuple(tables),
            notes=(*judge_lines(criterion), how_measured(report) if report else ""),
        )


def _standings(criterion: Criterion) -> Grid:
    return Grid(
        f"{label(criterion.metric)}: candidates",
        ("candidate", "win rate", "95% interval", "win / tie / loss", "strength", "ranks"),
        tuple(
            (
                standing.candidate,
                tuple(
                    Cell(text)
                    for text in (
                        percent(standing.rate.value),
                        format_ends(standing.rate) or NOTHING,
                        f"{standing.wins:,} / {standing.ties:,} / {standing.losses:,}",
                        format_strength(standing),
                        format_ranks(standing),
                    )
                ),
            )
            for standing in criterion.standings
        ),
    )


def _duels(criterion: Criterion) -> Grid:
    return Grid(
        f"{label(criterion.metric)}: each two",
        ("pair", "win rate", "95% interval", "win / tie / loss", "at equal length (estimated)"),
        tuple(
            (
                f"{duel.a} against {duel.b}",
                tuple(
                    Cell(text)
                    for text in (
                        percent(duel.rate.value),
                        format_ends(duel.rate) or NOTHING,
                        f"{duel.wins:,} / {duel.ties:,} / {duel.losses:,}",
                        percent(duel.at_equal_length),
                    )
                ),
            )
            for duel in criterion.duels
        ),
    )
