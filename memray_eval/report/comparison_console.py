"""Renders a comparison, and the report of a pairwise run, as text."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap
from typing import TypeAlias
from xml.etree import ElementTree

from memray_eval.analysis.comparing import CommonUnits, Compared, Flip, MetricComparison
from memray_eval.analysis.marks import NOTHING, append_mark, digits_of, name_figure, why_undecided
from memray_eval.analysis.pairs import CandidateStanding, Criterion, PairwiseReport, Rate
from memray_eval.analysis.recommendation import round_up
from memray_eval.analysis.scores import pick_answer
from memray_eval.analysis.where import LEAST, LENGTH, GroupFigure, Split, places_of
from memray_eval.errors import cut
from memray_eval.report.answer import compare_in_words
from memray_eval.report.html.why import shorten
from memray_eval.report.sections import (
    Cell,
    Content,
    Row,
    Section,
    Table,
    append_column,
    bounded,
    count_span,
    ends,
    figure,
    fit_tables,
    lines_of,
    percent,
    wrap_text,
)
from memray_eval.text_processing.values import escape_controls
from memray_eval.types import Record

GROUPS_SHOWN = 10
MOST_OF_A_TEXT = 60  # characters of a question or an answer
BEST = "*"
Texts: TypeAlias = Mapping[str, Mapping[tuple[str, str], Sequence[Record]]]  # by side and unit


def render(comparison: Compared, texts: Texts | None = None, is_split: bool = False) -> str:
    """Renders a comparison; all groups if it `is_split`. If there are `texts` (by the units that
    these hold), with its changed units, and how their question and answers begin."""
    return "\n".join(lines_of(_parts(comparison, texts, is_split))) + "\n"


def opening_parts(comparison: Compared) -> Iterator[Content]:
    """What each comparison says, the sides, all candidates at once, and warnings."""
    for text in _verdicts(comparison):
        yield from wrap(text, 80, break_on_hyphens=False, break_long_words=False)
    yield ""
    yield f"A: {comparison.with_title(comparison.baseline)}"
    for common in comparison.common:
        yield f"{common.letter}: {comparison.with_title(common.other)}"
    if matrix := matrix_section(comparison):
        yield from ("", *matrix.parts)
    yield from (f"warning: {warning}" for warning in comparison.warnings)


def _noise_parts(comparison: Compared) -> Iterator[Content]:
    """What two runs of one candidate say of the noise."""
    rows: list[Row] = [("A/A", "n", "false alarms", "margin")]
    for of in comparison.noise:
        alarms = NOTHING if of.false_alarms is None else f"{of.false_alarms:.1%}"
        rows.append((of.metric, str(of.n), alarms, figure(of.margin)))
    legend = (
        "false alarms: how often `METRIC.high < 0` fails by chance, by signs drawn for the "
        "differences of these runs. margin: the least by which a policy may let the metric fall on "
        f"so many answers, so that runs that do not differ pass {comparison.settings.power:.0%} of "
        "the time."
    )
    yield from ("", Table(rows))
    yield from wrap(legend, 80)


def _parts(comparison: Compared, texts: Texts | None, is_split: bool) -> Iterator[Content]:
    yield from opening_parts(comparison)
    if comparison.noise:
        yield from _noise_parts(comparison)
    for common in comparison.common:
        rows = comparison.rows_of(common.other)
        yield from ("", f"{common.letter} against A: {common.n} answers of both", "")
        yield from lines_of(figures_section(comparison, common).parts)
        yield from _group_lines(comparison, common, is_split)
        for row in rows if texts is not None else ():
            if row.flips:
                what = "answers that changed most" if row.flips_up is None else "flipped answers"
                yield from ("", f"{row.metric}, {append_mark(what, row.mark and f'({row.mark})')}:")
            for flip in row.flips:
                sign = "+" if flip.direction == "up" else "-"
                change = f"{flip.a:g} -> {flip.b:g} " if row.flips_up is None else sign
                yield f"  {change} {flip.sample_id} {flip.task}".rstrip()
                for name, text in _asked_and_answered(comparison, row, flip, texts or {}):
                    yield f"      {name}: {cut(text, MOST_OF_A_TEXT) or '(nothing)'}"
    for criterion in comparison.pairs.criteria if comparison.pairs else ():
        yield from ("", *wrap(f"pairs: {leader_in_words(criterion)}", 80))
        yield from (f"  {line}" for text in judge_lines(criterion) for line in wrap(text, 78))
    yield from ("", *_legend(comparison))


def _asked_and_answered(
    comparison: Compared, row: MetricComparison, flip: Flip, texts: Texts
) -> Iterator[tuple[str, str]]:
    """What a changed unit was asked, and each side's answer, if the records are in `texts`."""
    records = records_of(comparison, row, flip, texts)
    if questions := [record.sample.query for record in records if record is not None]:
        yield "asked", questions[0]
    for name, side in zip(("A", row.letter), records, strict=True):
        if side is not None:
            yield name, side.response.text if side.response else ""


