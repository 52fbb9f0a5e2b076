"""Emotional congruence: does the tone answer the emotions that were detected in the user? Source:
seed 000, metric 5.

One rubric score from 1 to 5, given the distribution over emotions, the message and the response. An
empty response scores 1: nothing was answered."""

from __future__ import annotations

import re
from typing import NamedTuple

from pydantic import BaseModel, Field

from memray_eval.metric import JudgedMetric, MetricValue
from memray_eval.metrics._shared.judging import judge_messages
from memray_eval.ports import Vectors
from memray_eval.text_processing.matching import normalise, stem, stems
from memray_eval.types import Message, Response, Sample

RUBRIC = """
Score from 1 to 5 how well the tone of the response fits what the user feels. EMOTION gives the probability of each emotion, as
detected in the user's speech and text; QUERY is what the user wrote.
5: the tone clearly answers the dominant emotions, and as strongly as they are felt. 4: it fits, with an emotion or an intensity
slightly off. 3: mixed, some signals are answered and others missed or flattened. 2: most signals are missed. 1: the tone
contradicts the signals or ignores them altogether.
Weigh intensity: deep sadness asks for gentle, validating words and not for cheer; mild unease needs no drama; a mostly neutral
user needs a plain, friendly tone. Count only emotions that the distribution or the message supports, never ones you would
expect. Judge tone and emotional framing alone: whether the advice is medically right is scored elsewhere.
In matched_emotions name the emotions that the tone answers, in mismatched_emotions those that it misses or clashes with, by
their names in EMOTION where they stand there. In tone_notes say in a sentence or two what decided the score.
"""  # noqa: E501


class EmotionalCongruenceJudgment(BaseModel):
    """How well the tone fits the user's emotions."""

    emotional_congruence_score: int = Field(ge=1, le=5)
    matched_emotions: list[str] = Field(default_factory=list)
    mismatched_emotions: list[str] = Field(default_factory=list)
    tone_notes: str


def prompt(sample: Sample, response: Response) -> tuple[Message, ...]:
    shares = sorted(sample.emotion.items(), key=lambda item: -item[1])
    lines = "\n".join(f"{label}: {share:.2f}" for label, share in shares)
    return judge_messages(
        RUBRIC, {"EMOTION": lines, "QUERY": sample.query, "RESPONSE": response.text}
    )


def _any_of(*patterns: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(patterns)})\b")


class Family(NamedTuple):
    """Emotions that one kind of answer fits: the stems of their labels, and the words that answer
    them."""

    labels: frozenset[str]
    cues: re.Pattern[str]


def _make_family(labels: str, *cues: str) -> Family:
    return Family(frozenset(stem(label) for label in labels.split()), _any_of(*cues))


DISTRESS = (
    _make_family(
        "sad sadness sorrow grief remorse disappointment embarrassment shame guilt loneliness "
        "lonely depression hurt pain",
        r"sad\w*|sorrow\w*|grie\w+|lone\w+|heartbr\w+|disappoint\w*|discourag\w*|dishearten\w*"
        r"|tough|draining",
        r"gentle|gently|kind (?:to|with) yourself|be kind|comfort\w*|low mood|feel\w* "
        r"(?:low|down)|tears|crying",
    ),
    _make_family(
        "fear fearful afraid scared anxiety anxious nervous nervousness worry worried stress "
        "stressed panic",
        r"worr\w+|anxi\w+|afraid|fear\w*|scar(?:y|ed)|frighten\w*|nervous\w*|stress\w*"
        r"|overwhelm\w*|panic\w*|unsettling",
        r"reassur\w*|rest assured|you(?:'re| are) safe|manageable|treatable|one step at a "
        r"time|one day at a time|breathe?",
    ),
    _make_family(
        "anger angry annoyance annoyed disapproval disgust disgusted frustration frustrated rage "
        "irritation contempt",
        r"frustrat\w+|ang(?:er|ry)|annoy\w+|irritat\w+|infuriat\w+|maddening|upset(?! "
        r"stomach)|unfair|fed up|unpleasant",
        r"right to (?:be|feel|expect)|apolog\w+|let you down|should not have happened",
    ),
)
JOY = _make_family(
    """joy joyful happy happiness excitement excited love gratitude amusement admiration approval optimism pride relief caring
    desire contentment hope""",  # noqa: E501
    r"glad|happy|joy\w*|delight\w*|excit\w+|wonderful|fantastic|great|awesome|amazing|brilliant"
    r"|lovely|thrilled|enjoy\w*",
    r"congratulations|congrats|well done|proud|celebrat\w+|cheers|yay|hooray|woohoo|good "
    r"(?:news|for you|on you)",
)
SURPRISE = _make_family(
    "surprise surprised realization confusion confused curiosity",
    r"surpris\w+|unexpected\w*|sudden\w*|shock\w*|startl\w+|confus\w+|puzzl\w+|baffl\w+|curious"
    r"|wow|good question",
)
NEUTRAL = frozenset(
    stem(label) for label in ("neutral", "calm", "calmness", "unknown", "other", "none")
)
_HEARD = _any_of(
    r"sorry|understandabl[ey]|no wonder|makes (?:\w+ )?sense that|not alone|here (?:for|with) "
    r"you|that must",
    r"sounds (?:\w+ ){0,2}(?:hard|difficult|rough|challenging|exhausting|miserable|awful)|your "
    r"feelings|it's (?:ok|okay) to",
    r"(?:normal|natural) to feel|i (?:can )?(?:hear|imagine) (?:you|how)|i understand "
    r"(?:how|why|this|that (?:this|it))",
)
_DISMISSES = _any_of(
    r"cheer up|calm down|get over (?:it|this|that)|snap out of|toughen up|just relax|no big "
    r"deal|overreact\w*|man up",
    r"(?:stop|quit) (?:worrying|complaining|whining|crying|moaning)|don't be (?:so "
    r")?(?:sad|silly|dramatic|angry|upset)",
)
SALIENT, STRONG, DOMINANT = 0.15, 0.6, 0.5  # shares of the distribution


