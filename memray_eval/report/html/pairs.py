"""The section of a comparison's page on pairs: who is preferred, and what the judge is worth."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from memray_eval.analysis.marks import NOTHING
from memray_eval.analysis.pairs.models import CandidateStanding, Criterion, Duel, PairwiseReport
from memray_eval.report.html.view_model import label
from memray_eval.report.pairs_console import (
    format_ends,
    format_ranks,
    format_strength,
    how_measured,
    judge_lines,
    leader_in_words,
    percent,
)
from memray_eval.report.sections import Grid


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
    heads = ("candidate", "win rate", "95% interval", "win / tie / loss", "strength", "ranks")
    rows = (
        (standing.candidate, *_results(standing), format_strength(standing), format_ranks(standing))
        for standing in criterion.standings
    )
    return Grid.of_texts(f"{label(criterion.metric)}: candidates", heads, rows)


def _duels(criterion: Criterion) -> Grid:
    heads = ("pair", "win rate", "95% interval", "win / tie / loss", "at equal length (estimated)")
    rows = (
        (f"{duel.a} against {duel.b}", *_results(duel), percent(duel.at_equal_length))
        for duel in criterion.duels
    )
    return Grid.of_texts(f"{label(criterion.metric)}: each two", heads, rows)


def _results(pairs: CandidateStanding | Duel) -> tuple[str, str, str]:
    counts = f"{pairs.wins:,} / {pairs.ties:,} / {pairs.losses:,}"
    return percent(pairs.rate.value), format_ends(pairs.rate) or NOTHING, counts