def short_sections(comparison: Compared) -> Iterator[Section]:
    """A comparison without its flips and second tables, for a notebook."""
    yield Section("", [*opening_parts(comparison)])
    for common in comparison.common:
        differences = figures_section(comparison, common).parts[0]
        parts = [differences, *_group_lines(comparison, common, is_split=False)]
        yield Section(f"{common.letter} against A: {common.n} answers of both", parts)


def figures_section(comparison: Compared, common: CommonUnits) -> Section:
    """Two tables of all figures of a side: the differences, and how sure they are."""
    rows = comparison.rows_of(common.other)
    other, marks = common.letter, ["", *(row.remarks for row in rows)]
    level = f"{comparison.settings.level:.0%} of {other}-A"
    differences: list[Row] = [("metric", "n", "A", other, f"{other}-A", level, "p", "p Holm")]
    certainty: list[Row] = [
        ("metric", "stderr", "d", "win/tie/loss", "flips", "only A", f"only {other}",
         "detectable", "p BH"),
    ]  # fmt: skip
    for row in rows:
        name, paired = name_figure(row), row.paired
        low_a, high_a = row.interval_a or (None, None)
        low_b, high_b = row.interval_b or (None, None)
        differences.append((
            name,
            str(paired.n),
            Cell(figure(paired.mean_a), hint=ends(low_a, high_a, "z.4f")),
            Cell(figure(paired.mean_b), hint=ends(low_b, high_b, "z.4f")),
            figure(paired.difference, "+z.4f"),
            ends(paired.low, paired.high) or NOTHING,
            figure(paired.p_value),
            figure(row.p_holm),
        ))  # fmt: skip
        certainty.append((
            name,
            figure(paired.stderr),
            figure(paired.effect_size, "+z.2f"),
            f"{paired.wins}/{paired.ties}/{paired.losses}",
            NOTHING if row.flips_up is None else f"+{row.flips_up} -{row.flips_down}",
            str(row.only_a),
            str(row.only_b),
            figure(paired.detectable),
            figure(row.p_fdr),
        ))  # fmt: skip
    tables = [Table(append_column(rows, marks)) for rows in (differences, certainty)]
    return Section(common.other, [tables[0], "", tables[1]])


