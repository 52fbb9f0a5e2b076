"""Summary: the aggregates of a run's metrics, tasks and candidates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from memray_eval.types.base import Frozen
from memray_eval.types.responses import FigureForm
from memray_eval.types.scores import FALLBACKS, is_estimate


class SummaryLine(Frozen):
    """One line of a metric's section: a label, where its figure stands in the MetricSummary, and
    how to print it: four decimals, a whole number, two decimals, a share as percent, 4.12/5.00,
    4/5, or a count with its share and a bar."""

    label: str
    field: str
    form: FigureForm = "score"
    note: str = ""


class SummarySection(Frozen):
    """A group of lines under a heading."""

    heading: str = ""
    lines: tuple[SummaryLine, ...] = ()


class Figure(Frozen):
    """The figure that stands for a metric wherever only one does.

    `average` is "mean" (of the values of its units) or "micro" (one ratio over all units, in which
    every one of its `whole`, such as claims, counts once). `stderr` takes units as independent;
    `low` and `high` are the 95 % interval, clustered where the summary's `intervals` says so.
    `value` is None where nothing was scored, or there is none of the `whole`."""

    average: Literal["mean", "micro"] = "mean"
    value: float | None = None
    stderr: float | None = None
    low: float | None = None
    high: float | None = None
    whole: str = ""


class LabelsNeeded(Frozen):
    """About how wide an adjusted figure's interval would be with so many `more` labels: half of its
    width."""

    more: int
    half_width: float


class AdjustedFigure(Frozen):
    """What people would say of a metric's answers, from the judge's verdicts (`raw`, the mean of
    the answers' values) and `n_labels` labels of people's, of `n_clusters` clusters, in the file
    `labelled`. All figures are on the metric's scale.

    `method` is "Rogan-Gladen", from the judge's `sensitivity` and `specificity`, or "PPI++", from
    labels of answers like the run's (`is_own`: of its own) and a `tuning` (lambda, 0-1) of how far
    the judge is relied on. `low` and `high` are the 95 % interval, which counts the labels' noise.
    `needed` says what more labels would give; no number of them gives less than `least_half_width`.
    Where it is `refused`, that says why, and there are no figures."""

    method: Literal["", "Rogan-Gladen", "PPI++"] = ""
    raw: float | None = None
    value: float | None = None
    low: float | None = None
    high: float | None = None
    labelled: str = ""
    n_labels: int = 0
    n_clusters: int = 0
    is_own: bool = False
    sensitivity: float | None = None
    specificity: float | None = None
    tuning: float | None = None
    needed: tuple[LabelsNeeded, ...] = ()
    least_half_width: float | None = None
    refused: str = ""


class EarlyDecision(Frozen):
    """Why a run ended before all of its units: what `rule` asked for was decided by the first
    `n_looked_at` units, of one candidate (or pairs of two), in the run's seeded order. `estimate`,
    `low` and `high` are the metric's mean, or the difference of the second candidate (`of`) from
    the first, on the metric's scale, by a confidence sequence: at `level` it holds at all looks
    together."""

    rule: str
    metric: str
    of: str
    n_looked_at: int
    n_looks: int
    estimate: float
    low: float
    high: float
    level: float


class MetricSummary(Frozen):
    """One metric over all units of one candidate.

    `n` counts units; `coverage` = scored / (n - not applicable), None when nothing applied. Figures
    are None, never 0.0, where nothing was scored. `figure` stands for the metric; `mean` and what
    follows it are of the units' values. `std` is the population's (numpy's default), `stderr` =
    sample std / sqrt(n_scored). `n_no_answer` units have no score because there was no answer. Of
    the scored, `n_estimated` are offline estimates and
    `n_fallbacks` are what a rule gave because the judge failed; both follow from `judges`. `worth`
    says what the estimates are worth, where there are any, and `reason` why the metric is not
    applicable where the rules cannot tell. `adjusted` is there where the run was given labels of
    people's (a calibration)."""

    metric: str
    candidate: str
    title: str
    scale: tuple[float, float]
    judges: dict[str, int] = Field(default_factory=dict)
    n: int
    n_scored: int
    n_estimated: int = 0
    n_fallbacks: int = 0
    n_abstained: int
    n_not_applicable: int
    n_no_answer: int = 0
    n_failed: int
    coverage: float | None
    figure: Figure = Figure()
    mean: float | None = None
    median: float | None = None
    min: float | None = None
    max: float | None = None
    std: float | None = None
    stderr: float | None = None
    distribution: dict[str, int] = Field(default_factory=dict)
    micro: dict[str, float | None] = Field(default_factory=dict)
    macro: dict[str, float | None] = Field(default_factory=dict)
    extras: dict[str, float | None] = Field(default_factory=dict)
    layout: tuple[SummarySection, ...] = ()
    worth: str = ""
    reason: str = ""
    adjusted: AdjustedFigure | None = None

    @property
    def average(self) -> str:
        return self.figure.average

    @model_validator(mode="before")
    @classmethod
    def _count_by_rules(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        judges = data.get("judges") or {}
        estimated = sum(count for judge, count in judges.items() if is_estimate(judge))
        replaced = sum(count for judge, count in judges.items() if judge in FALLBACKS)
        counts = {"n_estimated": estimated, "n_fallbacks": replaced}
        figure = Figure(value=data.get("mean"), stderr=data.get("stderr"))
        return {"figure": figure, **data, **counts}


class GenerationSummary(Frozen):
    """The generation stage for one candidate. Tokens per second are output tokens over the
    seconds in which any of its requests was under way.

    `cached_tokens` of the prompts came from the engine's prefix cache; `cache_hit_rate` is their
    share of the prompt tokens of the units where that was measured. Both are None where it never
    was. `truncated` units lost the middle of their prompt, `thinking` units answered with thinking
    blocks, and `prompt_forms` counts units by how they were asked (chat, plain). Of `uncounted`
    answers the server did not tell the tokens, or not as numbers that can be: the sums are without
    them. `no_answer` counts the units without an answer by cause, and `answered` those with one; it
    is None in runs of older versions. `asked_again` of them were, with a larger limit, and
    `answered_then` had an answer then."""

    candidate: str
    model: str
    n: int
    n_failed: int
    prompt_tokens: int
    output_tokens: int
    output_tokens_per_s: float | None
    ttft_s_mean: float | None
    ttft_s_p95: float | None
    duration_s_mean: float | None
    finish_reasons: dict[str, int]
    cached_tokens: int | None = None
    cache_hit_rate: float | None = None
    truncated: int = 0
    thinking: int = 0
    prompt_forms: dict[str, int] = Field(default_factory=dict)
    uncounted: int = 0
    no_answer: dict[str, int] = Field(default_factory=dict)
    answered: int | None = None
    asked_again: int = 0
    answered_then: int = 0


class ServedModel(Frozen):
    """A model that answered as a candidate or a judge (`name`), by its name at the server: `n`
    answers, or scores by its verdicts, and the mean of each metric over them."""

    of: Literal["candidate", "judge"]
    name: str
    model: str
    n: int
    means: dict[str, float] = Field(default_factory=dict)


class TaskMetric(Frozen):
    """One metric over the units of one task. `n` counts units with an outcome, those it does not
    apply to among them.

    `mean` and `stderr` are those of the metric's figure over the task (`average` says which, as in
    Figure), in the metric's own scale, None where too little was scored. `coverage` = scored /
    applicable and `error_rate` = n_failed / applicable, None when nothing applied. `calls` were
    made to a judge model and paid, one each for a juror, a repeat and an asking again; `cached`
    scores needed none. `fallbacks` are scores that a rule gave because the judge failed,
    `estimates` those that rules gave because no judge was asked. `fixed` is 0: its rules were
    withdrawn. `latency_s_mean` is over the calls, None if there
    were none."""

    metric: str
    n: int
    n_scored: int
    n_failed: int
    mean: float | None
    stderr: float | None
    coverage: float | None
    error_rate: float | None
    calls: int
    cached: int
    fallbacks: int
    estimates: int = 0
    cost_usd: float | None
    unpriced_calls: int = 0
    input_tokens: int
    output_tokens: int
    latency_s_mean: float | None
    fixed: int = 0
    average: Literal["mean", "micro"] = "mean"


class Agreement(Frozen):
    """How far the judge's verdict and the rule (its score 0.5 or more) agree, over the `n` units
    that have both.

    `only_judge` and `only_rule` count the disagreements: correct for one, not for the other.
    `share` of the units agree. `kappa` is Cohen's, None where it is not defined: both find every
    unit correct, or both none, so that chance alone would agree as well; `share` is 1.0 then."""

    n: int
    both: int
    neither: int
    only_judge: int
    only_rule: int
    share: float
    kappa: float | None


class TaskSummary(Frozen):
    """One task of one candidate, `n` units; of one `bucket` of its samples, or of all of them where
    that is None. The task is empty for samples that name none. `agreement` is None where judge and
    rule were not both computed."""

    candidate: str
    task: str
    bucket: str | None
    n: int
    metrics: tuple[TaskMetric, ...]
    agreement: Agreement | None = None


class MacroSummary(Frozen):
    """All tasks of one candidate. `means` maps a metric to the mean of its task means, each task
    counting once whatever its size, in the metric's own scale (LongBench prints it times 100);
    `n_tasks` says over how many tasks, those without any score left out. `agreement` is over all
    units."""

    candidate: str
    n: int
    means: dict[str, float | None]
    n_tasks: dict[str, int]
    agreement: Agreement | None = None


class HeatMap(Frozen):
    """The mean of one metric by the length (tokens) and depth (percent) that a candidate's samples
    name in their metadata.

    `values` and `n` hold a row a depth and a figure a length; `n` counts scored units, and a value
    is None where it is 0. Samples that have a length and no depth are in `without_depth` and
    `n_without_depth`, a figure a length, empty where there are none. Where there are more than a
    grid shows, a length stands for those up to it and above half of it (`lengths_binned`), and
    depths are rounded to 5 percent (`depths_binned`). Of all scored units `estimates` are offline
    estimates, and `fallbacks` are what a rule gave because the judge failed."""

    candidate: str
    metric: str
    scale: tuple[float, float]
    lengths: tuple[float, ...]
    depths: tuple[float, ...]
    values: tuple[tuple[float | None, ...], ...]
    n: tuple[tuple[int, ...], ...]
    without_depth: tuple[float | None, ...] = ()
    n_without_depth: tuple[int, ...] = ()
    lengths_binned: bool = False
    depths_binned: bool = False
    estimates: int = 0
    fallbacks: int = 0


VERDICT_METRIC = "semantic_correctness"  # the judge's verdict that reports set against

RULE_METRIC = "rule_score"  # the suite's own rule

DISAGREEMENTS = "disagreements.jsonl"  # in the run folder: the units that the two disagree on


class Performance(Frozen):
    """Speed beside quality of one candidate, on one task or (task None) on all its `n` units;
    failed answers count in `n` only.

    Times are the responses' own, waiting for the engine included: they overlap in a run, so their
    sum is more than its wall time. `tokens_per_s` = output tokens / duration, both summed over the
    answers that have both. `quality` is the mean of the run's headline metric with its scale laid
    over 0-100, `quality_stderr` = sample std / sqrt(n_scored) of the same. None where too little
    was measured. Of the `n_scored`, `estimates` are offline estimates and `fallbacks` are what a
    rule gave because the judge failed."""

    candidate: str
    task: str | None
    n: int
    duration_s_total: float | None
    duration_s_mean: float | None
    output_tokens: int
    tokens_per_s: float | None
    ttft_s_mean: float | None
    ttft_s_p95: float | None
    n_scored: int
    quality: float | None
    quality_stderr: float | None
    estimates: int = 0
    fallbacks: int = 0


class QualityPair(Frozen):
    """Candidate `b` against `a` on the `n` prompts that both have a score of `metric` on.
    `difference` is that of the metric's figures, b - a, in points of 0-100, `low` and `high` its
    interval at `level`; None where too few prompts, or none that differ, give one.

    `is_shown`: the difference is told from 0. Where it is not, about `more` prompts like these
    would show one of this size; None where no number can be named."""

    a: str
    b: str
    n: int
    level: float
    metric: str = ""
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    is_shown: bool = False
    more: int | None = None


class Recommendation(Frozen):
    """What speed and quality say of a run's candidates, by the `rule` given in words, and by
    `pairs`: what their qualities differ by on the prompts that two have in common.

    Several are `fastest` or `best` only where their figures are equal; `as_good` are those that are
    not shown to differ from the best. `pareto`: no other is as fast and as good, and better in one.
    `use` is None where nothing speaks for one of them; `left_out` lack a figure."""

    fastest: tuple[str, ...] = ()
    best: tuple[str, ...] = ()
    as_good: tuple[str, ...] = ()
    pareto: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    use: str | None = None
    reason: str
    rule: str
    pairs: tuple[QualityPair, ...] = ()


class Sweep(Frozen):
    """One metric against temperature: candidates that differ in nothing else, by rising
    temperature. Means (of the figure that stands for the metric) and standard errors are in its own
    scale, over the `n` scored units,
    None where too few were; of these `estimates` are offline estimates, and `fallbacks` are what a
    rule gave because the judge failed."""

    metric: str
    model: str
    prompt: str
    candidates: tuple[str, ...]
    temperatures: tuple[float, ...]
    means: tuple[float | None, ...]
    stderrs: tuple[float | None, ...]
    n: tuple[int, ...]
    estimates: tuple[int, ...] = ()
    fallbacks: tuple[int, ...] = ()
    average: Literal["mean", "micro"] = "mean"


# Why an answer on a conversation is wrong; each wrong answer has one of these
FAILURES: Mapping[str, str] = {
    "not_retrieved": "evidence not retrieved",
    "not_used": "retrieved and not used",
    "answered": "answered though unanswerable",
    "abstained": "abstained though answerable",
    "disputed": "judge and rule disagree",
}


class CategoryFigure(Frozen):
    """The mean of one metric over the questions of one category (None: all of them), `n` scored,
    with its 95 % interval, clustered by conversation where there are several. Each interval holds
    alone: it is not corrected for the number of categories."""

    category: str | None
    metric: str
    n: int
    mean: float
    low: float | None = None
    high: float | None = None


class ErrataFigure(Frozen):
    """A metric with and without the questions whose right answer is wrong: over all `n` scored and
    over the other `n_without`. `ceiling` is what a system would score that answers everything
    rightly: nothing for those questions or, under the benchmark's rule, what the mended answer
    scores against the wrong one."""

    metric: str
    n: int
    mean: float
    n_without: int
    mean_without: float | None
    ceiling: float


class ArmSummary(Frozen):
    """How one candidate answered questions on conversations. `arm` says what of them it was shown.

    `failures` counts the wrong answers by FAILURES, and sums to `n_wrong`: those wrong by the
    verdict of `judge_metric` or by `rule_metric`, the benchmark's own score. `n_unexplained` more
    are wrong, of questions that name no evidence. `recall` is the mean recall of the evidence
    within what was retrieved or shown, over `n_recall` questions. Tokens and seconds are means a
    question, None where nobody measured them. `n_cut` prompts lost `sessions_left_out` sessions and
    `turns_left_out` turns to fit the model.

    `overall` are the benchmark's own overall figures, by what they are. `n_abstention` questions
    cannot be answered: `abstention` are the metrics' means over them alone, `answerable` over the
    others. `agreement` is that of the two metrics, None where they were not both computed. Of the
    metrics in `estimated` some values are offline estimates; `accuracy` is the mean of the run's
    `headline`."""

    candidate: str
    arm: str
    n: int
    n_wrong: int
    failures: dict[str, int]
    n_unexplained: int
    judge_metric: str = ""
    rule_metric: str = ""
    recall: float | None = None
    n_recall: int = 0
    prompt_tokens_mean: float | None = None
    output_tokens_mean: float | None = None
    seconds_mean: float | None = None
    accuracy: float | None = None
    headline: str = ""
    estimated: tuple[str, ...] = ()
    n_cut: int = 0
    sessions_left_out: int = 0
    turns_left_out: int = 0
    overall: dict[str, float | None] = Field(default_factory=dict)
    n_abstention: int = 0
    abstention: dict[str, float] = Field(default_factory=dict)
    answerable: dict[str, float] = Field(default_factory=dict)
    categories: tuple[CategoryFigure, ...] = ()
    agreement: Agreement | None = None
    errata: tuple[ErrataFigure, ...] = ()
    n_errata: int = 0


class Cause(Frozen):
    """Why `n_units` units failed, as far as they have it in common, and the whole text of one of
    them. A unit whose metrics failed for several causes counts in each."""

    cause: str
    n_units: int
    example: str
    unit_id: str


class BatchFigures(Frozen):
    """A run's judge calls that went through batch APIs, and those that were made one by one.

    `n_verdicts` of the `n_calls` in `n_batches` brought a verdict or a refusal; `lost_usd` of their
    `cost_usd` was paid for calls that did not. `n_live` calls of the scores were live. Costs
    leave out those of unpriced calls."""

    n_batches: int
    n_calls: int
    n_verdicts: int
    cost_usd: float
    lost_usd: float
    n_live: int
    live_usd: float
    unpriced_calls: int = 0
    live_unpriced_calls: int = 0


class PromptCacheUse(Frozen):
    """What providers' prompt caches did for the judge calls behind a run's scores. Of
    `input_tokens`, so many were read from a cache, and written into one at a price of its own;
    `saved_usd` is what both took off the cost, below 0 where more was written than was worth it."""

    input_tokens: int
    cached_input_tokens: int
    cache_write_tokens: int
    saved_usd: float

    @property
    def cached_share(self) -> float:
        return self.cached_input_tokens / max(1, self.input_tokens)


class Summary(Frozen):
    """All aggregates of a run, as written to summary.json. Times in seconds; stage times overlap in
    a streamed run.

    `tasks` and `macro` are there where samples name their tasks or a rule was compared with the
    judge, `heat_maps` where they name length and depth. `n_disagreements` units are listed in the
    file DISAGREEMENTS; None where nothing was compared. `causes` of failed units stand most
    frequent first. `headline` names the metric that stands for quality. `performance` is there
    where a run has several candidates, or its suite is about both; `recommendation` where there are
    several, `sweeps` where some differ in temperature alone. `differences` are there where a run
    has several candidates: for each metric, every other candidate (b) against the best (a); the
    level of their intervals holds for all metrics and pairs together. `arms` are there where the
    suite's questions are on conversations. `intervals` says how those of the metrics' figures were
    measured. `temperatures` says by judge at which one it was asked. `cost_usd` is what judge calls
    cost in all sessions, without `unpriced_calls`, whose price is not known; None where no model
    judged, where no price is known, and in runs of older versions. `batches` are there where some
    of them went in batches, `prompt_cache` where providers told of theirs. `served_models` are
    those that answered, as far as servers name them; `unknown_marks` counts the answers that begin
    with each mark that looks like one of thinking and is none that is known. `decided` is there
    where the run ended before all of its units, as its `stop_at` asks. `replaced` says why judges
    failed where a rule gave the verdict, as `causes` does."""

    run_id: str
    suite: str
    n_samples: int
    n_invalid: int
    n_units: int
    n_failed_units: int
    generation_s: float | None
    evaluation_s: float | None
    total_s: float
    candidates: tuple[GenerationSummary, ...]
    metrics: tuple[MetricSummary, ...]
    tasks: tuple[TaskSummary, ...] = ()
    macro: tuple[MacroSummary, ...] = ()
    heat_maps: tuple[HeatMap, ...] = ()
    n_disagreements: int | None = None
    headline: str = ""
    performance: tuple[Performance, ...] = ()
    recommendation: Recommendation | None = None
    differences: tuple[QualityPair, ...] = ()
    arms: tuple[ArmSummary, ...] = ()
    intervals: str = ""
    sweeps: tuple[Sweep, ...] = ()
    notes: tuple[str, ...] = ()
    temperatures: dict[str, str] = Field(default_factory=dict)
    causes: tuple[Cause, ...] = ()
    replaced: tuple[Cause, ...] = ()
    cost_usd: float | None = None
    unpriced_calls: int = 0
    batches: BatchFigures | None = None
    prompt_cache: PromptCacheUse | None = None
    served_models: tuple[ServedModel, ...] = ()
    unknown_marks: dict[str, int] = Field(default_factory=dict)
    decided: EarlyDecision | None = None
