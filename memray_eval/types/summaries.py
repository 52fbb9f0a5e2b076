"""Summary: the aggregates of a run's metrics, tasks and candidates."""

import operator
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import ConfigDict, Field, model_validator

from memray_eval.types.base import Frozen
from memray_eval.types.responses import FigureForm
from memray_eval.types.scores import FALLBACKS, is_estimate

# Earlier versions stored fields that are withdrawn since
_STORED = ConfigDict(extra="ignore")


class SummaryLine(Frozen):
    """One line of a metric's section: a label, the field of its figure in the MetricSummary, and
    how to print it (FigureForm)."""

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
    units' `whole`, such as claims). `stderr` takes units as independent; `low` and `high` are the
    95 % interval, clustered if the summary's `intervals` says so. `value` is None if nothing was
    scored."""

    average: Literal["mean", "micro"] = "mean"
    value: float | None = None
    stderr: float | None = None
    low: float | None = None
    high: float | None = None
    whole: str = ""


class MetricSummary(Frozen):
    """One metric over all `n` units of one candidate. `coverage` = scored / (n - not applicable),
    None if nothing applied. Figures are None, never 0.0, if nothing was scored. `mean` and the
    fields after it are of the units' values; `std` is the population's, `stderr` = sample std /
    sqrt(n_scored). Of the scored, `n_estimated` are offline estimates and `n_fallbacks` a rule's
    because the judge failed; both follow from `judges`. `worth` says what estimates are worth,
    `reason` why the metric is not applicable."""

    model_config = _STORED

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
    micro: dict[str, float | None] = Field(default_factory=dict, repr=False)
    macro: dict[str, float | None] = Field(default_factory=dict, repr=False)
    extras: dict[str, float | None] = Field(default_factory=dict, repr=False)
    layout: tuple[SummarySection, ...] = Field(default=(), repr=False)
    worth: str = ""
    reason: str = ""

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
    """The generation stage for one candidate. Tokens per second are over the seconds in which any
    of its requests was under way; those of `uncounted` answers are not in the sums. `cached_tokens`
    of the prompts, a `cache_hit_rate` share, came from the engine's prefix cache (None: not
    measured). `truncated` units lost the middle of their prompt. `no_answer` counts by cause,
    `answered` those with one (None in older runs); `asked_again` had a larger limit, and
    `answered_then` then answered."""

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
    of the metric's figure, None if too little was scored. `coverage` = scored / applicable,
    `error_rate` = n_failed / applicable. Of the unscored, `n_no_answer` have no answer, and the
    verdict on `n_abstained` could not be used (0 in older runs). `calls` were paid, retries
    included; `cached` scores needed none. `fallbacks` are a rule's because the judge failed,
    `estimates` because none was asked. `fixed` is 0: its rules were withdrawn. `latency_s_mean` is
    over the calls."""

    metric: str
    n: int
    n_scored: int
    n_failed: int
    n_no_answer: int = Field(default=0, exclude_if=operator.not_)
    n_abstained: int = Field(default=0, exclude_if=operator.not_)
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
    """Agreement of the judge's verdict with the rule (0.5 or more) on the `n` units with both.
    `only_judge` and `only_rule` are correct for one alone. `kappa` is Cohen's (None: undefined)."""

    n: int
    both: int
    neither: int
    only_judge: int
    only_rule: int
    share: float
    kappa: float | None


