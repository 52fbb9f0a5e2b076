"""Adds emotion and traits to samples that lack them, such as those that a judge reads in the user's
own words, and notes their origin."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, Field

from memray_eval.affect.labels import (
    EKMAN,
    OFF,
    Distribution,
    FusionWeights,
    TransformersEmotion,
    fuse,
)
from memray_eval.affect.speech import (
    RecognisedSpeech,
    TransformersSpeech,
    recognise_speech,
    to_utterance,
)
from memray_eval.affect.speech_client import AudioStore, Speaker
from memray_eval.errors import EvalError, JudgeError, describe_error
from memray_eval.ports import Judge
from memray_eval.text_processing.judge_prompts import JudgePrompt
from memray_eval.types import BIG_FIVE, EXISTING, Sample

FLAT = 0.5  # an unknown trait
Probability = Annotated[float, Field(ge=0, le=1)]

EMOTION_RUBRIC = """
How probable is each emotion in the user who wrote QUERY? EARLIER holds what they wrote before; it matters only as far as it
shows how they feel now. Give each of anger, disgust, fear, joy, neutral, sadness and surprise a probability; together they sum
to 1. Go by how it is said and by what the user says of themselves, not by how you would feel in their place: a calm question
about an illness is neutral. Worry counts as fear, disappointment as sadness, annoyance as anger, gratitude and hope as joy.
Where nothing shows, neutral has most.
"""  # noqa: E501


class EmotionJudgment(BaseModel):
    """The emotion of a message, as probabilities that sum to 1."""

    anger: Probability
    disgust: Probability
    fear: Probability
    joy: Probability
    neutral: Probability
    sadness: Probability
    surprise: Probability


class TraitEstimate(BaseModel):
    """One trait as far as the user's own words show it."""

    score: Probability
    confidence: Probability
    evidence: str


class BigFiveJudgment(BaseModel):
    """What a user's words show of their Big Five traits."""

    openness: TraitEstimate
    conscientiousness: TraitEstimate
    extraversion: TraitEstimate
    agreeableness: TraitEstimate
    neuroticism: TraitEstimate


TRAITS_RUBRIC = """
Estimate the Big Five traits of the user who wrote QUERY and EARLIER, each by itself, as a score from 0 (very low) over 0.5
(like most people) to 1 (very high).
openness: curious about ideas and new things, against at home in the familiar. conscientiousness: orderly, planning, keeping at
it, against easy-going and careless of plans. extraversion: sociable, lively, talkative, against quiet and reserved.
agreeableness: trusting, warm, giving way, against blunt, critical and competitive. neuroticism: quick to worry and be upset,
against calm and even.
A few messages are weak evidence of a personality. A mood is not a trait: one who is afraid for a good reason is not thereby
neurotic. What a question is about says little; how it is asked says more. Do not go by a guess at age, sex, origin, illness or
occupation.
confidence is how sure the words make you, from 0 (they show nothing: score 0.5) over 0.3 (one passing sign) to 1 (many plain
signs that agree). For a single short message no confidence above 0.5 is earned. In evidence quote the words that you go by, or
say that there are none.
"""  # noqa: E501


def from_traits(judgment: BigFiveJudgment) -> dict[str, float]:
    """Returns the traits that a judge saw anything of. Each score is drawn to FLAT by its lack of
    confidence (FLAT + confidence x (score - FLAT)), so that weak evidence makes no marked trait: a
    model's reading of a few messages correlates with questionnaires by about 0.29."""
    estimates: dict[str, TraitEstimate] = {trait: getattr(judgment, trait) for trait in BIG_FIVE}
    return {
        trait: FLAT + estimate.confidence * (estimate.score - FLAT)
        for trait, estimate in estimates.items()
        if estimate.confidence > 0
    }


