"""The kinds of metric, the outcome of one metric on one record, and the aggregation of outcomes. A
metric is a file in metrics/<family>/ that holds `METRIC = ...`, and has its name."""

import hashlib
import json
import logging
import math
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field

from memray_eval._version import PACKAGE
from memray_eval.config.sections import OnJudgeFailure, OnNoAnswer, RubricMetric
from memray_eval.errors import Refused, describe_error, suggest
from memray_eval.log_once import log_once
from memray_eval.ports import FloatArray, Vectors, Verdict
from memray_eval.text_processing.judge_prompts import JudgePrompt
from memray_eval.text_processing.values import quoted
from memray_eval.types import RULES as RULES
from memray_eval.types import (
    RULES_ON_EMPTY,
    RULES_ON_NO_ANSWER,
    ComputedScore,
    Figure,
    FigureForm,
    Frozen,
    Message,
    MetricSummary,
    Response,
    Sample,
    Score,
    SummaryLine,
    SummarySection,
    dumps,
    is_estimate,
    session_turn,
)

OWN = "own"  # the family of users' metrics
_NOT_THEIRS = (str(PACKAGE), str(Path(logging.__file__).parents[1]))  # frames of ours, of Python's
logger = logging.getLogger(__name__)

T = TypeVar("T")
Level: TypeAlias = Literal["turn", "last_turn", "session"]
EVIDENCE = "evidence"  # how many pieces of a judge's evidence were checked
UNVERIFIED = "unverified"  # how many of them could not be found
TRUST = "trust"  # 1 - unverified / evidence, over a metric's scored units
SHOWN_CHARS = 80  # of a piece of evidence, in a reason
_SPENT = ("usage", "cost_usd", "saved_usd", "latency_s")  # of a verdict and of its score
NEEDS_JUDGE = "needs a judge: set a provider's key, or name one with --judge PROVIDER/MODEL"
TAG = "tag:"  # begins the name of a part that is the value of one tag of the unit
DISAGREEMENT = "disagreement"  # of a jury on one response: its highest value less its lowest


class MetricValue(NamedTuple):
    """The result of a metric for one response: its value, and the counts that aggregates sum.
    Plain, as cheap metrics make hundreds of thousands a second."""

    value: float
    parts: Mapping[str, float] = MappingProxyType({})


class Aggregates(Frozen):
    """Figures of a metric beyond its statistics. None if there was nothing to divide by."""

    micro: dict[str, float | None] = Field(default_factory=dict)
    macro: dict[str, float | None] = Field(default_factory=dict)
    extras: dict[str, float | None] = Field(default_factory=dict)


Columns: TypeAlias = Mapping[str, FloatArray]  # "value" and each part -> one figure a scored unit
Aggregate: TypeAlias = Callable[[Columns], Aggregates]


@dataclass(frozen=True)
class Pooled:
    """A ratio of sums over all units: of all `whole` (such as claims), the share looked for.
    `share` gives each unit's two columns, what is looked for and all, from those of its `parts`."""

    whole: str
    parts: tuple[str, ...]
    share: Callable[[Columns], tuple[FloatArray, FloatArray]]


def linearise_ratio(part: FloatArray, whole: FloatArray) -> FloatArray | None:
    """Figures whose mean is the ratio of sums r, and whose standard error is the ratio's: r + (part
    - r * whole) / mean(whole) (Cochran, Sampling Techniques, 1977, 6.3). None without a whole."""
    total = float(whole.sum())
    if not total:
        return None
    ratio = float(part.sum()) / total
    return ratio + (part - ratio * whole) / (total / whole.size)