def matrix_section(comparison: Compared) -> Section | None:
    """The figures of all sides, a row a side and a column a metric; None of two sides."""
    if not comparison.matrix:
        return None
    rows = comparison.rows_of(comparison.others[0])
    columns = {row.metric: [name_figure(row)] for row in rows}
    marks = {(row.metric, row.other): row.mark_b for row in comparison.metrics}
    marks |= {(row.metric, comparison.baseline): row.mark_a for row in rows}
    for row in comparison.matrix:
        text = f"{row.value:z.3f}{BEST if row.is_best else ' '}"
        text = append_mark(text, marks.get((row.metric, row.side), "") and "est.")
        columns[row.metric].append(Cell(text, hint=ends(row.low, row.high)))
    sides = map(comparison.shown_as, (comparison.baseline, *comparison.others))
    n = count_span([row.n for row in comparison.matrix], ",")
    legend = (
        f"{BEST} the best, or not shown to be below it (against A by the p Holm of its table, "
        "others by paired t-tests, Holm over metrics and pairs of candidates); on the "
        f"{n} answers that all have scored."
    )
    measured = [column for column in columns.values() if len(column) > 1]
    return Section("all candidates", [*fit_tables(("", *sides), measured), *wrap(legend, 80)])


def _group_lines(comparison: Compared, common: CommonUnits, is_split: bool) -> Iterator[Content]:
    """The groups that stand out, themes before lengths; all of `comparison.by` if it `is_split`."""
    groups = [group for group in comparison.groups if group.other == common.other]
    n_tested = sum(group.n >= LEAST for group in groups)
    overall = {row.metric: row.paired.difference for row in comparison.rows_of(common.other)}
    listed = sorted(
        (group for group in groups if group.is_shown or is_split),
        key=lambda group: (group.by == LENGTH, group.rank),
    )
    where = f"where {common.letter}-A is not as over all answers"
    if n_tested and not any(group.is_shown for group in groups):
        yield from ("", f"{where}: in none of the {n_tested:,} groups of {LEAST} answers or more")
    if not listed:
        return
    head = (f"{where} (*)", "n", f"{common.letter}-A", "interval", "over all", "")
    cells = []
    for group in listed[: None if is_split else GROUPS_SHOWN]:
        name = f"{group.metric}, {group.by} {group.group or '(none)'}"
        difference, of_all = group.difference, figure(overall[group.metric], "+z.4f")
        shown = figure(difference, "+z.4f"), ends(group.low, group.high) or NOTHING
        cells.append((name, str(group.n), *shown, of_all, "*" * group.is_shown))
    yield from ("", Table([head, *cells]))
    if (rest := len(listed) - len(cells)) > 0:
        yield f"and {rest} more"


def _legend(comparison: Compared) -> Iterator[str]:
    how = comparison.settings
    yield f"{how_measured(comparison)}."
    yield (
        "p: sign-flip permutation test, two-sided; Holm, BH: corrected over all rows. d: Cohen's, "
        "of the differences."
    )
    found = f"{how.power:.0%} of the time"
    yield f"detectable: the smallest true difference found {found}. win: A is lower."
    if any(group.n >= LEAST for group in comparison.groups):
        yield (
            f"where: groups of {LEAST} answers or more that differ from all (t-test, Holm over "
            f"all groups, 1%); intervals of {how.level:.0%} over all (Bonferroni)."
        )
    yield (
        "flips: answers from 0 to 1 and from 1 to 0. only A: answers that have a score in A alone."
    )


def how_measured(comparison: Compared) -> str:
    """The method of the standard errors and intervals."""
    errors = "plain, answers independent"
    of_shares = "; of metrics of 0 and 1 Tango's (differences) and Wilson's (means)"
    if comparison.cluster:
        most = max((row.paired.n_clusters or 0 for row in comparison.metrics), default=0)
        errors, of_shares = f"clustered by {comparison.cluster} (CR1, {most} clusters)", ""
    kind = "bootstrap (BCa, expanded)" if comparison.settings.bootstrap else f"Student{of_shares}"
    return f"Standard errors: {errors}. Intervals: {kind}"


_WIDE = (0.0, 5.0)