def judge_affect_prompt(rubric: str, sample: Sample) -> JudgePrompt:
    """Asks a judge by a rubric of the query and the user's own earlier turns (not the
    assistant's)."""
    earlier = "\n".join(turn.content for turn in sample.history if turn.role == "user") or "(none)"
    return JudgePrompt(rubric, {"EARLIER": earlier, "QUERY": sample.query})


# By the field of a sample: what a judge is asked for it
AFFECT_QUESTIONS: Mapping[str, tuple[str, type[BaseModel]]] = {
    "emotion": (EMOTION_RUBRIC, EmotionJudgment),
    "traits": (TRAITS_RUBRIC, BigFiveJudgment),
}
T = TypeVar("T", bound=BaseModel)
NOTES = "affect"  # the key of a sample's metadata with the origin of its emotion and traits
JUDGE: Literal["judge"] = "judge"
UNKNOWN: Literal["unknown"] = "unknown"
UNAVAILABLE = "unavailable"
TRAIT_BACKENDS = (EXISTING, UNKNOWN, JUDGE)
EMOTION_NEEDS = (
    "affect.emotion: judge (with affect.judge) or transformers:MODEL, or recordings with "
    "affect.speech: transformers:MODEL"
)


@dataclass(frozen=True, kw_only=True)
class AffectBackends:
    """The backends that find emotion and traits. `text` None: nobody reads it; `speech` None: it
    does not count; `speaker` None: only recordings do. `traits` is one of TRAIT_BACKENDS."""

    text: TransformersEmotion | Literal["judge"] | None
    speech: TransformersSpeech | None
    store: AudioStore | None
    speaker: Speaker | None
    weights: FusionWeights
    traits: str
    judge: Judge | None


class _TextReading(NamedTuple):
    distribution: Distribution
    backend: str
    degraded: str | None = None


async def add_affect(
    samples: Sequence[Sample], folder: str, backends: AffectBackends
) -> list[Sample]:
    """Adds emotion and traits; those that a sample gives itself stay. `folder` is that of the
    dataset's file, for recordings. If a backend fails, the emotion is uniform or the traits are
    unknown, and the sample notes why; if nothing reads or hears a sample, it has no emotion."""
    without_emotion = [sample for sample in samples if not sample.emotion]
    enriched = await _add_emotion(without_emotion, folder, backends)
    with_emotion = {sample.id: sample for sample in enriched}
    return [
        await _add_traits(
            with_emotion.get(sample.id, _add_notes(sample, emotion={"backend": EXISTING})), backends
        )
        for sample in samples
    ]


async def _add_emotion(
    samples: Sequence[Sample], folder: str, backends: AffectBackends
) -> list[Sample]:
    if not samples:
        return []
    texts = await _read_texts(samples, backends)
    speech: Sequence[RecognisedSpeech | None] = [None] * len(samples)
    if backends.speech is not None and backends.store is not None:
        utterances = [to_utterance(sample, folder) for sample in samples]
        speech = await recognise_speech(
            utterances, backends.speech, backends.store, backends.speaker
        )
    return [
        _fuse_emotion(sample, text, spoken, backends.weights)
        for sample, text, spoken in zip(samples, texts, speech, strict=True)
    ]


def _fuse_emotion(
    sample: Sample, text: _TextReading, speech: RecognisedSpeech | None, weights: FusionWeights
) -> Sample:
    notes: dict[str, Any] = {
        "backend": "fused",
        "text": text._asdict(),
        "speech": speech.model_dump() if speech else {"backend": OFF},
        "speech_weight": weights.speech,
        "text_weight": weights.text,
    }
    if text.backend == OFF and not (speech and speech.is_heard):
        return _add_notes(sample, emotion={**notes, "backend": UNAVAILABLE, "needs": EMOTION_NEEDS})
    emotion = fuse(speech.distribution if speech else None, text.distribution, weights)
    return _add_notes(sample.model_copy(update={"emotion": emotion}), emotion=notes)


