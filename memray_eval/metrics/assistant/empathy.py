"""Empathy: is the response warm, does it take feelings seriously, does it support? Source: seed
000, metric 11.

One rubric score from 1 to 5, whatever the user happens to feel: whether the tone fits the detected
emotion is emotional congruence. An empty response scores 3: it shows no empathy, and no coldness.
"""

from __future__ import annotations

import re
from typing import Literal, get_args

from pydantic import BaseModel, Field

from memray_eval.metric import Aggregates, Columns, JudgedMetric, MetricValue, statistics_block
from memray_eval.metrics._shared.evidence import verify_quotes
from memray_eval.metrics._shared.judging import judge_messages
from memray_eval.ports import Vectors
from memray_eval.text_processing.matching import normalise, sentences
from memray_eval.types import Message, Response, Sample, SummaryLine, SummarySection

RUBRIC = """
Score the empathy of the response from 1 to 5. Weigh three things: warmth, a friendly, caring, human voice; validation, the
user's feelings or experience are acknowledged and taken seriously ("that sounds difficult"); support, it encourages without
judging ("let's work on this together").
5: warm and genuinely human, says outright that the feelings are valid, deeply supportive. 4: generally warm and supportive,
with a mechanical phrase here and there. 3: neutral and professional, some empathy, room for more warmth. 2: cold, clinical or
like a transaction; feelings are passed over. 1: no compassion at all: harsh, dismissive or out of place.
People who ask about their health are vulnerable: a plain question deserves warmth too. Judge tone alone, neither whether the
advice is right nor whether the tone matches a particular emotion.
Set warmth_level to high, moderate, low or cold, and validation_present to whether feelings are validated anywhere. In
supportive_elements quote the warm, validating or supportive words of the response, exactly. In empathy_gaps say in your own
words what it left out, or where it is cold. In explanation sum up what decided the score.
"""  # noqa: E501

WarmthLevel = Literal["high", "moderate", "low", "cold"]
WARMTH_LEVELS: tuple[WarmthLevel, ...] = get_args(WarmthLevel)


class EmpathyJudgment(BaseModel):
    """How much empathy the response shows."""

    empathy_score: int = Field(ge=1, le=5)
    warmth_level: WarmthLevel
    validation_present: bool
    supportive_elements: list[str] = Field(
        default_factory=list, description="Exact quotes from the response."
    )
    empathy_gaps: list[str] = Field(default_factory=list)
    explanation: str


def prompt(sample: Sample, response: Response) -> tuple[Message, ...]:
    return judge_messages(RUBRIC, {"QUERY": sample.query, "RESPONSE": response.text})


def _any_of(*patterns: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(patterns)})\b")