@dataclass(frozen=True, kw_only=True)
class Metric:
    """The fields of every kind of metric. `requires` names Sample fields without which it is not
    applicable, `applies` says why it is not (None: it is). `parts` names the counts of its
    MetricValue, `pooled` the ratio of them that is its figure (None: the mean). `layout` is its
    section of the console report; a mean of small integers sets `integer_scale`. `variant` names
    the option of a run that changes its figures: such runs are not resumed as one. `on_no_answer`
    says what a response without an answer scores; `scores_empty`: a plainly empty prediction is
    scored nevertheless. `clips_mean`: values may be off the scale, and their mean is cut to it.
    `by_task`: its figures are of each task too. At `level` "turn" it scores each reply of a
    session, "last_turn" the last alone, "session" the whole. `anchors` say what a score looks like;
    `about` and `formulas` are for `list metrics`."""

    title: str
    value_label: str
    scale: tuple[float, float]
    name: str = ""
    family: str = ""
    requires: tuple[str, ...] = ("query",)
    applies: Callable[[Sample], str | None] = lambda sample: None
    parts: tuple[str, ...] = ()
    aggregate: Aggregate = lambda columns: Aggregates()
    pooled: Pooled | None = None
    layout: tuple[SummarySection, ...] = ()
    integer_scale: bool = False
    variant: str = ""
    on_no_answer: OnNoAnswer = "zero"
    scores_empty: bool = False
    by_task: bool = False
    clips_mean: bool = False
    level: Level = "turn"
    anchors: Mapping[float, str] = field(default_factory=dict)
    about: str = ""
    formulas: str = ""

    @property
    def average(self) -> Literal["mean", "micro"]:
        """The average that is the metric's figure."""
        return "mean" if self.pooled is None else "micro"

    @property
    def columns(self) -> tuple[str, ...]:
        """The parts that a score of this metric carries."""
        return self.parts

    def clip_mean(self, described: dict[str, float | None]) -> dict[str, float | None]:
        """Statistics whose mean is cut to the scale, if the metric `clips_mean`."""
        mean = described.get("mean")
        if mean is None or not self.clips_mean:
            return described
        return described | {"mean": min(max(mean, self.scale[0]), self.scale[1])}

    @property
    def sections(self) -> tuple[SummarySection, ...]:
        return self.layout or (statistics_block(self.value_label, self.integer_scale),)


class NothingToScoreError(Exception):
    """A metric's `measure` found nothing to score: the score is not applicable, and says why."""


class Verified(NamedTuple):
    """The result of checking a judge's evidence (metrics/_evidence.py): of `pieces`, those
    in `unverified` are not in `source`. `parts` are those that only this check can count. The
    metric abstains if nothing was found, or if a `hidden` piece was not: a fault that its figure
    counts, and would be better without."""

    judgment: Any
    pieces: int = 0
    unverified: tuple[str, ...] = ()
    parts: Mapping[str, float] = MappingProxyType({})
    source: str = "the response"
    hidden: str = ""


class Measured(Frozen):
    """The measured worth of an estimate on `n` labelled cases: it finds `recall` of those that are
    `what`, and leaves `specificity` of the others alone; None: not measured."""

    n: int
    what: str
    recall: float | None = None
    specificity: float | None = None
    precision: float | None = None
    kappa: float | None = None

    def __str__(self) -> str:
        names = ("recall", "specificity", "precision", "kappa")
        measured = ((name, getattr(self, name)) for name in names)
        figures = ", ".join(f"{name} {value:.2f}" for name, value in measured if value is not None)
        return f"{figures} on {self.n} labelled {self.what}"


@dataclass(frozen=True, kw_only=True)
class OfflineEstimate:
    """The scoring of a judged metric without a judge: by `rules`, whose docstring has the formula,
    and their measured worth. `texts` names the texts whose vectors they read. `why_not` says why
    they cannot read a response; None if they can."""

    rules: Callable[[Sample, Response, Vectors], BaseModel]
    measured: Measured
    texts: Callable[[Sample, Response], Sequence[str]] | None = None
    why_not: Callable[[Sample, Response], str | None] = lambda sample, response: None


Verify: TypeAlias = Callable[[Any, Sample, Response], Verified]


