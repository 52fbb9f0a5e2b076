"""The page's section on conversation memory: accuracy against tokens by arm, and where it
failed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from memray_eval.analysis.statistics import Interval
from memray_eval.report.html.plots import Point, speed_quality, tag
from memray_eval.report.html.view_model import number, percent
from memray_eval.types import FAILURES, ArmSummary, CategoryFigure, Summary


def render_arms(summary: Summary) -> Markup:
    """The section; empty where the suite's questions are not on conversations."""
    arms = summary.arms
    if not arms:
        return Markup("")
    unexplained = sum(arm.n_unexplained for arm in arms)
    text = f"Beside them {unexplained:,} wrong answers to questions that name no evidence."
    note = tag("p", text if unexplained else "", class_="quiet")
    failures = tag("div", tag("h3", "Where did it fail?"), _failure_table(arms), note)
    parts = [
        tag("h2", "Conversation memory"),
        tag("div", *_plot(summary), failures, class_="pair"),
        tag("h3", "By arm"),
        _arm_table(arms),
    ]
    if errata := list(_errata_rows(arms)):
        heads = ("candidate", "metric", "all", "without wrong gold", "ceiling")
        parts += [tag("h3", "Errata"), _table(heads, errata)]
    return tag("section", *parts, id="memory")


def _plot(summary: Summary) -> Iterator[Markup]:
    """Accuracy against the tokens of a prompt, where these were counted."""
    points = [
        Point(
            arm.candidate,
            arm.prompt_tokens_mean,
            100 * arm.accuracy,
            _interval(arm, summary.headline),
        )
        for arm in summary.arms
        if arm.prompt_tokens_mean is not None and arm.accuracy is not None
    ]
    if points:
        drawn = speed_quality(points, "tokens of a prompt, on average", "accuracy", "tokens")
        mark = " (estimate)" if any(arm.headline in arm.estimated for arm in summary.arms) else ""
        caption = f"{summary.headline}{mark} x 100 with its 95 % interval, by what the prompt took."
        yield tag("figure", drawn, tag("figcaption", caption, class_="quiet"))


def _interval(arm: ArmSummary, headline: str) -> Interval | None:
    overall: CategoryFigure | None = next(
        (figure for figure in arm.categories if (figure.category, figure.metric) ==
         (None, headline)), None,
    )  # fmt: skip
    if overall is None or overall.low is None or overall.high is None:
        return None
    return Interval(100 * overall.low, 100 * overall.high)


def _failure_table(arms: Sequence[ArmSummary]) -> Markup:
    rows = [
        (words, *(_share(arm.failures.get(key, 0), arm.n_wrong) for arm in arms))
        for key, words in FAILURES.items()
    ]
    rows.append(("all wrong answers", *(_share(arm.n_wrong, arm.n_wrong) for arm in arms)))
    return _table(("", *(arm.candidate for arm in arms)), rows)


def _arm_table(arms: Sequence[ArmSummary]) -> Markup:
    overall = list(dict.fromkeys(name for arm in arms for name in arm.overall))
    heads = (
        "candidate",
        "shown",
        "n",
        *overall,
        "abstention",
        "recall",
        "tokens",
        "seconds",
        "cut",
    )
    rows = []
    for arm in arms:
        rows.append((
            arm.candidate,
            arm.arm,
            f"{arm.n:,}",
            *(number(arm.overall.get(name)) for name in overall),
            number(arm.abstention.get(arm.rule_metric or arm.judge_metric)),
            percent(arm.recall),
            "-" if arm.prompt_tokens_mean is None else f"{arm.prompt_tokens_mean:,.0f}",
            number(arm.seconds_mean, 2),
            f"{arm.n_cut:,}",
        ))  # fmt: skip
    return _table(heads, rows)


def _errata_rows(arms: Sequence[ArmSummary]) -> Iterator[tuple[str, ...]]:
    for arm in arms:
        for figure in arm.errata:
            yield (
                arm.candidate,
                figure.metric + (" (estimate)" if figure.metric in arm.estimated else ""),
                f"{number(figure.mean)} (n {figure.n:,})",
                f"{number(figure.mean_without)} (n {figure.n_without:,})",
                number(figure.ceiling),
            )


def _share(count: int, whole: int) -> str:
    return f"{count:,} ({count / whole:.1%})" if whole else f"{count:,}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Markup:
    head = tag("tr", *(tag("th", text, scope="col") for text in heads))
    body = (
        tag("tr", tag("th", row[0], scope="row"), *(tag("td", text) for text in row[1:]))
        for row in rows
    )
    table = tag("table", tag("thead", head), tag("tbody", *body), class_="grid")
    return tag("div", table, class_="scroll")
