"""The affect stage: samples get emotion and traits before their prompts are built."""

import posixpath
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from itertools import product
from typing import Literal

import pyarrow as pa

from memray_eval.affect.enriching import (
    JUDGE,
    NOTES,
    AffectBackends,
    add_affect,
    find_degraded,
    uniform_emotion,
)
from memray_eval.affect.labels import (
    OFF,
    TransformersEmotion,
    load_text_emotion,
    normalised_weights,
)
from memray_eval.affect.speech import TransformersSpeech, load_speech_emotion
from memray_eval.affect.speech_client import AudioStore, Speaker, choose_synthesis
from memray_eval.config.sections import AffectConfig, JudgingConfig
from memray_eval.datasets.scan import read_samples
from memray_eval.datasets.sources import Shard
from memray_eval.errors import EvalError
from memray_eval.execution.services import AskingStage, JudgeServices
from memray_eval.execution.stages.prompt import SHARD, PromptSpec
from memray_eval.judges.judge_factory import build_judges
from memray_eval.judges.router import JudgeAssignment
from memray_eval.results.schema import samples_to_table
from memray_eval.types import Sample, unit_ids

AFFECT, TRAITS, DEGRADED_TRAITS = "affect", "traits", "traits degraded"
TOGETHER = 16  # samples that are read together


class EnrichSamples(AskingStage):
    """Shards to samples with emotion and traits. Clients are built on this actor's loop."""

    def __init__(
        self,
        asking: PromptSpec,
        config: AffectConfig,
        judging: JudgingConfig,
        choices: Mapping[str, JudgeAssignment],
        services: JudgeServices | None,
    ) -> None:
        super().__init__(services, asking.context)
        self._asking = asking
        self._candidates = [*product(asking.candidates, range(1, asking.epochs + 1))]
        self._config, self._judging, self._choices = config, judging, choices
        self._backends: AffectBackends | None = None
        self._counted: Counter[str] = Counter()
        self._shown_failures: set[str] = set()

    async def __call__(self, table: pa.Table) -> AsyncIterator[pa.Table]:
        backends = self._backends = self._backends or self._build_backends()
        is_over = await self._check_for_the_end()
        for text in [] if is_over else table.column(SHARD).to_pylist():
            shard = Shard.model_validate_json(text)
            # Its samples name their recordings relative to this folder.
            folder = shard.path if shard.kind == "folder" else posixpath.dirname(shard.path)
            read = read_samples(shard, self._asking.reading, self._context.record_unreadable)
            has, candidates = self._asking.resume_state.has, self._candidates
            samples = [
                sample
                for sample in read
                if not all(has(unit) for pair in candidates for unit in unit_ids(sample, *pair))
            ]
            for start in range(0, len(samples), TOGETHER):
                together = samples[start : start + TOGETHER]
                batch = await self._enrich(together, folder, backends)
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
            return await self._unless_stopped(add_affect(samples, folder, backends))
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

    def _count(self, samples: Sequence[Sample]) -> None:
        """Counts emotions and traits that were read, heard or degraded, and the store's work."""
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
        if self._backends is not None and (store := self._backends.store) is not None:
            for name, count in store.counts.items():
                counts[f"store {name}"] = count - self._counted[name]
            self._counted = Counter(store.counts)
        self._context.counter.count({name: count for name, count in counts.items() if count})

    def _build_backends(self) -> AffectBackends:
        config = self._config
        judge = None
        if self._choices:
            judge = build_judges(self._choices, self._judging, self._connect())[AFFECT][0]
        cache = None if config.cache == "auto" else config.cache
        text: TransformersEmotion | Literal["judge"] | None = JUDGE
        if config.emotion != JUDGE:
            text = None if config.emotion == OFF else load_text_emotion(config.emotion)
        speech, speaker = self._build_speech() if config.hears else (None, None)
        return AffectBackends(
            text=text,
            speech=speech,
            store=AudioStore(cache) if config.hears else None,
            speaker=speaker,
            weights=normalised_weights(config.speech_weight, config.text_weight),
            traits=config.traits,
            judge=judge,
        )

    def _build_speech(self) -> tuple[TransformersSpeech, Speaker | None]:
        """The listener to samples, and the speaker of those without sound, if there is one."""
        from memray_eval.affect.speech_client import OpenAIVoice

        config, speech = self._config, load_speech_emotion(self._config.speech)
        if choose_synthesis(config.tts, config.base_url) == OFF:
            return speech, None
        return speech, OpenAIVoice(config.base_url, config.api_key_env)