class TaskSummary(Frozen):
    """One task of one candidate, `n` units; of one `bucket`, or all (None). The task is empty for
    samples that name none. `agreement` is None unless judge and rule were both computed."""

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
    """The mean of one metric by length (in `measure`) and depth (percent) of a candidate's samples.
    `values` and `n` (scored units) have a row per depth and a column per length. Samples without a
    depth are in `without_depth` and `points`: alone, they are a curve. In too large a grid a length
    includes those down to half of it (`lengths_binned`), and depths are rounded to 5 percent.
    `estimates` are offline estimates, `fallbacks` a rule's."""

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
    """Speed beside quality of one candidate, on one task or (None) all its `n` units; failed
    answers count in `n` only. Times overlap in a run. `tokens_per_s` = output tokens / duration,
    over answers that have both. `quality` is the headline metric's mean on 0-100, `quality_stderr`
    = sample std / sqrt(n_scored), or clustered as the metric's is (`n_clusters`). Of the
    `n_scored`, `estimates` are offline estimates, `fallbacks` a rule's."""

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
    """One metric over the `n` pairs of twins of a `task` with both scores: the figures of the
    `sides`, the second less the first, and its 95 % interval, in the metric's own scale. `reveals`:
    the first side must not learn what the second must. Figures are None, and `why` says so, for too
    few pairs. Of the 2 `n` scores, `estimates` are offline estimates."""

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
    """Candidate `b` against `a` on the `n` prompts with both scores. `difference` is b - a, in
    points of 0-100, `low` and `high` its interval at `level`. `is_shown`: it differs from 0; if
    not, about `more` further prompts would show one of this size, None if no number would."""

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


class SpeedRatio(Frozen):
    """The speed of `b` as a multiple of that of `a`: the median over `n` common prompts of the
    ratio of output tokens per second, with its interval at `level`."""

    a: str
    b: str
    n: int
    level: float
    ratio: float
    low: float | None = None
    high: float | None = None


class Recommendation(Frozen):
    """A recommendation by speed and quality, and the `rule` in words. `pairs` and `speeds` are the
    differences on common prompts. Several are `fastest` or `best` only if equal; `as_good` are not
    shown to differ from the best. `pareto`: no other is as fast and as good, and better in one.
    `use` is None if nothing speaks for one; `left_out` lack a figure."""

    fastest: tuple[str, ...] = ()
    best: tuple[str, ...] = ()
    as_good: tuple[str, ...] = ()
    pareto: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    use: str | None = None
    reason: str
    rule: str
    pairs: tuple[QualityPair, ...] = ()
    speeds: tuple[SpeedRatio, ...] = Field(default=(), exclude_if=operator.not_)


class Sweep(Frozen):
    """One metric against temperature: candidates that differ in nothing else, by rising
    temperature. `means` and `stderrs` are the figure's over the `n` scored units; `estimates` of
    them are offline estimates, `fallbacks` a rule's."""

    metric: str
    model: str
    prompt: str
    candidates: tuple[str, ...]
    temperatures: tuple[float, ...]
    means: tuple[float | None, ...]
    stderrs: tuple[float | None, ...]
    n: tuple[int, ...]
    estimates: tuple[int, ...]
    fallbacks: tuple[int, ...]
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
    """The mean of one metric over the questions of one category (None: all), `n` scored, with its
    95 % interval, clustered by conversation, not corrected for the number of categories."""

    category: str | None
    metric: str
    n: int
    mean: float
    low: float | None = None
    high: float | None = None


class SessionFigure(Frozen):
    """A figure over `n` sessions (or conversations), with its 95 % interval, if it has one."""

    value: float
    n: int
    low: float | None = None
    high: float | None = None


class TurnSummary(Frozen):
    """One metric over the turns of a candidate's sessions, of one task or (None) of all.
    `n_unscored` turns should have a value: they are in no figure. `worst` and `last` are means over
    sessions of their lowest and last turn, `trend` the slope a turn within sessions (fixed
    effects). All intervals take a session as one cluster. `over` is "turn", but in older runs.
    `estimates` are offline estimates, `fallbacks` a rule's."""

    candidate: str
    metric: str
    scale: tuple[float, float]
    task: str | None = None
    over: str = "turn"
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
    """A metric over all `n` scored questions, and the `n_without` whose right answer is right.
    `ceiling`: always right answers score this: 0 for the others or, by a rule, as the mended
    answer."""

    metric: str
    n: int
    mean: float
    n_without: int
    mean_without: float | None
    ceiling: float


class ArmDifference(Frozen):
    """The accuracy of a candidate less that of `other`, over the `n` questions that both answered,
    with its 95 % interval, if it has one."""

    other: str
    n: int
    difference: float
    low: float | None = None
    high: float | None = None


