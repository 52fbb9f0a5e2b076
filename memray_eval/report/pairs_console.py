"""Renders the report of a pairwise run as text."""

from __future__ import annotations

from collections.abc import Iterator

from memray_eval.analysis.marks import NOTHING, why_undecided
from memray_eval.analysis.pairs import CandidateStanding, Criterion, PairwiseReport, Rate
from memray_eval.report.sections import Content, Section, Table, bounded, wrap_text

DUELS_SHOWN = 15
MOST_FLIPS = 1 / 3  # of pairs: a judge whose verdicts depend on the order more often is not usable


def render_pairs(report: PairwiseReport) -> str:
    """The candidates by strength, the duels, and what the judge's verdicts are worth."""
    lines: list[str] = []
    for section in (*pair_sections(report), Section("", [how_measured(report)])):
        for part in (*section.parts, ""):
            lines += (wrap_text(part) or [""]) if isinstance(part, str) else part.lines()
    return "\n".join(lines)


def pair_sections(report: PairwiseReport) -> Iterator[Section]:
    """A section for each metric of pairs, with lines of any length."""
    for criterion in report.criteria:
        yield Section(criterion.metric, list(_parts(report, criterion)))


def leader_in_words(criterion: Criterion) -> str:
    """The leader in a sentence, and if chance alone would do that."""
    if not criterion.n_pairs:
        return (
            f"{criterion.metric}: no pair has both verdicts; nothing can be said of the candidates."
        )
    n_scored, n_abstained = (criterion.statuses.get(of, 0) for of in ("scored", "abstained"))
    why = criterion.undecided or why_undecided(n_scored + n_abstained, 0, n_abstained)
    if (criterion.flips.value or 0.0) > MOST_FLIPS:
        why = (
            "not usable: the judge's verdict changes with the order in "
            f"{percent(criterion.flips.value)} of the pairs (more than a third)"
        )
    if why:
        return f"{criterion.metric}: {why}; nothing can be said of the candidates."
    first, *others = criterion.standings
    rivals = [standing.candidate for standing in others if (standing.rank_low or 0) == 1]
    rate = f"wins {percent(first.rate.value)} of its pairs{_ends(first.rate)}"
    if (first.rank_high or 0) == 1 and not rivals:
        return f"{first.candidate} is preferred ({criterion.metric}): it {rate}."
    names = ", ".join(rivals) or "the next"
    return f"{first.candidate} leads ({criterion.metric}), not clearly ahead of {names}: it {rate}."


def _parts(report: PairwiseReport, criterion: Criterion) -> Iterator[Content]:
    judges = ", ".join(criterion.judges) or "no judge"
    yield leader_in_words(criterion)
    yield (
        f"{criterion.n_pairs:,} pairs on {criterion.n_questions:,} questions, both orders, judged "
        f"by {judges}"
    )
    yield ""
    level = f"{report.level:.0%}"
    heads = ("", "candidate", "win rate", level, "win/tie/loss", "strength", "ranks")
    yield Table([heads, *map(_standing_row, criterion.standings)], left=(1,))
    if len(criterion.standings) > 2 and criterion.duels:
        yield ""
        rows = [("", "win rate", level, "win/tie/loss", "at equal length")]
        for duel in criterion.duels[:DUELS_SHOWN]:
            rate, between = percent(duel.rate.value), format_ends(duel.rate) or NOTHING
            counts = f"{duel.wins}/{duel.ties}/{duel.losses}"
            name = f"{duel.a} against {duel.b}"
            rows.append((name, rate, between, counts, percent(duel.at_equal_length)))
        yield Table(rows)
        if (rest := len(criterion.duels) - DUELS_SHOWN) > 0:
            yield f"and {rest} more in pairs.json"
    yield ""
    yield from judge_lines(criterion)