@dataclass(frozen=True, kw_only=True)
class JudgedMetric(Metric):
    """A judge fills in `judgment`; without one the metric is scored by its `estimate`, or is not
    applicable. `measure` turns a judgment into figures. `verify` looks for what a judge quotes, for
    the parts EVIDENCE and UNVERIFIED. `on_empty` is the judgment of an empty response.

    `rubrics` are those that a run may name, the default first (none: the one in `prompt`), and
    `prompt_with` asks with the text of any. `without_judge` holds, by the name of a way, the
    judgment if no judge gave a verdict. A judge fills in one `judgment` for each of a rubric's
    `calls`, and `join` makes one of them; a judgment may hold several of the sample's `n_verdicts`.
    `described_by` is the rubric of a user's metric. `version` counts changes of its rubrics and the
    judgment's fields (0: no rubric of ours) and is in the call's key. `total` tells a page how the
    score is counted from the judgment's parts."""

    judgment: type[BaseModel]
    prompt: Callable[[Sample, Response], tuple[Message, ...]]
    measure: Callable[[Any, Sample, Response], MetricValue]
    on_empty: Callable[[Sample], BaseModel]
    preferred_judge: str
    verify: Verify = lambda judgment, sample, response: Verified(judgment)
    estimate: OfflineEstimate | None = None
    rubrics: Mapping[str, str] = field(default_factory=dict)
    prompt_with: Callable[[str, Sample, Response], tuple[Message, ...]] | None = None
    without_judge: Mapping[str, Callable[[Sample, Response], BaseModel]] = field(
        default_factory=dict
    )
    calls: Callable[[str, Sample, Response], Sequence[tuple[Message, ...]]] | None = None
    join: Callable[[Sequence[Any]], BaseModel] | None = None
    n_verdicts: Callable[[Sample], int] | None = None
    described_by: RubricMetric | None = None
    version: int = 0
    total: str = ""

    def messages(
        self, sample: Sample, response: Response, rubric: str | None = None
    ) -> tuple[Message, ...]:
        """The request to a judge, with the rubric of that text if the metric takes one."""
        if rubric is None or self.prompt_with is None:
            return self.prompt(sample, response)
        return self.prompt_with(rubric, sample, response)

    def make_calls(
        self, sample: Sample, response: Response, rubric: str | None = None
    ) -> Sequence[tuple[Message, ...]]:
        """The messages of each call that a verdict on a response takes."""
        if self.calls is None:
            calls: Sequence[tuple[Message, ...]] = (self.messages(sample, response, rubric),)
        else:
            text = rubric or next(iter(self.rubrics.values()), "")
            calls = self.calls(text, sample, response)
        if not (version := self.version_of(rubric)):
            return calls
        return [
            prompt.having(version=version) if isinstance(prompt, JudgePrompt) else prompt
            for prompt in calls
        ]

    def version_of(self, rubric: str | None) -> int:
        """The version of the rubric of that text, None for the default: 0 for a user's own."""
        return self.version if rubric is None or rubric in self.rubrics.values() else 0

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.parts, EVIDENCE, UNVERIFIED, DISAGREEMENT)


@dataclass(frozen=True, kw_only=True)
class EmbeddedMetric(Metric):
    """A function of the vectors of some texts of the sample and the response."""

    texts: Callable[[Sample, Response], Sequence[str]]
    measure: Callable[[Sample, Response, Vectors], MetricValue]
    on_empty: MetricValue


def computed(sample: Sample) -> str:
    return "computed"


@dataclass(frozen=True, kw_only=True)
class ComputedMetric(Metric):
    """A pure function of sample and response. `scorer` names what computed it, as the score's
    judge; `measured` is how far it agrees with people."""

    measure: Callable[[Sample, Response], MetricValue]
    measured: Measured | None = None
    scorer: Callable[[Sample], str] = computed


def lookup_for_task(by_key: Mapping[str, T], metric: str, task: str) -> T | None:
    """The setting for a task of a metric (key "metric/task"), else for the metric, else None."""
    own = by_key.get(f"{metric}/{task}") if task else None
    return by_key.get(metric) if own is None else own


def rubric_digest(metric: JudgedMetric, rubric: str | None = None) -> str:
    """A digest of a judge's instructions for a metric: its rubric (None: the default) and the
    schema of its judgment. It changes with them, and with the rubric's version. If the prompt
    cannot be built for an empty sample, the schema alone counts."""
    nobody = Sample(id="-", query="-")
    try:
        system = metric.messages(nobody, Response(text="-"), rubric)[0].content
    except Exception:  # it may need what `requires` names
        system = ""
    schema = json.dumps(metric.judgment.model_json_schema(), sort_keys=True)
    version = metric.version_of(rubric)
    text = f"{system}\n{schema}" + (f"\n{version}" if version > 1 else "")
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def score_by_rules(
    metric: JudgedMetric, sample: Sample, response: Response, vectors: Vectors, judge: str
) -> Score:
    """The estimate of a metric without a judge, as a score of `judge`. Not applicable if the metric
    has none, or its rules cannot read the response."""
    estimate = metric.estimate
    why_not = None if response.is_empty else estimate and estimate.why_not(sample, response)
    if estimate is None or why_not is not None:
        without = unscorable(metric, sample, response)
        if without is not None and response.no_answer is None:
            return without
        return Score(metric=metric.name, status="not_applicable", error=why_not or NEEDS_JUDGE)
    if response.is_empty:
        return score_empty(metric, sample, response, judge)
    return _score_judgment(
        metric, sample, response, judge, lambda: estimate.rules(sample, response, vectors)
    )


