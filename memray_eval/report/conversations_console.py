"""Renders what was measured of answers on conversations, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from memray_eval.analysis.marks import NOTHING
from memray_eval.report.tables import TABLE_WIDTH, align_columns
from memray_eval.types import FAILURES, ArmSummary

_NAME = 24  # the widest name of a category
EST = " est."


def arm_lines(arms: Sequence[ArmSummary]) -> Iterator[str]:
    """A row an arm: accuracy against what it took; then where each failed."""
    heads = ("candidate", "arm", "n", "accuracy", "recall", "tokens", "seconds", "cut")
    rows = [
        (
            one.candidate[:_NAME],
            one.arm,
            f"{one.n:,}",
            _share(one.accuracy) + (EST if one.headline in one.estimated else ""),
            _share(one.recall),
            NOTHING if one.prompt_tokens_mean is None else f"{one.prompt_tokens_mean:,.0f}",
            NOTHING if one.seconds_mean is None else f"{one.seconds_mean:.2f}",
            f"{one.n_cut:,}",
        )
        for one in arms
    ]
    yield from align_columns([heads, *rows], left=(0, 1))
    yield "recall: of the evidence, in what was retrieved or shown. tokens, seconds: a question's"
    yield "prompt and answer, on average. cut: prompts that lost whole sessions, or turns, to fit."
    yield ""
    yield "Where did it fail?"
    width = max(map(len, FAILURES.values()))
    names = [one.candidate[:_NAME] for one in arms]
    table = [("", *names)]
    for key, words in FAILURES.items():
        counts = [(one.failures.get(key, 0), one.n_wrong) for one in arms]
        cells = (f"{n:,} ({n / wrong:6.1%})" if wrong else f"{n:,}" for n, wrong in counts)
        table.append((f"{words:<{width}}", *cells))
    table.append(("all wrong answers", *(f"{one.n_wrong:,} (100.0%)" if one.n_wrong else "0"
                                         for one in arms)))  # fmt: skip
    if any(one.n_unexplained for one in arms):
        table.append(("wrong, no evidence named", *(f"{one.n_unexplained:,}" for one in arms)))
    yield from align_columns(table)


def one_arm_lines(one: ArmSummary) -> Iterator[str]:
    """The overall figures as the benchmark reports them, figures by category with their intervals,
    abstention apart, the agreement, and the errata."""
    for name, value in one.overall.items():
        yield f"{name}: {_points(value)}"
    metrics = list(dict.fromkeys(figure.metric for figure in one.categories))
    found = {(figure.category, figure.metric): figure for figure in one.categories}
    categories = list(dict.fromkeys(figure.category for figure in one.categories))
    if metrics:
        yield ""
    while metrics:
        shown: list[str] = []
        width = _NAME + 5
        while metrics and (not shown or width + max(len(metrics[0]), 19) + 2 <= TABLE_WIDTH):
            width += max(len(metrics[0]), 19) + 2
            shown.append(metrics.pop(0))
        marks = (EST if name in one.estimated else "" for name in shown)
        rows = [("category", "n", *map("".join, zip(shown, marks, strict=True)))]
        for category in categories:
            figures = [found.get((category, metric)) for metric in shown]
            n = max((figure.n for figure in figures if figure), default=0)
            cells = (
                NOTHING
                if figure is None
                else _points(figure.mean)
                if figure.low is None or figure.high is None
                else f"{_points(figure.mean)} [{100 * figure.low:z.1f}, {100 * figure.high:z.1f}]"
                for figure in figures
            )
            rows.append(((category or "all")[:_NAME], f"{n:,}", *cells))
        yield from align_columns(rows)
        if metrics:
            yield ""
    estimate = "; est.: an estimate by rules, not a judge's verdict" if one.estimated else ""
    yield f"mean x 100 [95 % interval, clustered by conversation where there are several{estimate}]"
    if any(category is not None for category in categories):
        yield "each interval holds alone: they are not corrected for the number of categories"
    if one.n_abstention:
        for what, means in (("unanswerable", one.abstention), ("answerable", one.answerable)):
            told = ", ".join(f"{name} {_points(value)}" for name, value in means.items())
            n = one.n_abstention if what == "unanswerable" else one.n - one.n_abstention
            yield f"{what} alone (n {n:,}): {told or NOTHING}"
    if one.agreement is not None:
        kappa = "-" if one.agreement.kappa is None else f"{one.agreement.kappa:z.2f}"
        yield (
            f"{one.judge_metric} and {one.rule_metric} agree on {one.agreement.share:.1%} of "
            f"{one.agreement.n:,} answers, kappa {kappa}"
        )
    yield from _errata_lines(one)


def _errata_lines(one: ArmSummary) -> Iterator[str]:
    if not one.errata:
        return
    yield ""
    yield f"Errata: {one.n_errata:,} of these questions are in the file"
    rows = [("metric", "n", "all", "n", "without wrong gold", "ceiling")]
    for figure in one.errata:
        rows.append(
            (
                figure.metric,
                f"{figure.n:,}",
                _points(figure.mean),
                f"{figure.n_without:,}",
                _points(figure.mean_without),
                _points(figure.ceiling),
            )
        )
    yield from align_columns(rows)
    yield "ceiling: what a system that answers everything rightly would score against this gold"


def _share(value: float | None) -> str:
    return NOTHING if value is None else f"{value:z.3f}"


def _points(value: float | None) -> str:
    return NOTHING if value is None else f"{100 * value:z.2f}"
