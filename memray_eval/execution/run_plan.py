"""What a run is: RunSpec, its config and what was resolved of it once, before there is a cluster;
RunPlan with one. Below runs.py and prepare/ nobody resolves anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from memray_eval.affect.speech_client import choose_synthesis
from memray_eval.benchmarks import Suite, all_suites
from memray_eval.benchmarks.conversations import Erratum
from memray_eval.benchmarks.own import SuiteSource
from memray_eval.config.sections import ColumnSource, EngineConfig, MetricOptions, most_of
from memray_eval.datasets.columns import ColumnMap, find_columns
from memray_eval.datasets.parsing import Problem
from memray_eval.datasets.reading import SampleReader, Samples, rewrite_responses
from memray_eval.datasets.scan import Scan
from memray_eval.datasets.shards import Shard
from memray_eval.datasets.sources import entries, sources_of
from memray_eval.errors import DataError
from memray_eval.execution.resume_state import ResumeState
from memray_eval.execution.stages.judge import scored_by_judge_stage
from memray_eval.judges.accounts import JudgeAccount
from memray_eval.judges.prices import JudgeTable
from memray_eval.judges.router import (
    JudgeAssignment,
    Roster,
    Succession,
    asked_judges,
    embedded_model,
)
from memray_eval.metric import RULES, Metric
from memray_eval.metrics import all_metrics
from memray_eval.ports import no_adaptation
from memray_eval.results.parts import MAX_ROWS
from memray_eval.types import EXISTING, Candidate

if TYPE_CHECKING:  # no worker needs it, and plan.py counts what a RunSpec needs
    from memray_eval.config.schema import RunConfig
    from memray_eval.execution.plan import Capacity
    from memray_eval.execution.ray.placement_groups import NodeReservation

MAX_ROWS_PER_BLOCK, MANY_BLOCKS = 256, 256
SCORED_ROWS, SCORED_BLOCKS = MAX_ROWS, 32  # where no call is waited for: a part of records each
# How generating and judging follow each other; judge: everything is generated already
PhaseOrder: TypeAlias = Literal["together", "apart", "judge"]


class PhaseChoice(NamedTuple):
    """The order of a session's phases, and why it is that."""

    order: PhaseOrder
    reason: str


TOGETHER = PhaseChoice("together", "")
Group: TypeAlias = tuple[Candidate, ...]  # candidates that share one pipeline
ExecutorName: TypeAlias = Literal["local", "ray"]


