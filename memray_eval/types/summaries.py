"""Summary: the aggregates of a run's metrics, tasks and candidates."""

from __future__ import annotations

import operator
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
    """A metric's one figure: `average` is "mean" (of its units) or "micro" (one ratio over all
    units, in which each of the `whole`, such as claims, counts once). `stderr` takes units as
    independent; `low` and `high` are the 95 % interval, clustered if the summary's `intervals` says
    so. `value` is None if nothing was scored, or there is none of the `whole`."""

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
    """An estimate of people's figure for a metric, on its scale, from the judge's verdicts (`raw`,
    their mean) and `n_labels` labels of people's, of `n_clusters` clusters, in the file `labelled`.

    `method` is "Rogan-Gladen", from the judge's `sensitivity` and `specificity`, or "PPI++", from
    labels of answers like the run's (`is_own`: of its own) and a `tuning` (lambda, 0-1). `low` and
    `high` are the 95 % interval, labels' noise included. `needed` says what more labels would give;
    none give less than `least_half_width`. If there are no figures, `refused` says why."""

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
    """Why a run ended early: its `rule` was decided by the first `n_looked_at` units of one
    candidate (or pairs of two), in the seeded order. `estimate`, `low` and `high` are the metric's
    mean, or the difference of the second candidate (`of`) from the first, by a confidence sequence:
    at `level` it holds at all looks together."""

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
    """One metric over all `n` units of one candidate. `coverage` = scored / (n - not applicable),
    None if nothing applied. Figures are None, never 0.0, if nothing was scored. `figure` is the
    metric's; `mean` and the fields after it are of the units' values. `std` is the population's,
    `stderr` = sample std / sqrt(n_scored). `n_no_answer` units have no score for want of an answer.
    Of the scored, `n_estimated` are offline estimates and `n_fallbacks` a rule's because the judge
    failed; both follow from `judges`. `worth` says what estimates are worth, `reason` why the
    metric is not applicable. `adjusted` exists if the run was given a calibration."""

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
    """The generation stage for one candidate. Tokens per second are output tokens over the seconds
    in which any of its requests was under way.

    `cached_tokens` of the prompts came from the engine's prefix cache; `cache_hit_rate` is their
    share where that was measured. Both are None if it never was. `truncated` units lost the middle
    of their prompt, `thinking` units answered with thinking blocks, `prompt_forms` counts units by
    form (chat, plain). The tokens of `uncounted` answers are not known and not in the sums.
    `no_answer` counts units without an answer by cause, `answered` those with one (None in older
    runs). `asked_again` units were asked with a larger limit, and `answered_then` then had an
    answer."""

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
    """One metric over the `n` units of one task that have an outcome. `mean` and `stderr` are those
    of the metric's figure (`average` as in Figure), None if too little was scored. `coverage` =
    scored / applicable and `error_rate` = n_failed / applicable. `calls` were made to a judge model
    and paid, retries included; `cached` scores needed none. `fallbacks` are a rule's scores because
    the judge failed, `estimates` those because no judge was asked. `fixed` is 0: its rules were
    withdrawn. `latency_s_mean` is over the calls."""

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
    that have both. `only_judge` and `only_rule` count answers that are correct for one alone.
    `share` of the units agree. `kappa` is Cohen's, None if both find every unit correct, or
    none."""

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
    """All tasks of one candidate. `means` maps a metric to the mean of its task means, on its own
    scale; `n_tasks` counts the tasks with a score. `agreement` is over all units."""

    candidate: str
    n: int
    means: dict[str, float | None]
    n_tasks: dict[str, int]
    agreement: Agreement | None = None


class LengthPoint(Frozen):
    """A metric's figure at one length, over `n` scored units, with its 95 % interval (clustered as
    the run's); the mean tokens of a prompt, and what its judges cost but for `unpriced_calls`."""

    length: float = 0.0
    mean: float | None = None
    n: int = 0
    low: float | None = None
    high: float | None = None
    prompt_tokens: float | None = None
    cost_usd: float | None = None
    unpriced_calls: int = 0


class HeatMap(Frozen):
    """The mean of one metric by the length (in tokens, or in `measure`) and depth (percent) in the
    metadata of a candidate's samples. `values` and `n` hold a row a depth and a figure a length;
    `n` counts scored units. Samples without a depth are in `without_depth`, `n_without_depth` and
    `points`; without any depth these are a curve over length. If a grid
    would be too large, a length stands for those up to it and above half of it (`lengths_binned`),
    and depths are rounded to 5 percent (`depths_binned`). Of all scored units `estimates` are
    offline estimates, and `fallbacks` a rule's because the judge failed."""

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
    measure: Literal["tokens", "entries"] = "tokens"
    points: tuple[LengthPoint, ...] = ()
    estimates: int = 0
    fallbacks: int = 0