_FEELINGS = (
    r"feelings?|frustration|worr(?:y|ies)|concerns?|exhaustion|tiredness|pain|fears?"
    r"|anger|sadness|anxiety|distress"
)
_HARD = (
    r"hard|tough|difficult|challenging|frustrating|exhausting|draining|painful|stressful"
    r"|overwhelming|tiring|scary|upsetting|"
    r"frightening|lonely|rough|worrying|heavy|awful|miserable|disheartening|discouraging"
    r"|unsettling|annoying|maddening|a lot"
)
_VALIDATES = _any_of(
    rf"(?:sounds?|seems?|must (?:be|feel|have been)|can (?:be|feel)) (?:\w+ ){{0,2}}(?:{_HARD})\b",
    rf"(?:it|this|that)(?:'s| is| feels) (?:\w+ ){{0,2}}(?:{_HARD})\b",
    rf"how (?:{_HARD})|understandabl[ey]|no wonder|makes (?:\w+ )?sense (?:that|to "
    rf"feel|you)|anyone (?:would|in your)",
    r"i(?:'m| am) (?:so |very |really |truly )?sorry|sorry (?:to hear|that|you|about)|not your "
    r"fault|doesn't make you",
    r"(?:normal|natural|okay|ok|alright|valid|human) to (?:feel|be|worry|want|find)|isn't "
    r"(?:laziness|weakness|something you)",
    r"i (?:can )?(?:hear|imagine|understand|appreciate) (?:how|why|this|that "
    r"(?:this|it)|you(?:'re| are) feel)",
    rf"i (?:can )?(?:hear|imagine|understand|appreciate) your (?:{_FEELINGS})|your "
    rf"(?:{_FEELINGS}) (?:is|are|makes?|matters?)",
    r"you(?:'re| are) not (?:alone|lazy|weak|imagining|broken|failing)",
)
_SUPPORTS = _any_of(
    r"let's|(?:work|figure|get|go|tackle|manage|face|sort)\w* (?:\w+ ){0,4}together|together,? "
    r"we|own pace",
    r"(?:i'm|i am|we're|we are) (?:always |right )?here|good for you|kudos|rooting for you",
    r"you(?:'re| are) (?:already |really )?(?:doing|taking|making|on the right)",
    r"(?:i'm|i am|we're|we are|so) (?:so |really |very )?(?:proud|glad|happy|pleased)|well "
    r"done|proud of",
    r"(?:great|good|wonderful|positive|excellent|big|important|brave) "
    r"(?:step|start|question|work|job|progress)s?",
    r"(?:kind|gentle|patient) (?:to|with|on) yourself|take (?:good )?care|one (?:small "
    r")?(?:step|day) at a time|don't hesitate",
    r"i(?:'d| would)(?: be)? (?:love|happy|glad) to|hope (?:you|this|that|it)|wish(?:ing)? "
    r"you|thank(?:s| you) for|feel free",
    r"it(?:'s| is) (?:great|wonderful|good|lovely) (?:that|to hear)|rest assured|every "
    r"(?:bit|step) (?:counts|helps)",
    r"you can do (?:this|it)|you(?:'ve| have) (?:got this|(?:already "
    r")?(?:come|done|made|managed|shown))",
)
_COLD = _any_of(
    r"(?:stop|quit) (?:complaining|whining|worrying|crying|moaning|making excuses)|(?<!will )get "
    r"over (?:it|this|that)",
    r"(?<!not )(?<!never )your own fault|toughen up|snap out of|overreacting|suck it up|grow "
    r"up|deal with it|calm down|man up",
    r"(?:you're|you are|being) (?:just |so "
    r")?(?:lazy|pathetic|ridiculous|stupid|dramatic|weak)|not my problem|your problem",
    r"nobody cares|there(?:'s| is| are) no excuses?|no big deal|don't be (?:so "
    r")?(?:silly|dramatic|lazy|stupid)|that's life",
)
_COMMANDS = _any_of(r"you (?:should|must|need to|have to|ought to)|must|do not|never")
_GENTLE = _any_of(
    r"could|might|may|consider|perhaps|maybe|gently|please|try|if you (?:can|like|feel|want)|when "
    r"you feel"
)
WARMTH_OF: dict[int, WarmthLevel] = {5: "high", 4: "moderate", 3: "low", 2: "cold", 1: "cold"}
SPARSE = 0.15  # share of supportive sentences


def rules(sample: Sample, response: Response, vectors: Vectors) -> EmpathyJudgment:
    """2 + the supportive sentences + 1 when one of them validates feelings, at most 5; less 1, but
    not below 3, when they are under SPARSE of all sentences. Without any: 3 when gentle words
    outnumber commands, else 2. Then less 2 when a sentence is cold, never below 1.

    A sentence is cold, else validating, else supportive, by the phrases it holds. Warmth follows
    the score: WARMTH_OF."""
    lines = sentences(response.text)
    texts = [normalise(sentence) for sentence in lines]
    is_cold = [_COLD.search(text) is not None for text in texts]
    validates = [
        not cold and _VALIDATES.search(text) is not None
        for text, cold in zip(texts, is_cold, strict=True)
    ]
    supports = [
        not cold and _SUPPORTS.search(text) is not None
        for text, cold in zip(texts, is_cold, strict=True)
    ]
    warm = [
        sentence for sentence, *kinds in zip(lines, validates, supports, strict=True) if any(kinds)
    ]
    is_gentle = sum(_hits(_GENTLE, text) - _hits(_COMMANDS, text) for text in texts) > 0
    is_sparse = len(warm) < SPARSE * len(lines)
    score = (
        max(3, min(5, 2 + len(warm) + any(validates)) - is_sparse)
        if warm
        else 3
        if is_gentle
        else 2
    )
    score = max(1, score - 2 * any(is_cold))
    gaps = {
        "a sentence is cold or dismissive": any(is_cold),
        "feelings are not validated": not any(validates),
        "little support for its length": is_sparse or not warm,
        "orders more than it suggests": not warm and not is_gentle,
    }
    return EmpathyJudgment(
        empathy_score=score,
        warmth_level=WARMTH_OF[score],
        validation_present=any(validates),
        supportive_elements=warm,
        empathy_gaps=[gap for gap, is_gap in gaps.items() if is_gap],
        explanation=f"{len(warm)} of {len(lines)} sentences are warm, {sum(is_cold)} cold, by the "
        f"rules",
    )