def score_empty(
    metric: JudgedMetric, sample: Sample, response: Response, judge: str = RULES_ON_EMPTY
) -> Score:
    """The score of an empty response, whose judgment is fixed, so that no judge is asked."""
    return _score_judgment(metric, sample, response, judge, lambda: metric.on_empty(sample))


def _score_judgment(
    metric: JudgedMetric,
    sample: Sample,
    response: Response,
    judge: str,
    make: Callable[[], BaseModel],
) -> Score:
    def compute() -> tuple[MetricValue, BaseModel]:
        judgment = make()
        return metric.measure(judgment, sample, response), judgment

    return _outcome(metric, sample, response, judge, compute)


def score_by_verdict(
    metric: JudgedMetric, sample: Sample, response: Response, verdict: Verdict
) -> Score:
    """A judge's verdict as a score. It abstains if none of its evidence is found, or a fault is
    not; its judgment is kept, with the missing evidence under `unverified`."""
    unverified: tuple[str, ...] = ()

    def compute() -> tuple[MetricValue, BaseModel]:
        nonlocal unverified
        verified = metric.verify(verdict.judgment, sample, response)
        unverified = verified.unverified
        n, lacking = verified.pieces, verified.hidden
        pieces = "a fault that the judge counts cannot"
        if 0 < n == len(unverified):
            lacking = unverified[0]
            pieces = "the one piece" if n == 1 else f"none of the {n} pieces"
            pieces += f" of evidence that the judge gave can{'not' * (n == 1)}"
        if lacking:
            raise Refused(f"{pieces} be found in {verified.source}: {quoted(lacking, SHOWN_CHARS)}")
        measure = metric.measure(verified.judgment, sample, response)
        checked = (
            {EVIDENCE: verified.pieces, UNVERIFIED: len(unverified)} if verified.pieces else {}
        )
        return MetricValue(
            value=measure.value, parts={**measure.parts, **verified.parts, **checked}
        ), verified.judgment

    score = _outcome(metric, sample, response, verdict.judge, compute)
    names = (*_SPENT, "cached", "served_model")
    update: dict[str, Any] = {name: getattr(verdict, name) for name in names}
    update["calls"] = 0 if verdict.cached else verdict.calls
    if score.status in ("abstained", "not_applicable"):
        update["judgment"] = verdict.judgment.model_dump_json()
    if unverified and score.status != "error":
        kept = json.loads(update.get("judgment") or score.judgment or "{}")
        update["judgment"] = dumps(kept | {UNVERIFIED: list(unverified)})
    return score.model_copy(update=update)


def score_without_judge(
    metric: JudgedMetric, sample: Sample, response: Response, way: OnJudgeFailure, failed: Score
) -> Score:
    """A score in place of a verdict that no judge gave, with `way` as its judge, and the cost and
    error of `failed`."""
    kept = {name: getattr(failed, name) for name in (*_SPENT, "calls", "error")}
    score = _score_judgment(
        metric, sample, response, way, lambda: metric.without_judge[way](sample, response)
    )
    return score.model_copy(update=kept) if score.value is not None else score


def score_by_vectors(
    metric: EmbeddedMetric, sample: Sample, response: Response, vectors: Vectors, embedder: str
) -> Score:
    """The score of an embedded metric, by the vectors of its texts."""

    def compute() -> tuple[MetricValue, None]:
        if response.is_empty:
            return metric.on_empty, None
        return metric.measure(sample, response, vectors), None

    return _outcome(metric, sample, response, embedder, compute)


def score_by_code(metric: ComputedMetric, sample: Sample, response: Response) -> Score:
    """The score of a computed metric; not applicable if `applies` says why."""
    score = compute_score(metric, sample, response)
    return score.to_score() if isinstance(score, ComputedScore) else score


