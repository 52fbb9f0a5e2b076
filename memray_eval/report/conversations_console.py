"""The sections on conversation memory: accuracy by arm, and figures by category."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from memray_eval.analysis.marks import NOTHING
from memray_eval.report.sections import (
    Content,
    Section,
    Table,
    bounded,
    ends,
    figure,
    fit_tables,
    hundredths,
)
from memray_eval.types import FAILURES, ArmSummary, CategoryFigure, StoreFigures

_NAME = 24  # the widest name of a category
EST = " est."


def arm_sections(arms: Sequence[ArmSummary]) -> Iterator[Section]:
    """All arms side by side, then a section for each."""
    if arms:
        yield Section("CONVERSATION MEMORY", list(_arms(arms)))
    if stores := [(arm, arm.store) for arm in arms if arm.store is not None]:
        yield Section("MEMORY STORES", list(_stores(stores)))
    for arm in arms:
        title = f"CONVERSATION MEMORY - {arm.candidate} ({arm.arm})"
        yield Section(title, list(_arm(arm)))


def _arms(arms: Sequence[ArmSummary]) -> Iterator[Content]:
    """A row an arm: accuracy against what it took; then where each failed."""
    heads = ("candidate", "arm", "n", "accuracy", "recall", "tokens", "seconds", "cut")
    rows = [
        (
            arm.candidate[:_NAME],
            arm.arm,
            f"{arm.n:,}",
            figure(arm.accuracy, "z.3f") + (EST if arm.headline in arm.estimated else ""),
            figure(arm.recall, "z.3f"),
            figure(arm.prompt_tokens_mean, ",.0f"),
            figure(arm.seconds_mean, ".2f"),
            f"{arm.n_cut:,}",
        )
        for arm in arms
    ]
    yield Table([heads, *rows], left=(0, 1))
    yield "recall: of the evidence, in what was retrieved or shown. tokens, seconds: a question's"
    yield "prompt and answer, on average. cut: prompts that lost whole sessions, or turns, to fit."
    yield ""
    yield "Where did it fail?"
    width = max(map(len, FAILURES.values()))
    names = [arm.candidate[:_NAME] for arm in arms]
    table = [("", *names)]
    for key, words in FAILURES.items():
        counts = [(arm.failures.get(key, 0), arm.n_wrong) for arm in arms]
        cells = (f"{n:,} ({n / wrong:6.1%})" if wrong else f"{n:,}" for n, wrong in counts)
        table.append((f"{words:<{width}}", *cells))
    all_wrong = (f"{arm.n_wrong:,} (100.0%)" if arm.n_wrong else "0" for arm in arms)
    table.append(("all wrong answers", *all_wrong))
    if any(arm.n_unexplained for arm in arms):
        table.append(("wrong, no evidence named", *(f"{arm.n_unexplained:,}" for arm in arms)))
    yield Table(table)


def _stores(arms: Sequence[tuple[ArmSummary, StoreFigures]]) -> Iterator[Content]:
    """A row a store: what it returned, what it took; then its accuracy against other arms."""
    heads = ("candidate", "recall", "complete", "entries", "shown", "writes", "p50 s", "p95 s",
             "searches", "p50 s", "p95 s", "tokens", "$", "failed")  # fmt: skip
    rows = [
        (
            arm.candidate[:_NAME],
            figure(arm.recall, "z.3f"),
            figure(store.complete, "z.3f"),
            figure(store.returned, ".1f"),
            figure(arm.prompt_tokens_mean, ",.0f"),
            f"{store.n_writes:,}",
            figure(store.write_p50_s, ".3f"),
            figure(store.write_p95_s, ".3f"),
            f"{store.n_searches:,}",
            figure(store.search_p50_s, ".3f"),
            figure(store.search_p95_s, ".3f"),
            f"{store.tokens:,}" + EST * store.is_estimated,
            figure(store.usd, ".4f"),
            f"{store.n_failed:,}",
        )
        for arm, store in arms
    ]
    yield Table([heads, *rows])
    yield "recall: of the evidence, by content: its words in an entry that was returned. complete:"
    yield "the share of the right answer's words in all of them. shown: a prompt's tokens. writes,"
    yield "searches: of sessions and questions. tokens, $: the store's (est.: of what was written)."
    differences = [
        (
            arm.candidate[:_NAME],
            against.other[:_NAME],
            f"{against.n:,}",
            bounded(against.difference, against.low, against.high, "+z.3f"),
        )
        for arm, store in arms
        for against in store.differences
    ]
    if differences:
        yield ""
        yield Table([("accuracy of", "against", "n", "difference"), *differences], left=(0, 1))
    for arm, store in arms:
        if store.tools:
            counts = ", ".join(f"{name} {n:,}" for name, n in store.tools.items())
            yield f"questions of {arm.candidate}, by its tools: {counts}"


def _arm(arm: ArmSummary) -> Iterator[Content]:
    """The benchmark's own figures, those by category, abstention, the agreement, and the errata."""
    for name, value in arm.overall.items():
        yield f"{name}: {hundredths(value)}"
    by_key = {(cell.category, cell.metric): cell for cell in arm.categories}
    categories = list(dict.fromkeys(cell.category for cell in arm.categories))
    names = ["category", *((category or "all")[:_NAME] for category in categories)]
    columns = []
    for metric in dict.fromkeys(cell.metric for cell in arm.categories):
        cells = [by_key.get((category, metric)) for category in categories]
        head = metric + (EST if metric in arm.estimated else "")
        columns.append([head, *map(_with_interval, cells)])
    counts = [
        max(cell.n for cell in arm.categories if cell.category == category)
        for category in categories
    ]
    for table in fit_tables(names, [["n", *(f"{n:,}" for n in counts)], *columns]):
        yield from ("", table)
    estimate = "; est.: an estimate, not a judge's verdict" if arm.estimated else ""
    yield f"mean x 100 [95 % interval, clustered by conversation where there are several{estimate}]"
    if any(category is not None for category in categories):
        yield "each interval holds alone: they are not corrected for the number of categories"
    if arm.n_abstention:
        for kind, means in (("unanswerable", arm.abstention), ("answerable", arm.answerable)):
            points = ", ".join(f"{name} {hundredths(value)}" for name, value in means.items())
            n = arm.n_abstention if kind == "unanswerable" else arm.n - arm.n_abstention
            yield f"{kind} alone (n {n:,}): {points or NOTHING}"
    if arm.agreement is not None:
        kappa = figure(arm.agreement.kappa, "z.2f")
        yield (
            f"{arm.judge_metric} and {arm.rule_metric} agree on {arm.agreement.share:.1%} of "
            f"{arm.agreement.n:,} answers, kappa {kappa}"
        )
    if not arm.errata:
        return
    yield ""
    yield f"Errata: {arm.n_errata:,} of these questions are in the file"
    rows = [("metric", "n", "all", "n", "without wrong gold", "ceiling")]
    for erratum in arm.errata:
        n_all, n_without = f"{erratum.n:,}", f"{erratum.n_without:,}"
        mean, without = hundredths(erratum.mean), hundredths(erratum.mean_without)
        rows.append((erratum.metric, n_all, mean, n_without, without, hundredths(erratum.ceiling)))
    yield Table(rows)
    yield "ceiling: what a system that answers everything rightly would score against this gold"


def _with_interval(cell: CategoryFigure | None) -> str:
    if cell is None or cell.low is None or cell.high is None:
        return NOTHING if cell is None else hundredths(cell.mean)
    return f"{hundredths(cell.mean)} {ends(100 * cell.low, 100 * cell.high, 'z.1f')}"