VERDICT_METRIC = "semantic_correctness"  # the judge's verdict that reports set against

RULE_METRIC = "rule_score"  # the suite's own rule

DISAGREEMENTS = "disagreements.jsonl"  # in the run folder: the units that the two disagree on


class Performance(Frozen):
    """Speed beside quality of one candidate, on one task or (task None) on all its `n` units;
    failed answers count in `n` only. Times are the responses' own and overlap in a run.
    `tokens_per_s` = output tokens / duration, summed over the answers that have both. `quality` is
    the mean of the run's headline metric on 0-100, `quality_stderr` = sample std / sqrt(n_scored),
    of sessions clustered by the `n_clusters` sessions.
    None if too little was measured. Of the `n_scored`, `estimates` are offline estimates and
    `fallbacks` a rule's because the judge failed."""

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
    n_clusters: int | None = None
    estimates: int = 0
    fallbacks: int = 0


class TwinDifference(Frozen):
    """One metric over the `n` pairs of twins of a `task` that have a score on both sides: the
    figures of the `sides`, the second less the first, and its 95 % interval, in the metric's own
    scale. `attribute` is what two people differ in. `reveals`: the first side must not be told what
    the second must. Figures are None, and `why` says it, of too few pairs. Of the 2 `n` scores,
    `estimates` are offline estimates."""

    candidate: str
    metric: str
    task: str
    sides: tuple[str, str]
    n: int
    attribute: str = ""
    reveals: bool = False
    mean_a: float | None = None
    mean_b: float | None = None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    estimates: int = 0
    why: str = ""


class QualityPair(Frozen):
    """Candidate `b` against `a` on the `n` prompts that both have a score of `metric` on.
    `difference` is that of the metric's figures, b - a, in points of 0-100, `low` and `high` its
    interval at `level`. `is_shown`: it is told from 0; if not, about `more` prompts like these
    would show one of this size, None if no number would."""

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
    """A recommendation by speed and quality, the `rule` in words, and `pairs`, the differences in
    quality on common prompts. Several are `fastest` or `best` only if their figures are equal;
    `as_good` are not shown to differ from the best. `pareto`: no other is as fast and as good, and
    better in one. `use` is None if nothing speaks for one of them; `left_out` lack a figure."""

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
    temperature. Means and standard errors are those of the metric's figure, over the `n` scored
    units; of these `estimates` are offline estimates, and `fallbacks` a rule's because the judge
    failed."""

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


class SessionFigure(Frozen):
    """A figure over `n` sessions (or conversations), with its 95 % interval; no ends if they do not
    determine one."""

    value: float
    n: int
    low: float | None = None
    high: float | None = None


class TurnSummary(Frozen):
    """One metric over the turns of a candidate's sessions, of one task or (None) of all. `n_turns`
    have a value, `n_unscored` should have and have none: they are in no figure.

    `mean` is over turns, `worst` and `last` are means over sessions of their lowest and last
    turn. `trend` is the slope of the value a turn within sessions (fixed effects). All intervals
    take a session as one cluster. `over` "turns_before" is of questions asked again after so many
    turns of one conversation; they have no worst and last turn. Of the values `estimates` are
    offline estimates, and `fallbacks` a rule's because the judge failed."""

    candidate: str
    metric: str
    scale: tuple[float, float]
    task: str | None = None
    over: Literal["turn", "turns_before"] = "turn"
    n_sessions: int
    n_turns: int
    n_unscored: int = 0
    mean: SessionFigure
    worst: SessionFigure | None = None
    last: SessionFigure | None = None
    trend: SessionFigure | None = None
    estimates: int = 0
    fallbacks: int = 0


class ErrataFigure(Frozen):
    """A metric with and without the questions whose right answer is wrong: over all `n` scored and
    over the other `n_without`. `ceiling` is the score of a system that answers everything rightly:
    nothing for those questions or, by the benchmark's rule, the mended answer's."""

    metric: str
    n: int
    mean: float
    n_without: int
    mean_without: float | None
    ceiling: float


class ArmSummary(Frozen):
    """One candidate's answers to questions on conversations. `arm` says what of them it was shown.

    `failures` counts the `n_wrong` answers by FAILURES: wrong by the verdict of `judge_metric` or
    by `rule_metric`, the benchmark's own. `n_unexplained` more are wrong, of questions that name no
    evidence. `recall` is the mean recall of the evidence that was retrieved or shown, over
    `n_recall` questions. Tokens and seconds are means a question. `n_cut` prompts lost
    `sessions_left_out` sessions and `turns_left_out` turns to fit the model.

    `overall` are the benchmark's own overall figures. `n_abstention` questions cannot be answered:
    `abstention` are the metrics' means over them, `answerable` over the others. `agreement` is that
    of the two metrics. Metrics in `estimated` have offline estimates; `accuracy` is the mean of the
    run's `headline`."""

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
    """A run's judge calls through batch APIs, and its live ones. `n_verdicts` of the `n_calls` in
    `n_batches` brought a verdict or a refusal; `lost_usd` of their `cost_usd` was paid for calls
    that did not. Costs leave out unpriced calls."""

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