async def _read_texts(samples: Sequence[Sample], backends: AffectBackends) -> list[_TextReading]:
    if backends.text is None:
        return [_TextReading(EKMAN.uniform(), OFF) for _ in samples]
    if backends.text == JUDGE:
        return [await _judge_emotion(sample, backends) for sample in samples]
    name = backends.text.name
    results = await backends.text.infer([sample.query for sample in samples])
    return [
        _TextReading(EKMAN.uniform(), name, result)
        if isinstance(result, str)
        else _TextReading(result, name)
        for result in results
    ]


async def _judge_emotion(sample: Sample, backends: AffectBackends) -> _TextReading:
    judge, judgment = await _ask_judge(EMOTION_RUBRIC, sample, backends, EmotionJudgment)
    if isinstance(judgment, str):
        return _TextReading(EKMAN.uniform(), judge, judgment)
    shares = [getattr(judgment, label) for label in EKMAN.labels]
    return _TextReading(EKMAN.normalised(shares), judge)


async def _ask_judge(
    rubric: str, sample: Sample, backends: AffectBackends, kind: type[T]
) -> tuple[str, T | str]:
    """A judge's name and judgment, or why it gave none. Raises what concerns the whole run."""
    assert backends.judge is not None
    try:
        verdict = await backends.judge.judge(judge_affect_prompt(rubric, sample), kind)
    except Exception as error:
        if isinstance(error, EvalError) and not isinstance(error, JudgeError):
            raise
        return backends.judge.name, describe_error(error)
    assert isinstance(verdict.judgment, kind)
    return verdict.judge, verdict.judgment


async def _add_traits(sample: Sample, backends: AffectBackends) -> Sample:
    if backends.traits == UNKNOWN:
        return _add_notes(sample.model_copy(update={"traits": {}}), traits={"backend": UNKNOWN})
    if sample.traits or backends.traits == EXISTING:
        return _add_notes(sample, traits={"backend": EXISTING if sample.traits else UNKNOWN})
    judge, judgment = await _ask_judge(TRAITS_RUBRIC, sample, backends, BigFiveJudgment)
    if isinstance(judgment, str):
        return _add_notes(sample, traits={"backend": UNKNOWN, "degraded": judgment})
    traits = from_traits(judgment)
    notes = {
        "backend": JUDGE,
        "judge": judge,
        "unknown": [trait for trait in BIG_FIVE if trait not in traits],
        "confidence": {trait: getattr(judgment, trait).confidence for trait in BIG_FIVE},
    }
    return _add_notes(sample.model_copy(update={"traits": traits}), traits=notes)


def uniform_emotion(sample: Sample, error: BaseException) -> Sample:
    """Returns a sample whose enrichment has raised: its own emotion and traits stay, else the
    emotion is uniform and the traits are unknown."""
    unknown = {"backend": UNKNOWN, "degraded": describe_error(error)}
    emotion = {"backend": EXISTING} if sample.emotion else unknown
    traits = {"backend": EXISTING} if sample.traits else unknown
    update = {"emotion": sample.emotion or EKMAN.uniform()}
    return _add_notes(sample.model_copy(update=update), emotion=emotion, traits=traits)


def find_degraded(sample: Sample) -> dict[str, str]:
    """Returns the parts of a sample (emotion, speech, traits) that could not be read, and why."""
    notes = sample.metadata.get(NOTES, {})
    emotion, traits = notes.get("emotion", {}), notes.get("traits", {})
    reasons = {
        "emotion": emotion.get("text", {}).get("degraded") or emotion.get("degraded"),
        "speech": emotion.get("speech", {}).get("degraded"),
        "traits": traits.get("degraded"),
    }
    return {part: str(reason) for part, reason in reasons.items() if reason}


def _add_notes(sample: Sample, **notes: Any) -> Sample:
    before = sample.metadata.get(NOTES)
    kept = before if isinstance(before, dict) else {}
    return sample.model_copy(update={"metadata": {**sample.metadata, NOTES: {**kept, **notes}}})