def judge_lines(criterion: Criterion) -> Iterator[str]:
    """The worth of the judge's verdicts, in lines."""
    yield (
        f"position: the answer shown first is preferred in {percent(criterion.first_share.value)}"
        f"{_ends(criterion.first_share)} of {criterion.first_share.n:,} decided verdicts (50 %: no "
        "bias)"
    )
    yield (
        f"flips: {percent(criterion.flips.value)}{_ends(criterion.flips)} of pairs got another "
        "verdict in the other order; such a pair is a tie"
    )
    if criterion.longer_share.n:
        odds, effect = criterion.odds_of_double_length, "what length itself does cannot be told"
        if odds.value is not None:
            times = f"{odds.value:z.2f} [{odds.low:z.2f}, {odds.high:z.2f}]"
            effect = f"twice the length multiplies the odds by {times}"
        longer = criterion.longer_share
        yield (
            f"length: the longer answer wins {percent(longer.value)}{_ends(longer)} of "
            f"{longer.n:,} decided pairs; {effect}"
        )
        if len(criterion.duels) == 1 and criterion.duels[0].at_equal_length is not None:
            duel = criterion.duels[0]
            rate = percent(duel.at_equal_length)
            yield f"at equal length {duel.a} would win {rate} against {duel.b} (estimated)"
    else:
        yield "length: no decided pair has answers of different length"
    for standing in criterion.standings:
        n_excluded, n_failed = standing.n_excluded, standing.n_failed
        if n := standing.n_empty + n_excluded + n_failed:
            loses = "left out (on_no_answer: exclude)" if n_excluded else "an empty answer loses"
            yield (
                f"no answer: {standing.candidate} on {n:,} questions ({n - n_failed:,} empty, "
                f"{n_failed:,} failed); {loses}, a failed one is left out"
            )
    if criterion.n_incomplete:
        bad = {name: n for name, n in criterion.statuses.items() if name != "scored"}
        reasons = ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in bad.items())
        yield (
            f"left out: {criterion.n_incomplete:,} pairs without both verdicts"
            f"{f' (verdicts: {reasons})' if reasons else ''}"
        )


def how_measured(report: PairwiseReport) -> str:
    """The method of the figures and intervals."""
    by = f"by {report.cluster}" if report.cluster else "by question"
    which = (
        "Every two candidates were compared on each question."
        if report.is_whole
        else "Not every two candidates were compared on each question; the duels say how often two "
        "were. Win rates are against those that a candidate met, so strengths, not win rates, rank."
    )
    return (
        f"{which} A tie counts half. Intervals are clustered {by}; strength: log-odds by "
        "Bradley-Terry with ties (Davidson), 0 the mean, with bootstrap intervals of ranks."
    )


def _standing_row(standing: CandidateStanding) -> tuple[str, ...]:
    low, high = standing.rank_low, standing.rank_high
    ranks = dict.fromkeys((low, high) if low is not None else ())
    return (
        NOTHING if standing.rank is None else f"{standing.rank}",
        standing.candidate,
        percent(standing.rate.value),
        format_ends(standing.rate) or NOTHING,
        f"{standing.wins}/{standing.ties}/{standing.losses}",
        format_strength(standing),
        # the ranks that the data leave open
        "-".join(f"{rank}" for rank in ranks) or NOTHING,
    )


def format_strength(standing: CandidateStanding) -> str:
    """The strength with its interval; who won or lost every pair has none in figures."""
    if standing.strength is None:
        return NOTHING
    if not standing.ties and not (standing.wins and standing.losses):
        return "all won" if standing.wins else "all lost"
    low, high = standing.strength_interval or (None, None)
    return bounded(standing.strength, low, high, "+z.2f")


def percent(value: float | None) -> str:
    return NOTHING if value is None else f"{100 * value:z.1f} %"


def format_ends(rate: Rate) -> str:
    """An interval in percent; "" if there is none."""
    if rate.low is None or rate.high is None:
        return ""
    return f"{100 * rate.low:z.1f} to {100 * rate.high:z.1f}"


def _ends(rate: Rate) -> str:
    ends = format_ends(rate)
    return f" [{ends}]" if ends else ""