def verdict_of_all(comparison: Compared) -> str:
    """The sentence on three sides or more: how often each is, or may be, best; "" of two."""
    n = len({row.metric for row in comparison.matrix})
    of = f"{n} metric{'s' * (n > 1)}"
    if all(row.is_best for row in comparison.matrix):
        return f"No candidate is shown to differ from the best on any of {of}." if n else ""
    best = Counter(row.side for row in comparison.matrix if row.is_best).most_common()
    counts = ", ".join(f"{comparison.shown_as(side)} on {count}" for side, count in best)
    return f"Best, or not clearly below it, on {of}: {counts}."


def _verdicts(comparison: Compared) -> list[str]:
    of_sides = [verdict(comparison, common) for common in comparison.common]
    return [text for text in (verdict_of_all(comparison), *of_sides) if text]


def verdict(comparison: Compared, common: CommonUnits) -> str:
    """The sentence on one side of a comparison."""
    rows = comparison.rows_of(common.other)
    undecided = [f"{name_figure(row)}, {row.left_out}" for row in rows if row.is_undecided]
    others = f", and {len(undecided) - 1} more" if len(undecided) > 1 else ""
    rest = f" {undecided[0]}{others}." if undecided else ""
    decided = [row for row in rows if not row.is_undecided]
    leading = ""
    for row in decided if len(decided) > 1 else ():
        if row.metric == comparison.leads and row.paired.difference is not None:
            is_found = row.is_found(comparison.settings.level)
            leading = f"{_difference(row)}{': no difference is shown' * (not is_found)}. "
    return leading + _verdict(comparison, common, decided) + rest


def _verdict(comparison: Compared, common: CommonUnits, rows: Sequence[MetricComparison]) -> str:
    scored = [row for row in rows if row.paired.difference is not None]
    a, b = (comparison.shown_as(name) for name in (comparison.baseline, common.other))
    if not scored and comparison.rows_of(common.other) != rows:
        return f"{b} and {a} are not compared."
    if not scored:
        return f"{b} and {a} have no score in common."
    shown = [row for row in scored if row.is_found(comparison.settings.level)]
    if not shown:
        which = f"any of {len(scored)} metrics" if len(scored) > 1 else scored[0].metric
        return f"No difference is shown between {a} and {b} on {which}{_how_many_more(scored)}."
    main = places_of(splits_of(comparison, common))
    places = {row.metric: main.get(row.metric, "") for row in shown}
    shown.sort(key=lambda row: -abs(row.paired.effect_size or 0.0))
    better, worse = (
        [_difference(row) for row in shown if sign * (row.paired.difference or 0.0) > 0]
        for sign in (1, -1)
    )
    if better:
        return compare_in_words(b, a, better, worse, len(scored), places)
    return compare_in_words(b, a, worse, [], len(scored), places, ("worse", "better"))


def _difference(row: MetricComparison) -> str:
    paired, of = row.paired, row.corrected or row.paired
    largest = max(abs(value) for value in (paired.mean_a or 0.0, paired.mean_b or 0.0))
    digits = digits_of(_WIDE if largest > 1 else (0.0, 1.0))
    difference = f"{name_figure(row)} {paired.difference:+z.{digits}f}"
    between = ends(of.low, of.high, f"z.{digits}f")
    return f"{difference} {between}".rstrip() + (", est." if row.mark else "")


def _how_many_more(rows: Sequence[MetricComparison]) -> str:
    """How many more samples would show a difference, of the metric that needs the fewest."""
    most = max(row.paired.n for row in rows)
    needed = [(row.more, row) for row in rows if row.more and row.paired.n * 2 >= most]
    if not needed:
        return ""
    more, row = min(needed, key=lambda pair: pair[0])
    true = f"if the true difference is {row.paired.difference:+z.2g} in {name_figure(row)}"
    return f"; {true}, about {round_up(more):,} more samples would confirm it"