@dataclass(frozen=True, kw_only=True)
class ReadSpec:
    """The samples that a run of this config reads. `columns` are those that the job names.
    `scores_at_once`: responses are scored where they are read. `samples` are those that the
    responses of `dataset` answer, joined by id below `out`."""

    config: RunConfig
    dataset: str
    reader: SampleReader
    columns: Mapping[str, ColumnSource]
    scores_at_once: bool = False
    samples: ReadSpec | None = None

    def with_columns(self, say: Callable[[str], None]) -> ReadSpec:
        """The same with the dataset's columns; `say` is told of guesses. Raises DataError."""
        reader, samples = self.reader, self.samples
        sources = sources_of(self.dataset, reader.files, say)
        if samples is None:
            if any(source.published for source in sources):
                return self
            if any(source.kind == "json" and source.path != self.dataset for source in sources):
                check_whose(self.dataset, reader.suite)
        else:
            samples = samples.with_columns(say)
        columns = find_columns(
            self.dataset,
            self.columns,
            reader.has_responses,
            samples is not None or reader.adapt is no_adaptation,
            reader.encoding,
            is_joined=samples is not None,
        )
        if columns.note:
            say(columns.note)
        reader = replace(reader, lacks_query=columns.lacks_query)
        if samples is None and not (reader.has_responses and columns.has_several):
            return replace(self, reader=replace(reader, columns=columns.map))
        by_id = None if samples is None else Samples(samples.dataset, samples.reader)
        out = self.config.out
        rows = rewrite_responses(self.dataset, columns.map, reader.encoding, by_id, out, say)
        reader = replace(reader, columns=ColumnMap(), encoding="")
        return replace(self, dataset=rows, reader=reader, samples=None)

    def block_rows(self, n_samples: int) -> int:
        """The number of rows that travel together: an engine's batch for small datasets, so that
        they flow; up to `most_rows` for large ones, so that blocks are not too many."""
        many = SCORED_BLOCKS if self.scores_at_once else MANY_BLOCKS
        least, set_rows = self.config.engine.rows, self.config.rows_per_block
        return set_rows or max(least, min(self.most_rows, n_samples // many))

    @property
    def most_rows(self) -> int:
        return SCORED_ROWS if self.scores_at_once else MAX_ROWS_PER_BLOCK

    @property
    def engines(self) -> float:
        """The most engines of one model that answer side by side."""
        candidates = self.config.candidates
        models = {candidate.model for candidate in candidates if candidate.backend == "vllm"}
        return max([1, *(most_of(self.config.engine_of(model).replicas) for model in models)])


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """A run, before anything is known of its cluster: its config and what was resolved; `judging`
    and `server` of that config have the user's code. `suite_source` makes its suite on a worker.
    `metrics` are all that it computes, `named_metrics` those that the job names. `judges` has the
    assignment of every judged metric and each "metric/task" of its own; `judge_engine` is
    the embedded judge's. `fallback_successions` tell of fallbacks whose models are off."""

    config: RunConfig
    suite: Suite
    suite_source: SuiteSource
    read: ReadSpec
    metrics: tuple[Metric, ...]
    named_metrics: tuple[str, ...]
    metric_options: MetricOptions
    judges: Mapping[str, JudgeAssignment]
    affect_judges: Mapping[str, JudgeAssignment]
    user_judges: Mapping[str, JudgeAssignment] = field(default_factory=dict)
    judge_table: JudgeTable
    judge_engine: EngineConfig | None = None
    errata: Mapping[str, Erratum] = field(default_factory=dict)
    fallback_successions: tuple[Succession, ...] = ()

    def account(self, judge: str) -> JudgeAccount:
        return JudgeAccount(judge, self.config.judging, self.judge_table)

    @property
    def successions(self) -> list[Succession]:
        """The judges that answer in the place of models that are off, each once."""
        assigned = (choice.successions for choice in self.all_judges.values())
        return list(dict.fromkeys([*chain(*assigned), *self.fallback_successions]))

    def equal_draws(self) -> list[str]:
        """A line for each candidate that is asked a sample several times for one answer."""
        epochs = self.config.epochs
        return [
            f"{candidate.name} answers at temperature 0: its {epochs} answers to a sample are "
            "likely the same; set sampling.temperature above 0"
            for candidate in self.config.candidates
            if epochs > 1 and candidate.backend != "code" and candidate.sampling.temperature == 0
        ]

    def retiring(self, today: date) -> list[str]:
        """A line for each model that the run asks and that its provider soon switches off."""
        names = asked_judges(self.all_judges.values(), self.config.judging)
        names += [
            f"openai/{candidate.model}"
            for candidate in self.config.candidates
            if candidate.backend == "openai" and candidate.base_url is None
        ]
        names += [self.config.embedding.model] if self.by_stage()[1] else []
        affect = self.config.affect
        if self.adds_affect and affect.hears and affect.base_url is None:
            # openai takes a second to import, and most runs have no need of it
            from memray_eval.affect.speech_client import OpenAIVoice

            is_synthetic = choose_synthesis(affect.tts) == "openai"
            names += [f"openai/{OpenAIVoice.model}"] if is_synthetic else []
        return Roster(self.config.judging, self.judge_table, today).retiring_lines(names)

    @property
    def siblings(self) -> dict[str, int]:
        """By candidate, how many answers to a sample come from one pipeline."""
        return {
            member.name: len(group) * self.config.epochs
            for group in engine_groups(self.config.candidates)
            for member in group
        }

    @property
    def hidden_metrics(self) -> list[str]:
        """Metrics that the run brings and does not use: a built-in one has the name."""
        return [own.name for own in self.metric_options.own if own.name in all_metrics()]

    @property
    def has_vllm(self) -> bool:
        return any(candidate.backend == "vllm" for candidate in self.config.candidates)

    @property
    def has_responses(self) -> bool:
        """True if the responses exist already, and are only judged."""
        return self.config.candidates[0].backend == EXISTING

    @property
    def adds_affect(self) -> bool:
        """True if the run has the affect stage: it is on, and there are prompts to build."""
        return self.config.affect.enabled and not self.has_responses

    @property
    def all_judges(self) -> dict[str, JudgeAssignment]:
        """The assignments of metrics, of the affect stage and of the simulated user."""
        return {**self.judges, **self.affect_judges, **self.user_judges}

    @property
    def calls_judges(self) -> bool:
        """True if a model judges anything."""
        return any(choice.judge != RULES for choice in self.all_judges.values())

    @property
    def unscored(self) -> list[str]:
        """The metrics, and "metric/task", that need a judge and have none."""
        return [key for key, choice in self.judges.items() if choice.needs_judge]

    @property
    def embedded_judge(self) -> str | None:
        """The model of the judge that is on engines of the run; None if there is none."""
        return embedded_model(self.all_judges)

    @property
    def asks_embedded_first(self) -> bool:
        """True if the embedded judge is asked before there are responses."""
        return embedded_model({**self.affect_judges, **self.user_judges}) is not None

    def by_stage(self) -> tuple[list[str], list[str]]:
        """The names of the metrics that the judge stage and the embed stage score."""
        by_model = {choice.metric for choice in self.judges.values() if choice.judge != RULES}
        at_judge = [
            metric.name for metric in self.metrics if scored_by_judge_stage(metric, by_model)
        ]
        return at_judge, [metric.name for metric in self.metrics if metric.name not in at_judge]

    def units_of(self, n_samples: int) -> int:
        """The number of units of so many samples."""
        return n_samples * len(self.config.candidates) * self.config.epochs

    def tolerated(self, n_units: int) -> float:
        """The number of units, of so many, that may fail before the exit code says so."""
        tolerance = self.config.tolerance
        return tolerance if isinstance(tolerance, int) else tolerance * n_units


def check_whose(folder: str, suite: str) -> None:
    """Raises DataError where a folder holds the published files of another suite."""
    for name, other in all_suites().items():
        found = other.files.find(folder) if other.files is not None and name != suite else None
        if other.files is None or not found:
            continue
        try:
            first = next(entries(Shard(kind=found[0].kind, path=found[0].path))).raw
            question = next(other.files.questions(first, found[0].path))
        except (StopIteration, ValueError):
            continue
        if not question.faults:
            raise DataError(
                f"{folder} holds files as {name} has them, and not samples of {suite}; read them "
                f"with --suite {name} (suite: {name}), or name one file"
            )


def engine_groups(candidates: Sequence[Candidate]) -> list[Group]:
    """The candidates by pipeline: those of one vLLM model, and all those behind servers."""

    def pipeline(candidate: Candidate) -> tuple[str, str]:
        return candidate.backend, candidate.model if candidate.backend == "vllm" else ""

    return [tuple(group) for _, group in groupby(sorted(candidates, key=pipeline), key=pipeline)]


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """One session of a run, ready to start. `before` is the manifest that earlier sessions left,
    `resume_state` their work; `reservation` holds nodes for its first engines. `scanned_at` (epoch
    seconds) is when this session's scan began, None if an earlier one's was kept. `is_detached`: it
    ends when its calls are under way in batches."""

    spec: RunSpec
    scan: Scan
    capacity: Capacity
    started: float
    scanned_at: float | None = None
    phases: PhaseChoice = TOGETHER
    executor: ExecutorName = "ray"
    problems: Sequence[Problem] = ()
    reservation: NodeReservation | None = None
    before: Mapping[str, Any] = field(default_factory=dict)
    resume_state: ResumeState = field(default_factory=ResumeState)
    is_detached: bool = False

    @property
    def n_before(self) -> int:
        """The number of sessions the run has had."""
        return len(self.before.get("sessions", ()))

    @property
    def n_units(self) -> int:
        return self.spec.units_of(self.scan.n_asked) - self.resume_state.n_unasked

    @property
    def has_sessions(self) -> bool:
        """True if samples are asked turn by turn."""
        return self.scan.n_sessions > 0 and not self.spec.has_responses

    @property
    def is_generated(self) -> bool:
        """True if earlier sessions generated all units."""
        return len(self.resume_state.finished) + len(self.resume_state.generated) >= self.n_units

    @property
    def block_rows(self) -> int:
        return self.spec.read.block_rows(self.scan.n_samples)

    @property
    def is_one_file(self) -> bool:
        """True if one task reads all rows."""
        return any(shard.is_read_from_start for shard in self.scan.shards)

    @property
    def scores_at_once(self) -> bool:
        """True if responses are scored where they are read: nobody is asked."""
        return self.spec.read.scores_at_once and not self.is_one_file