def compute_score(
    metric: ComputedMetric, sample: Sample, response: Response
) -> ComputedScore | Score:
    """The score of a computed metric, in its short form if it is one."""
    if (without := unscorable(metric, sample, response)) is not None:
        return without
    try:
        scorer = metric.scorer(sample)
    except Exception as error:
        return failed_score(metric, error)
    try:
        measured = metric.measure(sample, response)
    except Exception as error:
        return _unmeasured(metric, error, scorer)
    if type(measured) is MetricValue and type(scorer) is str:
        value, parts = measured
        if (
            type(value) is float
            and math.isfinite(value)
            and type(parts) in (dict, MappingProxyType)
            and {*map(type, parts)} <= {str}
            and {*map(type, parts.values())} <= {float}
        ):
            return ComputedScore(metric.name, value, scorer, parts)
    return _outcome(metric, sample, response, scorer, lambda: (measured, None))


def unscorable(metric: Metric, sample: Sample, response: Response | None) -> Score | None:
    """The score of a record that cannot be scored, None if it can: the metric scores another turn,
    its generation failed, its sample lacks what the metric requires, or there is no answer."""
    if metric.level != "turn":
        turn = session_turn(sample.metadata)
        if turn is not None and not turn.is_last:
            of = turn.turns or "as many as metadata.turns does not say"
            why = f"scored at the last turn of its session; this is turn {turn.turn} of {of}"
            return Score(metric=metric.name, status="not_applicable", error=why)
    if response is None or response.error is not None:
        reason = "no response" if response is None else response.error
        return Score(metric=metric.name, status="error", error=f"generation failed: {reason}")
    if lacking := [name for name in metric.requires if not getattr(sample, name)]:
        return Score(
            metric=metric.name,
            status="not_applicable",
            error=f"the sample has no {', '.join(lacking)}",
        )
    try:
        why_not = metric.applies(sample)
    except Exception as error:  # a user's own
        return failed_score(metric, error)
    if why_not is not None:
        return Score(metric=metric.name, status="not_applicable", error=why_not)
    return _score_of_no_answer(metric, sample, response) if response.no_answer is not None else None


def _score_of_no_answer(metric: Metric, sample: Sample, response: Response) -> Score | None:
    """The score of a response without an answer; None if it is scored as an empty text."""
    is_plain = response.no_answer in ("empty", "null") and response.finish_reason is None
    if metric.on_no_answer == "score" or (metric.scores_empty and is_plain):
        return None
    why = f"no answer: {response.no_answer}"
    left_out = Score(metric=metric.name, status="no_answer", error=why)
    if metric.on_no_answer == "exclude":
        return left_out
    parts: Mapping[str, float] = {}
    if isinstance(metric, JudgedMetric) and metric.pooled is not None:
        # A ratio of sums counts what an empty text misses; of one that misses nothing it says
        # nothing
        parts = metric.measure(metric.on_empty(sample), sample, response).parts
        if not any(parts.values()):
            return left_out
    return Score(
        metric=metric.name,
        status="scored",
        value=metric.scale[0],
        parts=dict(parts),
        judge=RULES_ON_NO_ANSWER,
        calls=0,
        error=why,
    )


def failed_score(metric: Metric, error: BaseException, judge: str = "") -> Score:
    """The score of a metric that raised on a record: that record's outcome, not the run's."""
    key = f"metric {metric.name}/{type(error).__name__}"
    log_once(logger, logging.ERROR, key, "the metric %s failed", metric.name, error=error)
    text = f"{describe_error(error)}{_place_of(metric, error)}"
    return Score(metric=metric.name, status="error", judge=judge, error=text)


def _place_of(metric: Metric, error: BaseException) -> str:
    """The user's metric and the line of their code that raised, with the field that they may have
    meant; "" for a metric of ours."""
    if metric.family != OWN:
        return ""
    hint = ""
    for kind in (Sample, Response):  # pydantic's errors lack the name and object that Python's have
        start = f"{kind.__name__!r} object has no attribute "
        if isinstance(error, AttributeError) and str(error).startswith(start):
            name = str(error).removeprefix(start).strip("'")
            hint = f"; {suggest(name, kind.model_fields)}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [
        f", {Path(frame.filename).name}:{frame.lineno}"
        for frame in frames
        if not frame.filename.startswith(_NOT_THEIRS) and "site-packages" not in frame.filename
    ]
    return f"{hint} (metric {metric.name}{''.join(lines[-1:])})"


