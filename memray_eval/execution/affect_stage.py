"""The affect stage: samples get emotion and traits before their prompts are built."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from memray_eval.affect.enriching import (
    JUDGE,
    NOTES,
    AffectBackends,
    add_affect,
    find_degraded,
    uniform_emotion,
)
from memray_eval.affect.labels import normalised_weights
from memray_eval.affect.speech import ListenerSpeech, SpeechEmotion, load_speech_emotion
from memray_eval.affect.text import OFF, TextEmotion, load_text_emotion
from memray_eval.affect.text_to_speech import AudioStore, Speaker, choose_synthesis
from memray_eval.config.sections import AffectConfig, JudgingConfig
from memray_eval.datasets.reading import SampleReader
from memray_eval.datasets.scan import read_samples
from memray_eval.datasets.sources import Shard
from memray_eval.errors import BudgetSpent, EvalError, JudgeStalled, Stopped
from memray_eval.execution.prompt_stage import SHARD
from memray_eval.execution.resume_state import ResumeState
from memray_eval.execution.services import AskingStage, JudgeServices
from memray_eval.execution.stage_context import StageContext
from memray_eval.judges.judge_factory import build_judges
from memray_eval.judges.router import JudgeAssignment
from memray_eval.results.schema import samples_to_table
from memray_eval.types import Candidate, Sample, unit_ids

if TYPE_CHECKING:  # they import what no worker needs
    from memray_eval.affect.speech_client import SpeechServer
    from memray_eval.execution.run_plan import RunPlan

AFFECT, TRAITS, DEGRADED_TRAITS = "affect", "traits", "traits degraded"


def affect_arguments(
    plan: RunPlan,
    candidates: Sequence[Candidate],
    services: JudgeServices | None,
    context: StageContext,
) -> tuple[Any, ...]:
    """The arguments of EnrichSamples for a run."""
    spec = plan.spec
    what = spec.read.reader, candidates, spec.epochs, plan.resume_state
    return *what, spec.affect, spec.judging, spec.affect_judges, services, context


class EnrichSamples(AskingStage):
    """Shards to samples with emotion and traits. Clients are built on this actor's loop."""

    def __init__(
        self,
        reading: SampleReader,
        candidates: Sequence[Candidate],
        epochs: int,
        resume_state: ResumeState,
        config: AffectConfig,
        judging: JudgingConfig,
        choices: Mapping[str, JudgeAssignment],
        services: JudgeServices | None,
        context: StageContext,
    ) -> None:
        super().__init__(services, context)
        self._reading, self._resume_state = reading, resume_state
        self._candidates = [*product(candidates, range(1, epochs + 1))]
        self._config, self._judging, self._choices = config, judging, choices
        self._backends: AffectBackends | None = None
        self._counted: Counter[str] = Counter()
        self._shown_failures: set[str] = set()

    async def __call__(self, table: pa.Table) -> AsyncIterator[pa.Table]:
        backends = self._backends = self._backends or self._build_backends()
        is_over = await self._check_for_the_end()
        for text in [] if is_over else table.column(SHARD).to_pylist():
            shard = Shard.model_validate_json(text)
            # Where its samples name their recordings from.
            folder = shard.path if shard.kind == "folder" else posixpath.dirname(shard.path)
            read = read_samples(shard, self._reading, self._context.record_unreadable)
            samples = [sample for sample in read if self._is_unfinished(sample)]
            for start in range(0, len(samples), self._config.batch_size):
                batch = await self._enrich(
                    samples[start : start + self._config.batch_size], folder, backends
                )
                await self._reporter.report()
                if batch is None:
                    return
                self._count(batch)
                yield samples_to_table(batch)

    async def _enrich(
        self, samples: Sequence[Sample], folder: str, backends: AffectBackends
    ) -> list[Sample] | None:
        """The samples with emotion and traits; None when the run stops before."""
        try:
            return await add_affect(samples, folder, backends)
        except (BudgetSpent, JudgeStalled) as error:
            self._is_stopping = True
            self._context.counter.stop(str(error))
            return None
        except Stopped:
            return None
        except EvalError:  # a service of the run is gone
            raise
        except Exception as error:
            if len(samples) == 1:
                self._context.record_stage_failure(AFFECT, samples[0].id, error)
                return [uniform_emotion(samples[0], error)]
        alone = [await self._enrich([sample], folder, backends) for sample in samples]
        if any(enriched is None for enriched in alone):
            return None
        return [sample for enriched in alone for sample in enriched or ()]

    def _is_unfinished(self, sample: Sample) -> bool:
        units = (unit for candidate in self._candidates for unit in unit_ids(sample, *candidate))
        return not all(map(self._resume_state.has, units))

    def _count(self, samples: Sequence[Sample]) -> None:
        """Tells the run how many emotions and traits were read, heard, degraded; why, the first
        time; and what the store had to do."""
        counts: Counter[str] = Counter(samples=len(samples))
        for sample in samples:
            emotion, failed = sample.metadata[NOTES]["emotion"], find_degraded(sample)
            counts[f"emotion {emotion['backend']}"] += 1
            counts[f"speech {emotion.get('speech', {}).get('source', 'off')}"] += 1
            counts["degraded"] += bool(failed.keys() - {TRAITS})
            counts[DEGRADED_TRAITS] += TRAITS in failed
            for what in failed.keys() - self._shown_failures:
                self._shown_failures.add(what)
                stands = "unknown" if what == TRAITS else "uniform"
                line = f"No {what} could be read of sample {sample.id!r} ({stands}): {failed[what]}"
                self._context.counter.add_line(line)
        store = Counter(
            self._backends.store.counts if self._backends and self._backends.store else {}
        )
        counts.update(
            {f"store {name}": count - self._counted[name] for name, count in store.items()}
        )
        self._counted = store
        self._context.counter.count({name: count for name, count in counts.items() if count})

    def _build_backends(self) -> AffectBackends:
        config = self._config
        judge = None
        if self._choices:
            judge = build_judges(self._choices, self._judging, self._connect())[AFFECT][0]
        return AffectBackends(
            text=self._load_text(),
            speech=self._build_speech() if config.hears else None,
            store=AudioStore(None if config.cache == "auto" else config.cache)
            if config.hears
            else None,
            speaker=self._build_speaker() if config.hears else None,
            weights=normalised_weights(config.speech_weight, config.text_weight),
            traits=config.traits,
            judge=judge,
        )

    def _load_text(self) -> TextEmotion | Literal["judge"] | None:
        if self._config.emotion == JUDGE:
            return JUDGE
        return None if self._config.emotion == OFF else load_text_emotion(self._config.emotion)

    def _build_speech(self) -> SpeechEmotion:
        from memray_eval.affect.speech_client import OpenAIListener

        if self._config.speech == ListenerSpeech.name:
            return ListenerSpeech(OpenAIListener(server=self._speech_server()))
        return load_speech_emotion(self._config.speech)

    def _build_speaker(self) -> Speaker | None:
        from memray_eval.affect.speech_client import VOICE, OpenAIVoice

        config = self._config
        if choose_synthesis(config.tts, config.base_url) == OFF:
            return None
        return OpenAIVoice(config.tts_model, config.voice or VOICE, self._speech_server())

    def _speech_server(self) -> SpeechServer:
        from memray_eval.affect.speech_client import SpeechServer

        return SpeechServer(base_url=self._config.base_url, api_key_env=self._config.api_key_env)