class Tone(NamedTuple):
    """How many different words of each kind a response has."""

    text: str
    heard: int
    distress: tuple[int, ...]
    cheer: int
    surprise: int
    is_dismissive: bool

    @property
    def compassion(self) -> int:
        return self.heard + sum(self.distress)


def _read_tone(response: Response) -> Tone:
    text = normalise(response.text)
    return Tone(
        text=text,
        heard=_count(_HEARD, text),
        distress=tuple(_count(family.cues, text) for family in DISTRESS),
        cheer=_count(JOY.cues, text) + ("!" in text),
        surprise=_count(SURPRISE.cues, text),
        is_dismissive=_DISMISSES.search(text) is not None,
    )


def _count(pattern: re.Pattern[str], text: str) -> int:
    return len(set(pattern.findall(text)))


def rules(sample: Sample, response: Response, vectors: Vectors) -> EmotionalCongruenceJudgment:
    """2 + 3c, rounded half up, where c is the share of what is felt that the response answers; less
    1 when an emotion of STRONG share, neutral apart, finds fewer than two cues; less 2 when the
    tone clashes; within 1 to 5.

    Felt: the emotions of SALIENT share; where none is, a neutral user. Answered: sadness, fear and
    anger by a word of their family or one that says the user was heard; joy by cheer (an
    exclamation mark counts as one); surprise by its words; neutral by at most two words of cheer
    and two of compassion, and one more of each per 50 words; any other emotion by its name. Clash:
    with distress of DOMINANT share, a dismissive phrase, or two words of cheer and more cheer than
    compassion; with joy of DOMINANT share, two words of compassion and more compassion than
    cheer."""
    tone = _read_tone(response)
    felt = {label: share for label, share in sample.emotion.items() if share >= SALIENT} or {
        "neutral": 1.0
    }
    cues = {label: _count_answers(label, tone) for label in felt}
    answered = sum(share for label, share in felt.items() if cues[label]) / sum(felt.values())
    is_weak = any(
        share >= STRONG and cues[label] < 2 and not _is_neutral(label)
        for label, share in felt.items()
    )
    clashes = _clashes(sample.emotion, tone)
    score = int(2 + 3 * answered + 0.5) - is_weak - 2 * clashes
    notes = [f"answers {answered:.0%} of the emotions that stand out"]
    notes += ["a strong emotion finds little answer"] * is_weak + [
        "the tone clashes with what is felt"
    ] * clashes
    named = [label for label in felt if label in sample.emotion]
    return EmotionalCongruenceJudgment(
        emotional_congruence_score=max(1, min(5, score)),
        matched_emotions=[label for label in named if cues[label]],
        mismatched_emotions=[label for label in named if not cues[label]],
        tone_notes="; ".join(notes),
    )


def _count_answers(label: str, tone: Tone) -> int:
    """How many cues of the response answer an emotion."""
    name = stem(normalise(label))
    for family, count in zip(DISTRESS, tone.distress, strict=True):
        if name in family.labels:
            return count + tone.heard
    if name in JOY.labels:
        return tone.cheer
    if name in SURPRISE.labels:
        return tone.surprise
    if _is_neutral(label):
        return int(max(tone.cheer, tone.compassion) <= 2 + len(tone.text.split()) // 50)
    return len(stems(label) & stems(tone.text))


def _is_neutral(label: str) -> bool:
    return stem(normalise(label)) in NEUTRAL


def _clashes(emotion: dict[str, float], tone: Tone) -> bool:
    distress = joy = 0.0
    for label, share in emotion.items():
        name = stem(normalise(label))
        distress += share if any(name in family.labels for family in DISTRESS) else 0.0
        joy += share if name in JOY.labels else 0.0
    too_bright = tone.cheer >= 2 and tone.cheer > tone.compassion
    too_dark = tone.compassion >= 2 and tone.compassion > tone.cheer
    return (distress >= DOMINANT and (tone.is_dismissive or too_bright)) or (
        joy >= DOMINANT and too_dark
    )


def measure(
    judgment: EmotionalCongruenceJudgment, sample: Sample, response: Response
) -> MetricValue:
    return MetricValue(value=judgment.emotional_congruence_score)


METRIC = JudgedMetric(
    title="EMOTIONAL CONGRUENCE (TONE ALIGNMENT)",
    value_label="Congruence",
    scale=(1, 5),
    integer_scale=True,
    requires=("query", "emotion"),
    judgment=EmotionalCongruenceJudgment,
    prompt=prompt,
    rules=rules,
    measure=measure,
    on_empty=lambda sample: EmotionalCongruenceJudgment(
        emotional_congruence_score=1, tone_notes="empty response"
    ),
    preferred_judge="openai/gpt-4o",
)