def _outcome(
    metric: Metric,
    sample: Sample,
    response: Response,
    judge: str,
    compute: Callable[[], tuple[MetricValue, BaseModel | None]],
) -> Score:
    if (without := unscorable(metric, sample, response)) is not None:
        return without
    try:
        measure, judgment = compute()
        score = Score(
            metric=metric.name,
            status="scored",
            value=measure.value,
            parts=dict(measure.parts),
            judgment=None if judgment is None else judgment.model_dump_json(),
            judge=judge,
        )
        if not math.isfinite(score.value or 0.0):
            raise ValueError(f"the metric's value is {score.value}, which is no figure")
        return score
    except Exception as error:
        return _unmeasured(metric, error, judge)


def _unmeasured(metric: Metric, error: Exception, judge: str) -> Score:
    """The score if `measure` raised: the verdict lacks what the metric asks, there is nothing to
    score, or the metric failed."""
    if isinstance(error, Refused):
        return Score(
            metric=metric.name, status="abstained", judge=judge, error=describe_error(error)
        )
    if isinstance(error, NothingToScoreError):
        return Score(metric=metric.name, status="not_applicable", judge=judge, error=str(error))
    return failed_score(metric, error, judge)


@dataclass(frozen=True)
class MetricColumns:
    """All outcomes of one metric for one candidate: counts by status and judge, and figures; by
    `tags`, the values of the units that have it. `units` are the scored ones, while blocks of
    records are joined: rows of a block, then ranks."""

    candidate: str
    by_status: Mapping[str, int]
    by_judge: Mapping[str, int]
    columns: Columns = field(default_factory=dict)
    tags: Mapping[str, FloatArray] = field(default_factory=dict)
    units: npt.NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, np.intp))


def summarise(metric: Metric, outcomes: MetricColumns) -> MetricSummary:
    """Statistics, distribution and the metric's own aggregates over its scored units. Nothing
    scored, or a ratio over nothing: figures are None."""
    values = outcomes.columns.get("value", np.empty(0))
    n = sum(outcomes.by_status.values())
    n_not_applicable = outcomes.by_status.get("not_applicable", 0)
    aggregates = metric.aggregate(outcomes.columns) if values.size else Aggregates()
    counted, described = values, metric.clip_mean(statistics(values))
    figure = _figure(metric, outcomes.columns, described)
    if figure.value is None:
        # A unit without claims has a value, by its metric's convention; of claims alone it says
        # nothing
        counted, described = np.empty(0), {}
    by_tag: Iterator[Row] = (
        (tag, f"extras.{TAG}{tag}", "score", f"n {of_tag.size:,}")
        for tag, of_tag in outcomes.tags.items()
    )
    return MetricSummary(
        metric=metric.name,
        candidate=outcomes.candidate,
        title=metric.title,
        scale=metric.scale,
        judges=dict(outcomes.by_judge),
        n=n,
        n_scored=int(values.size),
        n_abstained=outcomes.by_status.get("abstained", 0),
        n_not_applicable=n_not_applicable,
        n_no_answer=outcomes.by_status.get("no_answer", 0),
        n_failed=outcomes.by_status.get("error", 0),
        coverage=values.size / (n - n_not_applicable) if n > n_not_applicable else None,
        figure=figure,
        distribution=distribution(counted, metric.scale, metric.integer_scale),
        micro=aggregates.micro,
        macro=aggregates.macro,
        extras=aggregates.extras
        | (_evidence_figures(outcomes.columns) if values.size else {})
        | {
            f"{TAG}{tag}": metric.clip_mean(statistics(of_tag))["mean"]
            for tag, of_tag in outcomes.tags.items()
        },
        layout=metric.sections + ((section(*by_tag, heading="By tag:"),) if outcomes.tags else ()),
        worth=_describe_worth(metric, outcomes.by_judge),
        **described,
    )


def _figure(metric: Metric, columns: Columns, described: Mapping[str, float | None]) -> Figure:
    """The figure of a metric over its scored units, whose `statistics` are `described`."""
    if not described:
        return Figure(average=metric.average)
    figures = described
    if metric.pooled:
        values = linearise_ratio(*metric.pooled.share(columns))
        figures = {} if values is None else statistics(values)
    return Figure(
        average=metric.average,
        value=figures.get("mean"),
        stderr=figures.get("stderr"),
        whole=metric.pooled.whole if metric.pooled else "",
    )


def _describe_worth(metric: Metric, judges: Iterable[str]) -> str:
    """The measured worth of a metric's estimates or rules; "" for others."""
    if isinstance(metric, ComputedMetric):
        return str(metric.measured or "")
    if not isinstance(metric, JudgedMetric) or not any(map(is_estimate, judges)):
        return ""
    return str(metric.estimate.measured) if metric.estimate else "withdrawn; score it again"


