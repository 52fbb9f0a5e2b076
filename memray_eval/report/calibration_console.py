"""Renders how far judges agree with people: a column a judge, and each judge's curve."""

from __future__ import annotations

from collections.abc import Iterator

from memray_eval.analysis.calibration import (
    MIN_COVERAGE,
    CalibrationReport,
    Coefficient,
    JudgeFigures,
    RaterComparison,
)
from memray_eval.report.sections import Row, Section, Table, bounded

TITLES = {
    "exact": "exact agreement",
    "kappa": "weighted kappa",
    "alpha_ordinal": "alpha, ordinal",
    "alpha_interval": "alpha, interval",
    "alpha_nominal": "alpha, nominal",
    "spearman": "Spearman",
    "bias": "bias",
    "calibration_error": "calibration gap",
    "flip_rate": "flip rate",
}
PEOPLE = "people"
_UNDEFINED = "-: undefined, for all scores or all labels are the same, or there are none"
MOST_PEOPLE = 20  # listed one by one


def render(report: CalibrationReport) -> str:
    """Renders the whole report as text."""
    lines = (("", section.title, *section.lines()) for section in sections(report))
    return "\n".join(line for part in lines for line in part).strip("\n")


def sections(report: CalibrationReport) -> Iterator[Section]:
    """The figures of judges and people, the suggested judge; each judge's curve; single people."""
    (low, high), (to_low, to_high) = report.scale, report.human_scale
    title = (
        f"{report.metric} ({low:g}-{high:g}) on {report.labelled}: {report.n} labelled responses, "
        f"{report.n_clusters} clusters"
    )
    note = (
        f"Figures on people's scale, {to_low:g}-{to_high:g}, with 95 % bootstrap intervals over "
        "clusters"
    )
    advice = report.suggestion
    tables = [judge.figures for judge in report.judges]
    tables += [report.people.figures] if report.people else []
    kappas = (figures.get(name) for figures in tables for name in ("kappa", "spearman"))
    undefined = [_UNDEFINED] if any(k is not None and k.value is None for k in kappas) else []
    suggested = ["", f"Suggested: {advice.judge or 'none'}, {advice.reason}."] if advice else []
    says = [_whether_usable(judge) for judge in report.judges]
    yield Section(title, [*says, "", note, "", _figures_table(report), *undefined, *suggested])
    if report.adjusted:
        rows: list[Row] = [("", "judge", PEOPLE, "answers", "labels", "lambda")]
        for mean in report.adjusted:
            shown = mean.refused or bounded(mean.value, mean.low, mean.high, ".3f")
            counts = f"{mean.n:,}", f"{mean.n_labels:,}", f"{mean.tuning or 0.0:.2f}"
            rows.append((mean.candidate, f"{mean.raw:.3f}", shown, *counts))
        title = f"Mean of all answers, {low:g}-{high:g}, and as people would have it (PPI++, 95 %)"
        yield Section(title, [Table(rows)])
    for judge in report.judges:
        rows = [("from", "to", "n", "judge", PEOPLE)]
        for part in judge.curve:
            ends = f"{part.low:.2f}", f"{part.high:.2f}"
            rows.append((*ends, f"{part.n}", f"{part.judge:.3f}", f"{part.people:.3f}"))
        yield Section(f"Calibration of {judge.judge} by {judge.curve_by}", [Table(rows, left=())])
    if report.raters:
        yield _raters_section(report.raters)


def _whether_usable(judge: JudgeFigures) -> str:
    """Whether a judge may be used, and by what figures."""
    kappa = f"weighted kappa {format_figure(judge.figures.get('kappa'))}"
    figures = f"{kappa}, {judge.coverage:.1%} scored"
    name = f"{judge.judge} ({judge.judged_by})" if judge.judged_by else judge.judge
    if judge.may_be_used:
        return f"{name} may be used: {figures}."
    needs = f"its interval must lie above 0, and {MIN_COVERAGE:.0%} be scored"
    return f"{name} is not to be used: {figures}; {needs}."


def _raters_section(raters: RaterComparison) -> Section:
    """Macro F1 of the judges, then of people, the highest first."""
    people = sorted(raters.people, key=lambda person: -(person.macro_f1.value or 0.0))
    values = [person.macro_f1.value for person in people if person.macro_f1.value is not None]
    rows: list[Row] = [("", "macro F1", "pairs", "above people")]
    for judge in raters.judges:
        above = f"{sum(value < (judge.macro_f1.value or 0.0) for value in values)} of {len(values)}"
        rows.append((judge.rater, format_figure(judge.macro_f1), f"{judge.n:,}", above))
    mean = Coefficient(value=raters.people_mean)
    rows.append((f"{PEOPLE}, weighted by pairs", format_figure(mean), "", ""))
    for person in people[:MOST_PEOPLE]:
        rows.append((person.rater, format_figure(person.macro_f1), f"{person.n:,}", ""))
    rest = [f"... of {len(people)} (--json has all)"] if len(people) > MOST_PEOPLE else []
    return Section("Macro F1 against other raters of the same response", [Table(rows), *rest])


def _figures_table(report: CalibrationReport) -> Table:
    columns: list[Row] = [("", "scored", *TITLES.values(), "cost")]
    for judge in report.judges:
        scored = f"{judge.n_scored} of {judge.n} ({judge.coverage:.1%})"
        figures = (format_figure(judge.figures.get(name)) for name in TITLES)
        cost = "unknown" if judge.cost_usd is None else f"${judge.cost_usd:.4f}"
        columns.append((judge.judge, scored, *figures, cost))
    if people := report.people:
        figures = (format_figure(people.figures.get(name)) for name in TITLES)
        columns.append((PEOPLE, str(people.n), *figures, ""))
    return Table(list(zip(*columns, strict=True)))


def format_figure(figure: Coefficient | None) -> str:
    """A figure with its interval, or "-" for one that is undefined."""
    figure = figure or Coefficient(value=None)
    return bounded(figure.value, figure.low, figure.high, ".3f")