def splits_of(comparison: Compared, common: CommonUnits) -> list[Split]:
    """The differences of one side by group, for each metric and field that splits them."""
    of: dict[tuple[str, str], list[GroupFigure]] = {}
    for group in comparison.groups:
        if group.other == common.other:
            of.setdefault((group.metric, group.by), []).append(group)
    sides = comparison.shown_as(common.other), comparison.shown_as(comparison.baseline)
    return [
        Split(metric, by, *sides, comparison.scales.get(metric, (0.0, 1.0)), tuple(groups))
        for row in comparison.rows_of(common.other)
        for (metric, by), groups in of.items()
        if metric == row.metric
    ]


WORST = 3  # answers
_KINDS = {"FAIL": "failure", "INCONCLUSIVE": "error"}


def to_markdown(comparison: Compared, worst: Mapping[str, Sequence[Flip]], texts: Texts) -> str:
    """The head, what came of gates, a table of each side, and its `worst` answers."""
    return "\n".join(_lines(comparison, worst, texts)) + "\n"


def _lines(
    comparison: Compared, worst: Mapping[str, Sequence[Flip]], texts: Texts
) -> Iterator[str]:
    for text in _verdicts(comparison):
        yield from (_escape(text), "")
    yield from (f"- {_escape(str(result))}" for result in comparison.gates)
    yield from (f"- warning: {_escape(warning)}" for warning in comparison.warnings)
    for common in comparison.common:
        sides = (
            f"{_escape(common.other)} ({common.letter}) against {_escape(comparison.baseline)} (A)"
        )
        yield from ("", f"## {sides}")
        table = figures_section(comparison, common).parts[0]
        if isinstance(table, Table):
            head, *rows = ([_escape(cell) for cell in row] for row in table.rows)
            rule = ["---"] * len(head)
            yield from ("", *(f"| {' | '.join(row)} |" for row in (head, rule, *rows)))
        for flip in worst.get(common.other, ()):
            row = comparison.rows_of(common.other)[0]
            change = f"{row.metric} {flip.a:g} to {flip.b:g}: {flip.sample_id}"
            yield from ("", f"### {_escape(change)}")
            for name, text in _asked_and_answered(comparison, row, flip, texts):
                yield from _quote(name, text)


def records_of(
    comparison: Compared, row: MetricComparison, flip: Flip, texts: Texts
) -> tuple[Record | None, Record | None]:
    """The records of a changed unit on both sides, those that were read; of several epochs the one
    whose score is nearest to the side's."""
    first = texts.get(comparison.baseline, {}).get((flip.sample_id, flip.task), ())
    second = texts.get(row.other, {}).get((flip.other_id or flip.sample_id, flip.task), ())
    return pick_answer(first, row.metric, flip.a), pick_answer(second, row.metric, flip.b)


def _quote(name: str, text: str) -> Iterator[str]:
    """A text as a block of code, which no text within ends."""
    shown = (f"    {escape_controls(line)}" for line in shorten(text).splitlines())
    yield from ("", f"{name}:", "", *(shown if text.strip() else ["    (nothing)"]))


def _escape(text: str) -> str:
    flat = escape_controls(" ".join(text.split()))
    for sign in "\\`*_|<[#":
        flat = flat.replace(sign, f"\\{sign}")
    return flat


def to_junit(comparison: Compared) -> str:
    """A case a gate and side: FAIL fails, INCONCLUSIVE is an error, what may fail is skipped."""
    kinds = [
        "" if of.outcome == "PASS" else "skipped" if of.tier == "may" else _KINDS[of.outcome]
        for of in comparison.gates
    ]
    counts = {f"{kind}s": str(kinds.count(kind)) for kind in ("failure", "error")}
    counts |= {"tests": str(len(kinds)), "skipped": str(kinds.count("skipped"))}
    suite = ElementTree.Element("testsuite", {"name": "memray-eval compare", **counts})
    for result, kind in zip(comparison.gates, kinds, strict=True):
        gate, where = result.gate, f"{comparison.baseline}.{result.other}"
        case = {"name": escape_controls(gate), "classname": escape_controls(where)}
        element = ElementTree.SubElement(suite, "testcase", case)
        if kind:
            ElementTree.SubElement(
                element, kind, {"message": escape_controls(f"{result.outcome}: {result.text}")}
            )
    return str(ElementTree.tostring(suite, "utf-8"), "utf-8")