def _evidence_figures(columns: Columns) -> dict[str, float | None]:
    """The share of the judges' evidence that was found (TRUST), and juries' mean disagreement."""
    sums = {
        name: float(columns[name].sum()) if name in columns else 0.0
        for name in (EVIDENCE, UNVERIFIED)
    }
    apart = float(columns[DISAGREEMENT].mean()) if DISAGREEMENT in columns else 0.0
    figures: dict[str, float | None] = {
        name: value for name, value in {**sums, DISAGREEMENT: apart}.items() if value
    }
    if sums[EVIDENCE]:
        figures[TRUST] = 1 - sums[UNVERIFIED] / sums[EVIDENCE]
    return figures


def statistics(values: FloatArray) -> dict[str, float | None]:
    """mean, median, min, max, population std, stderr (sample std / sqrt n) of a column."""
    if not values.size:
        return {}
    return {
        "mean": float(values.mean()),
        "median": float(np.median(values)),
        "min": float(values.min()),
        "max": float(values.max()),
        "std": float(values.std()),
        "stderr": float(values.std(ddof=1) / np.sqrt(values.size)) if values.size > 1 else None,
    }


def distribution(
    values: FloatArray, scale: tuple[float, float], integer_scale: bool
) -> dict[str, int]:
    """Counts by score, best first: a bin a whole score on an integer scale, else ten."""
    low, high = scale
    if integer_scale:
        rounded = np.clip(np.rint(values), low, high)
        return {
            str(score): int((rounded == score).sum())
            for score in range(int(high), int(low) - 1, -1)
        }
    counts, edges = np.histogram(np.clip(values, low, high), bins=10, range=scale)
    digits = max(1, -math.floor(math.log10((high - low) / 10 + 1e-12)))  # of a step
    bins = [f"{edges[i]:.{digits}f}-{edges[i + 1]:.{digits}f}" for i in range(10)]
    return {name: int(count) for name, count in reversed(list(zip(bins, counts, strict=True)))}


def ratio(part: float, whole: float, when_nothing: float | None = None) -> float | None:
    """part / whole, or `when_nothing` if the whole is 0."""
    return float(part / whole) if whole else when_nothing


def means_of(*parts: str) -> Aggregate:
    """The aggregate of a metric whose extras are the means of parts; None for one that no score
    has."""
    return lambda columns: Aggregates(
        extras={part: float(columns[part].mean()) if part in columns else None for part in parts}
    )


def sums_and_means(parts: Collection[str]) -> Aggregate:
    """The aggregate of a metric that counts: each part's sum over scored samples, and mean."""
    return lambda columns: Aggregates(
        extras={
            f"{name}_{part}": float(figure)
            for part in parts
            for name, figure in (("total", columns[part].sum()), ("average", columns[part].mean()))
        }
    )


# A label, the field of its figure in the MetricSummary, its form unless it is a score, and a note
Row: TypeAlias = tuple[str, str] | tuple[str, str, FigureForm] | tuple[str, str, FigureForm, str]


def section(*rows: Row, heading: str = "") -> SummarySection:
    """A section of a metric's summary, with a line for each row."""
    lines = (
        SummaryLine.model_validate(dict(zip(SummaryLine.model_fields, row, strict=False)))
        for row in rows
    )
    return SummarySection(heading=heading, lines=tuple(lines))


def counts_block(labels: Mapping[str, str]) -> SummarySection:
    """The section of `sums_and_means`, by the labels of its parts."""
    rows: list[Row] = []
    for part, label in labels.items():
        rows.append((f"Total {label}", f"extras.total_{part}", "count"))
        rows.append(("Avg per Sample", f"extras.average_{part}", "average"))
    return section(*rows)


def statistics_block(value_label: str, integer_scale: bool) -> SummarySection:
    """The section of a metric with one figure a sample: average, median, min, max, deviation."""
    mean: FigureForm = "of_scale" if integer_scale else "score"
    step: FigureForm = "step" if integer_scale else "score"
    return section(
        (f"Average {value_label}", "mean", mean, "higher is better"),
        (f"Median {value_label}", "median", step),
        (f"Min {value_label}", "min", step),
        (f"Max {value_label}", "max", step),
        ("Std Deviation", "std", "average" if integer_scale else "score"),
        ("Total Samples", "n_scored", "count"),
    )
