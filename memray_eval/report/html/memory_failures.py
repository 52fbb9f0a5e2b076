"""The page's section on conversation memory: accuracy against tokens by arm, and where it
failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from memray_eval.analysis.statistics import Interval
from memray_eval.report.html.plots import Point, speed_quality
from memray_eval.report.html.view_model import number, percent
from memray_eval.report.sections import Grid, figure
from memray_eval.types import FAILURES, ArmSummary, Summary


class ArmsSection(NamedTuple):
    """`plot` is empty if the tokens of prompts were not counted; `unexplained` wrong answers are to
    questions that name no evidence."""

    plot: Markup
    caption: str
    failures: Grid
    unexplained: int
    arms: Grid
    errata: Grid | None


def describe_arms(summary: Summary) -> ArmsSection | None:
    """The section; None if the suite's questions are not on conversations."""
    arms = summary.arms
    if not arms:
        return None
    points = [
        Point(arm.candidate, arm.prompt_tokens_mean, 100 * arm.accuracy, _interval(arm, summary))
        for arm in arms
        if arm.prompt_tokens_mean is not None and arm.accuracy is not None
    ]
    axes = ("tokens of a prompt, on average", "accuracy", "tokens")
    mark = " (estimate)" if any(arm.headline in arm.estimated for arm in arms) else ""
    return ArmsSection(
        plot=speed_quality(points, *axes) if points else Markup(""),
        caption=f"{summary.headline}{mark} x 100 with its 95 % interval, by what the prompt took.",
        failures=_failure_table(arms),
        unexplained=sum(arm.n_unexplained for arm in arms),
        arms=_arm_table(arms),
        errata=_errata_table(arms),
    )


def _interval(arm: ArmSummary, summary: Summary) -> Interval | None:
    for whole in arm.categories:
        is_headline = (whole.category, whole.metric) == (None, summary.headline)
        if is_headline and whole.low is not None and whole.high is not None:
            return Interval(100 * whole.low, 100 * whole.high)
    return None


def _failure_table(arms: Sequence[ArmSummary]) -> Grid:
    rows = [
        (words, *(_share(arm.failures.get(key, 0), arm.n_wrong) for arm in arms))
        for key, words in FAILURES.items()
    ]
    rows.append(("all wrong answers", *(_share(arm.n_wrong, arm.n_wrong) for arm in arms)))
    return Grid.of_texts("Where did it fail?", ("", *(arm.candidate for arm in arms)), rows)


def _arm_table(arms: Sequence[ArmSummary]) -> Grid:
    overall = list(dict.fromkeys(name for arm in arms for name in arm.overall))
    taken = ("abstention", "recall", "tokens", "seconds", "cut")
    heads = ("candidate", "shown", "n", *overall, *taken)
    rows = []
    for arm in arms:
        rows.append((
            arm.candidate,
            arm.arm,
            f"{arm.n:,}",
            *(number(arm.overall.get(name)) for name in overall),
            number(arm.abstention.get(arm.rule_metric or arm.judge_metric)),
            percent(arm.recall),
            figure(arm.prompt_tokens_mean, ",.0f"),
            number(arm.seconds_mean, 2),
            f"{arm.n_cut:,}",
        ))  # fmt: skip
    return Grid.of_texts("By arm", heads, rows)


def _errata_table(arms: Sequence[ArmSummary]) -> Grid | None:
    rows = [
        (
            arm.candidate,
            erratum.metric + (" (estimate)" if erratum.metric in arm.estimated else ""),
            f"{number(erratum.mean)} (n {erratum.n:,})",
            f"{number(erratum.mean_without)} (n {erratum.n_without:,})",
            number(erratum.ceiling),
        )
        for arm in arms
        for erratum in arm.errata
    ]
    heads = ("candidate", "metric", "all", "without wrong gold", "ceiling")
    return Grid.of_texts("Errata", heads, rows) if rows else None


def _share(count: int, whole: int) -> str:
    return f"{count:,} ({count / whole:.1%})" if whole else f"{count:,}"