def _hits(pattern: re.Pattern[str], text: str) -> int:
    return sum(1 for _ in pattern.finditer(text))


def measure(judgment: EmpathyJudgment, sample: Sample, response: Response) -> MetricValue:
    """The score, with 0 or 1 for validation and each warmth level, and how many elements and gaps
    were named."""
    warmth = {f"warmth_{level}": float(judgment.warmth_level == level) for level in WARMTH_LEVELS}
    counts = {name: float(len(getattr(judgment, name))) for name in LISTS}
    return MetricValue(
        value=judgment.empathy_score,
        parts={"validated": float(judgment.validation_present), **warmth, **counts},
    )


def aggregate(columns: Columns) -> Aggregates:
    """The share of responses that validate; per warmth level how many and which share; per list its
    total and mean."""
    extras: dict[str, float | None] = {"validation_rate": float(columns["validated"].mean())}
    for level in WARMTH_LEVELS:
        extras[f"warmth_{level}"] = float(columns[f"warmth_{level}"].sum())
        extras[f"warmth_{level}_share"] = float(columns[f"warmth_{level}"].mean())
    for name in LISTS:
        extras[f"total_{name}"] = float(columns[name].sum())
        extras[f"avg_{name}"] = float(columns[name].mean())
    return Aggregates(extras=extras)


LISTS = ("supportive_elements", "empathy_gaps")
METRIC = JudgedMetric(
    title="EMPATHY SCORE (EMOTIONAL INTELLIGENCE)",
    value_label="Empathy",
    scale=(1, 5),
    integer_scale=True,
    judgment=EmpathyJudgment,
    prompt=prompt,
    rules=rules,
    measure=measure,
    verify=verify_quotes("supportive_elements"),
    on_empty=lambda sample: EmpathyJudgment(
        empathy_score=3, warmth_level="low", validation_present=False, explanation="empty response"
    ),
    preferred_judge="openai/gpt-4o",
    parts=("validated", *(f"warmth_{level}" for level in WARMTH_LEVELS), *LISTS),
    aggregate=aggregate,
    layout=(
        statistics_block("Empathy", True),
        SummarySection(
            lines=(
                SummaryLine(
                    label="Validation Rate", field="extras.validation_rate", form="percent"
                ),
            )
        ),
        SummarySection(
            heading="Warmth Distribution:",
            lines=tuple(
                SummaryLine(label=level.title(), field=f"extras.warmth_{level}", form="bar")
                for level in WARMTH_LEVELS
            ),
        ),
        SummarySection(
            lines=(
                SummaryLine(
                    label="Total Supportive Elements",
                    field="extras.total_supportive_elements",
                    form="count",
                ),
                SummaryLine(
                    label="Avg per Sample", field="extras.avg_supportive_elements", form="average"
                ),
                SummaryLine(
                    label="Total Empathy Gaps", field="extras.total_empathy_gaps", form="count"
                ),
                SummaryLine(
                    label="Avg per Sample", field="extras.avg_empathy_gaps", form="average"
                ),
            )
        ),
    ),
)
