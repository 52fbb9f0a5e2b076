"""The stages of a run in the order that rows take them: with the parts and needs of each. Both
executors read this list: local.py maps blocks through it, ray/pipeline.py a dataset."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from memray_eval.execution.plan import (
    ACTOR_GIB,
    AFFECT_CPUS,
    AFFECT_GIB,
    EMBED_GIB,
    STAGE_CPUS,
    WRITER_CPUS,
)
from memray_eval.execution.run_plan import Group, RunPlan
from memray_eval.execution.services import JudgeServices
from memray_eval.execution.stages.affect import EnrichSamples
from memray_eval.execution.stages.blocks import (
    AskServers,
    EmbedRecords,
    JudgeRecords,
    finish_ungenerated,
    read_answers,
    read_waiting,
    score_answers,
)
from memray_eval.execution.stages.context import BLOCKS_AT_ONCE, StageContext, WriteParts
from memray_eval.execution.stages.prompt import PromptSpec, RecallSamples, prompts_to_ask
from memray_eval.execution.stages.session import TRIES, AskSessions, SessionSpec, sessions_to_ask
from memray_eval.results.run_folder import Kind
from memray_eval.types import EXISTING


@dataclass(frozen=True)
class Step:
    """A stage: a class whose `actors` objects take a block each, or `at_once`; without actors a
    function of a block. `arguments` make the object, or follow the block."""

    stage: Callable[..., Any]
    arguments: tuple[Any, ...]
    actors: int = 0
    cpus: float = 0.0
    memory_gib: float = ACTOR_GIB
    at_once: int = 1


@dataclass(frozen=True, kw_only=True)
class RunSteps:
    """A run's plan with its stages' counter and services, and the size of its judge stage."""

    plan: RunPlan
    context: StageContext
    services: JudgeServices | None = None
    judge_actors: int = 1
    judge_tasks: int = 4

    def prompts(self, candidates: Group, **how: Any) -> PromptSpec:
        """The settings of the candidates' prompts; `how` are the executor's fields."""
        spec = self.plan.spec
        return PromptSpec(
            reading=spec.read.reader,
            suite=spec.suite_source,
            candidates=candidates,
            epochs=spec.config.epochs,
            resume_state=self.plan.resume_state,
            context=self.context,
            **how,
        )

    def sessions(self, asking: PromptSpec) -> SessionSpec | None:
        """The settings of samples that are asked turn by turn; None if none are."""
        if not self.plan.has_sessions:
            return None
        spec = self.plan.spec
        # Asked again, it must be the same person: no other model steps in
        judging = spec.config.judging.model_copy(update={"repeats": TRIES, "fallbacks": ()})
        return SessionSpec(
            asking=asking, choices=spec.user_judges, judging=judging, services=self.services
        )

    def read_prompts(self, asking: PromptSpec) -> Iterator[Step]:
        """Shards to rows that ask, or to sessions."""
        spec = self.plan.spec
        affect, code = spec.config.affect, spec.config.server.code
        if spec.adds_affect:
            made_of = asking, affect, spec.config.judging, spec.affect_judges, self.services
            yield Step(EnrichSamples, made_of, affect.actors, AFFECT_CPUS, AFFECT_GIB)
        if any(candidate.memory for candidate in asking.candidates):
            yield Step(RecallSamples, (asking, code), 1, AFFECT_CPUS, AFFECT_GIB)
        yield Step(sessions_to_ask if self.plan.has_sessions else prompts_to_ask, (asking,))

    def ask_servers(self, asking: PromptSpec, *of_actor: Callable[[], bool]) -> Step:
        """Those rows to records, whose answers are kept."""
        server, sessions = self.plan.spec.config.server, self.sessions(asking)
        if sessions is not None:
            return Step(AskSessions, (sessions, server), server.actors, STAGE_CPUS)
        made_of = server, self.context, *of_actor
        return Step(AskServers, made_of, server.actors, STAGE_CPUS)

    def read_answers(self) -> Step:
        """Shards to records whose responses exist already."""
        reader, state = self.plan.spec.read.reader, self.plan.resume_state
        return Step(read_answers, (reader, state, self.context))

    def score_answers(self) -> Callable[[pa.Table], pa.Table]:
        """The same, scored as they are read."""
        spec = self.plan.spec
        return partial(
            score_answers,
            reading=spec.read.reader,
            resume_state=self.plan.resume_state,
            metrics=spec.by_stage()[0],
            options=spec.metric_options,
            context=self.context,
        )

    def read_waiting(self, candidates: Group) -> Step:
        """Parts to records that wait."""
        is_given = candidates[0].backend == EXISTING
        names = None if is_given else [candidate.name for candidate in candidates]
        return Step(read_waiting, (self.plan.resume_state, names, self.context))

    def finish_ungenerated(self) -> Step:
        """Records to units that wait, if generating comes first."""
        spec, (at_judge, at_embed) = self.plan.spec, self.plan.spec.by_stage()
        has = {"judge": at_judge, "embed": at_embed, "write": True}
        stages = [stage for stage, is_run in has.items() if is_run]
        metrics = [*at_judge, *at_embed]
        return Step(finish_ungenerated, (metrics, spec.metric_options, stages, self.context))

    def score(self) -> Iterator[Step]:
        """Records to scored ones."""
        spec, (at_judge, at_embed) = self.plan.spec, self.plan.spec.by_stage()
        judging, embedding = spec.config.judging, spec.config.embedding
        if at_judge:
            made_of = (
                *(at_judge, spec.metric_options, spec.judges, judging),
                *(self.services, self.context, spec.siblings),
            )
            at_once = self.judge_tasks
            yield Step(JudgeRecords, made_of, self.judge_actors, judging.cpus, at_once=at_once)
        if at_embed:
            of_embed = at_embed, spec.metric_options, embedding, self.context
            yield Step(EmbedRecords, of_embed, embedding.actors, embedding.cpus, EMBED_GIB)

    def write(self, kind: Kind) -> Step:
        """Rows to the run's folder, through one writer: the more it gets, the fewer the files."""
        made_of = self.context.folder, kind, self.context.counter
        return Step(WriteParts, made_of, 1, WRITER_CPUS, at_once=BLOCKS_AT_ONCE)