class Bounded(Frozen):
    """A figure with its 95 % interval, if it has one."""

    value: float
    low: float | None = None
    high: float | None = None


class PassFigures(Frozen):
    """Of `k` answers to a sample, the shares of samples of which any (pass@k) and all (pass^k) are
    right, over the `n_samples` with k scored answers or more."""

    k: int
    n_samples: int
    any_right: Bounded | None = None
    all_right: Bounded | None = None


class EpochFigures(Frozen):
    """What up to `epochs` answers a sample say of a metric: the variances of its score between
    samples and between one sample's draws, from the `n_samples` with two scores or more, and
    `passes`, if answers are right from a score on. `is_floored`: the variance between samples came
    out below 0. None is what the scores do not determine."""

    metric: str = ""
    candidate: str = ""
    epochs: int
    n_samples: int
    between_samples: Bounded | None = None
    between_draws: Bounded | None = None
    is_floored: bool = False
    right_from: float | None = None
    passes: tuple[PassFigures, ...] = ()

    @property
    def draws_share(self) -> float | None:
        """The share of a score's variance that is between one sample's draws."""
        if self.between_samples is None or self.between_draws is None:
            return None
        whole = self.between_samples.value + self.between_draws.value
        return self.between_draws.value / whole if whole else None


class SessionSummary(Frozen):
    """The sessions of a candidate. Simulated ones left `n_unasked` of their most turns, and `ends`
    counts why. From the second turn on, `later_cached_tokens` of the prompts came from the engine's
    prefix cache (None: not measured). `user_models` wrote the users' messages, for the rest."""

    candidate: str
    n_sessions: int
    n_turns: int
    n_unasked: int = 0
    ends: dict[str, int] = Field(default_factory=dict)
    later_prompt_tokens: int = 0
    later_cached_tokens: int | None = None
    user_models: tuple[str, ...] = ()
    user_calls: int = 0
    user_input_tokens: int = 0
    user_output_tokens: int = 0
    user_cost_usd: float = 0.0
    user_unpriced_calls: int = 0


class Summary(Frozen):
    """All aggregates of a run, as written to summary.json. Times are in seconds; stage times
    overlap in a streamed run.

    `tasks` and `macro` exist if samples name their tasks or a rule was compared with the judge,
    `heat_maps` if they name length and depth, or entries, `arms` if the suite's questions are on
    conversations, `sweeps` if candidates differ in temperature alone, `batches` and `prompt_cache`
    if calls used them. `n_disagreements` units are in the file DISAGREEMENTS. `causes` of failed
    units are the most frequent first; `replaced` are those of judges in whose place a rule scored.
    `headline` is the metric of quality. `performance` and `recommendation` need several candidates
    (or a suite about both); `differences` are, for each metric, the other candidates (b) against
    the best (a), at one level for all together. `twins` exist if samples are pairs of one case.
    `intervals` says how those of the figures were measured, `temperatures` at which one each
    judge was asked. `cost_usd` is that of judge calls in all sessions without `unpriced_calls` and
    what `killed_sessions` paid in their last seconds; None if no model judged or no price is known.
    `served_models` answered, by their servers' names; `unknown_marks` counts answers that begin
    with an unknown mark of thinking. `decided` exists if the run ended early by `stop_at`, `epochs`
    if samples have several answers each."""

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
    twins: tuple[TwinDifference, ...] = ()
    n_disagreements: int | None = None
    headline: str = ""
    performance: tuple[Performance, ...] = ()
    recommendation: Recommendation | None = None
    differences: tuple[QualityPair, ...] = ()
    arms: tuple[ArmSummary, ...] = ()
    turns: tuple[TurnSummary, ...] = ()
    intervals: str = ""
    sweeps: tuple[Sweep, ...] = ()
    notes: tuple[str, ...] = ()
    temperatures: dict[str, str] = Field(default_factory=dict)
    causes: tuple[Cause, ...] = ()
    replaced: tuple[Cause, ...] = ()
    cost_usd: float | None = None
    unpriced_calls: int = 0
    killed_sessions: int = 0
    batches: BatchFigures | None = None
    prompt_cache: PromptCacheUse | None = None
    served_models: tuple[ServedModel, ...] = ()
    unknown_marks: dict[str, int] = Field(default_factory=dict)
    decided: EarlyDecision | None = None
    epochs: tuple[EpochFigures, ...] = Field(default=(), exclude_if=operator.not_)
    sessions: tuple[SessionSummary, ...] = ()