DUELS_SHOWN = 15
MOST_FLIPS = 1 / 3  # of pairs: a judge whose verdicts depend on the order more often is not usable


def render_pairs(report: PairwiseReport) -> str:
    """The candidates by strength, the duels, and what the judge's verdicts are worth."""
    lines: list[str] = []
    for section in (*pair_sections(report), Section("", [how_pairs_measured(report)])):
        for part in (*section.parts, ""):
            lines += (wrap_text(part) or [""]) if isinstance(part, str) else part.lines()
    return "\n".join(lines)


def pair_sections(report: PairwiseReport) -> Iterator[Section]:
    """A section for each metric of pairs, with lines of any length."""
    for criterion in report.criteria:
        yield Section(criterion.metric, list(_pair_parts(report, criterion)))


def leader_in_words(criterion: Criterion) -> str:
    """The leader in a sentence, and if chance alone would do that."""
    nothing = "nothing can be said of the candidates."
    if not criterion.n_pairs:
        return f"{criterion.metric}: no pair has both verdicts; {nothing}"
    n_scored, n_abstained = (criterion.statuses.get(of, 0) for of in ("scored", "abstained"))
    why = criterion.undecided or why_undecided(n_scored + n_abstained, 0, n_abstained)
    if (criterion.flips.value or 0.0) > MOST_FLIPS:
        why = (
            "not usable: the judge's verdict changes with the order in "
            f"{percent(criterion.flips.value)} of the pairs (more than a third)"
        )
    if why:
        return f"{criterion.metric}: {why}; {nothing}"
    first, *others = criterion.standings
    rivals = [standing.candidate for standing in others if (standing.rank_low or 0) == 1]
    rate = f"wins {percent(first.rate.value)} of its pairs{_rate_ends(first.rate)}"
    if (first.rank_high or 0) == 1 and not rivals:
        return f"{first.candidate} is preferred ({criterion.metric}): it {rate}."
    if equal := [of.candidate for of in others if of.rank == first.rank]:
        level = f"{first.candidate} and {', '.join(equal)} are equally strong"
        return f"No candidate leads ({criterion.metric}): {level}; {first.candidate} {rate}."
    names = ", ".join(rivals) or "the next"
    return f"{first.candidate} leads ({criterion.metric}), not clearly ahead of {names}: it {rate}."


def _pair_parts(report: PairwiseReport, criterion: Criterion) -> Iterator[Content]:
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
        f"{_rate_ends(criterion.first_share)} of {criterion.first_share.n:,} decided verdicts "
        "(50 %: no bias)"
    )
    yield (
        f"flips: {percent(criterion.flips.value)}{_rate_ends(criterion.flips)} of pairs got "
        "another verdict in the other order; such a pair is a tie"
    )
    if criterion.longer_share.n:
        odds, effect = criterion.odds_of_double_length, "what length itself does cannot be told"
        if odds.value is not None:
            times = f"{odds.value:z.2f} [{odds.low:z.2f}, {odds.high:z.2f}]"
            effect = f"twice the length multiplies the odds by {times}"
        longer = criterion.longer_share
        yield (
            f"length: the longer answer wins {percent(longer.value)}{_rate_ends(longer)} of "
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


def how_pairs_measured(report: PairwiseReport) -> str:
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


def format_ends(rate: Rate) -> str:
    """An interval in percent; "" if there is none."""
    if rate.low is None or rate.high is None:
        return ""
    return f"{100 * rate.low:z.1f} to {100 * rate.high:z.1f}"


def _rate_ends(rate: Rate) -> str:
    return f" [{format_ends(rate)}]" if format_ends(rate) else ""