class StoreFigures(Frozen):
    """A candidate's memory store, over all sessions of the run. `complete` is the mean share of the
    right answer's words in what was returned, over `n_complete` questions; `returned` the mean
    number of entries. Of sessions written and questions searched: how many, and their median and
    95th percentile in seconds. `tokens` are the store's, estimated (four characters each, of what
    was written) unless it counts them; `usd` is None without a price. `n_failed` rows ended in an
    error of the store. `tools` counts the answers by what their model made of the store's tools, if
    it has them."""

    complete: float | None = None
    n_complete: int = 0
    returned: float | None = None
    n_writes: int = 0
    write_p50_s: float | None = None
    write_p95_s: float | None = None
    n_searches: int = 0
    search_p50_s: float | None = None
    search_p95_s: float | None = None
    tokens: int = 0
    is_estimated: bool = False
    usd: float | None = None
    n_failed: int = 0
    tools: dict[str, int] = Field(default_factory=dict)
    differences: tuple[ArmDifference, ...] = ()


class ArmSummary(Frozen):
    """One candidate's answers to questions on conversations; `arm` is the part that it was shown.
    `failures` counts the `n_wrong` answers by FAILURES: wrong by the verdict of `judge_metric` or
    the benchmark's `rule_metric`. `n_unexplained` more are wrong, of questions that name no
    evidence. `recall` is that of the evidence shown, over `n_recall` questions. Tokens and seconds
    are means a question. `n_cut` prompts lost `sessions_left_out` sessions and `turns_left_out`
    turns to fit.

    `overall` are the benchmark's own figures. `n_abstention` questions cannot be answered:
    `abstention` are the means over them, `answerable` over the others. Metrics in `estimated` have
    offline estimates; `accuracy` is the mean of the run's `headline`. `store` is its memory, if
    that is its arm."""

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
    store: StoreFigures | None = Field(default=None, exclude_if=lambda store: store is None)


class Cause(Frozen):
    """The common cause of `n_units` failed units, and the whole text of one of them. A unit whose
    metrics failed for several causes counts in each."""

    cause: str
    n_units: int
    example: str
    unit_id: str


class BatchFigures(Frozen):
    """A run's judge calls in batches, and live ones. `n_verdicts` calls brought a verdict or a
    refusal; `lost_usd` was paid for the others. Costs leave out unpriced calls."""

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
    """Providers' prompt caches in the judge calls behind a run's scores: how many of `input_tokens`
    were read from a cache or, at another price, written into one; `saved_usd` is what both took off
    the cost, below 0 if writing cost more than it saved."""

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
    """The shares of samples with any (pass@k) and with all (pass^k) of `k` answers right, over the
    `n_samples` with k scored answers or more."""

    k: int
    n_samples: int
    any_right: Bounded | None = None
    all_right: Bounded | None = None


class EpochFigures(Frozen):
    """Figures of a metric over up to `epochs` answers per sample: the variances of its score
    between samples and between one sample's draws, from the `n_samples` with two scores or more,
    and `passes`, if answers are right from a score on. `is_floored`: that between samples came out
    below 0. None: not determined."""

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
    overlap.

    `tasks`, `heat_maps`, `arms`, `sweeps`, `twins` and `epochs` exist if the samples or candidates
    give rise to them. `n_disagreements` units are in the file DISAGREEMENTS. `causes` of failed
    units are the most frequent first; `replaced` are those of judges in whose place a rule scored.
    `name` is its title, `headline` the metric of quality; `leads` is the first metric that the user
    named, then the headline too. `differences` are, for each metric, the
    other candidates (b) against the best (a), at one level for all together. `intervals` says how
    those of the figures were measured. `cost_usd` is that of judge calls in all sessions without
    `unpriced_calls`; what `killed_sessions` paid last is left out or, with a budget, estimated.
    None if no model judged or no price is known. `unknown_marks` counts answers that begin with an
    unknown mark of thinking."""

    model_config = _STORED

    run_id: str
    name: str = Field(default="", exclude_if=operator.not_)
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
    leads: str = Field(default="", exclude_if=operator.not_)
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
    epochs: tuple[EpochFigures, ...] = Field(default=(), exclude_if=operator.not_)
    sessions: tuple[SessionSummary, ...] = ()
