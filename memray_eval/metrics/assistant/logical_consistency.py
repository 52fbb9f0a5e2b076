"""Logical consistency: does the response hold together, or does it contradict itself? Source: seed
000, metric 10.

One rubric score from 1 to 5 over contradictions, faulty reasoning and advice that cannot all be
followed. Whether the content is medically right is scored elsewhere. An empty response scores 5:
who says nothing contradicts nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod
from typing import NamedTuple, TypeAlias

from pydantic import BaseModel, Field

from memray_eval.metric import (
    JudgedMetric,
    MetricValue,
    counts_block,
    statistics_block,
    sums_and_means,
)
from memray_eval.metrics._shared.evidence import verify_quotes
from memray_eval.metrics._shared.judging import judge_messages
from memray_eval.ports import Vectors
from memray_eval.text_processing.matching import STOPWORDS, normalise, sentences, stem, stems, words
from memray_eval.types import Message, Response, Sample

RUBRIC = """
Score how logically the response holds together, from 1 to 5. Look for three things: statements that cannot both be true;
faulty reasoning (a conclusion that doesn't follow, a cause that is none, a circle, a rule drawn from one case); and advice that
cannot be followed all at once. It is advice on health, so a plan must fit together in practice: sleeping longer and getting up
earlier, with nothing said of bedtime, collide. Judge structure alone: whether the medicine is right is scored elsewhere. Advice
for different times, amounts or cases is no contradiction.
5: nothing contradicts and every conclusion follows. 4: a small slip that leaves the message intact. 3: a contradiction or weak
argument that a reader notices. 2: several of them, or a faulty structure. 1: it cancels its own message or makes no sense.
For each contradiction quote the two statements in statement1 and statement2, exactly as the response words them, and say in
explanation why they clash. In reasoning_issues name each flaw of reasoning with its kind, such as false cause or hasty
generalisation. In consistent_elements name what is soundly argued.
"""  # noqa: E501


class Contradiction(BaseModel):
    """Two statements of the response that clash."""

    statement1: str = Field(description="The exact words of the response.")
    statement2: str = Field(description="The exact words of the response.")
    explanation: str


class LogicalConsistencyJudgment(BaseModel):
    """How well the response holds together."""

    consistency_score: int = Field(ge=1, le=5)
    contradictions: list[Contradiction] = Field(default_factory=list)
    reasoning_issues: list[str] = Field(default_factory=list)
    consistent_elements: list[str] = Field(default_factory=list)
    explanation: str


def prompt(sample: Sample, response: Response) -> tuple[Message, ...]:
    return judge_messages(RUBRIC, {"RESPONSE": response.text})


READ_CHARS = 20_000  # of a response; what follows is not read
ARGUMENTS = 3  # consistent elements listed at most

_AGAINST = frozenset(
    """
    not no never dont doesnt shouldnt mustnt neednt avoid avoiding stop stopping skip skipping quit
    quitting reduce reducing limit limiting cut cutting less fewer low lower drop decrease minimise
    minimize eliminate without refrain
""".split()
)
_FOR = frozenset(
    """
    more increase increasing add adding should must can could need do have having eat eating drink
    drinking take taking use using keep keeping continue start try raise high higher include get
    getting choose
""".split()
)
_DIRECTIONS = dict.fromkeys(_AGAINST, -1) | dict.fromkeys(_FOR, 1)
_PARTICLES = frozenset(
    "back down out up to on of from off away with plenty lots lot enough amount amounts".split()
)
_ENDS = frozenset(
    """
    to in before after for at by as so because that when if until unless every each this during
    while which instead rather than per daily weekly regularly often twice once day days week weeks
    month night nights morning evening afternoon today tonight tomorrow with on over from about or
""".split()
)
_REPORTED = frozenset(
    "i we he she they ive im youre youve cant cannot couldnt didnt wasnt only just "
    "necessarily".split()
)
_MODAL = frozenset("should must can could need ought shouldnt mustnt neednt".split())
_COPULA = {"is": 1, "are": 1, "isnt": -1, "arent": -1}
_OPPOSITE = {
    stem(word): stem(opposite)
    for word, opposite in (
        pair.split(":")
        for pair in """
        bad:good unsafe:safe dangerous:safe harmful:safe unhealthy:healthy impossible:possible
        false:true unnecessary:necessary ineffective:effective useless:useful abnormal:normal
        wrong:right harmless:harmful
    """.split()
    )
}
_CLAUSE = re.compile(r"[,;:()]\s*|\s[-–—]\s|\b(?:and|but|so|then)\b\s*", re.IGNORECASE)
_CONDITION = re.compile(
    r"^\W*(?:if|when|whenever|unless|whether|while|once|until|in case|even though|although)\b"
)
_QUALIFIED = re.compile(
    r"\d+|\b(?:after|before|until|if|when|unless|while|during|too "
    r"(?:much|many)|late|later|mornings?|evenings?|nights?|tonight"
    r"|today|tomorrow|first|except|instead|for now|excess|without|as long)\b"
)
_CLASHES = (  # two pieces of advice that exclude each other, unless the third is there too
    (
        re.compile(r"\b(?:sleep (?:more|longer)|get more sleep)\b"),
        re.compile(r"\b(?:wake|get|getting|waking)(?: up)? earlier\b"),
        re.compile(
            r"\b(?:bed|asleep|bedtime|lights out) (?:\w+ ){0,2}earlier\b|\bearlier "
            r"(?:bed|night)|\bnaps?\b"
        ),
    ),
    (
        re.compile(r"\b(?:complete|strict|full|total) (?:bed )?rest\b|\bstay in bed\b"),
        re.compile(
            r"\b(?:intense|vigorous|hard|strenuous) (?:exercise|training|workouts?)\b|\bgo for a "
            r"run\b"
        ),
        re.compile(r"\b(?:no|avoid|not|once|until|after)\b"),
    ),
)
_FLAWS = {
    "hasty generalisation": re.compile(
        r"(?<!not )(?<!n't )(?<!nothing is )\b(?:always works|works for every(?:one|body)|never "
        r"fails|guaranteed"
        r"|cures? (?:everything|all)|everyone knows|100 ?% (?:safe|effective|certain))"
    ),
    "treats the symptom and not the cause": re.compile(
        r"\b(?:tired|exhausted|fatigued?|sleepy)\b[^.!?\n]{0,80}\b(?:so|therefore"
        r"|then)\b[^.!?\n]{0,60}"
        r"\b(?:more|another|extra|plenty of|lots of) (?:\w+ )?(?:coffee|caffeine|espresso|energy "
        r"drinks?)\b"
    ),
    "one case as proof": re.compile(
        r"\b(?:my|a) (?:friend|uncle|aunt|neighbou?r|cousin|colleague)\b[^.!?\n]{0,100}"
        r"\b(?:so (?:it|you|this)|proves?|which shows)\b"
    ),
    "false cause": re.compile(
        r"\bafter\b[^.!?\n]{0,80}\bso (?:it|that|this) (?:must|caused|is (?:why|the cause))\b"
    ),
}
_BECAUSE = re.compile(r"\b(?:because|since|so that|therefore|which is why)\b", re.IGNORECASE)

Topic: TypeAlias = tuple[frozenset[str], ...]


class Stance(NamedTuple):
    """What a clause is for (+1) or against (-1), and the words of its sentence that say when or in
    which case."""

    topic: Topic
    sign: int
    quote: str
    conditions: frozenset[str]


def rules(sample: Sample, response: Response, vectors: Vectors) -> LogicalConsistencyJudgment:
    """5, less 2 for the first contradiction, 1 for each further one and 1 for each reasoning issue;
    never below 1.

    Contradictions: a clause for and a clause against the same thing ("drink more coffee", "avoid
    coffee"; "milk is safe", "milk isn't safe"), where the one against holds without condition or
    under the same words; and the pairs of _CLASHES. Questions, conditions and reports about the
    user take no stance. Reasoning issues: the patterns of _FLAWS, once each, and a reason that only
    repeats what it explains. The lexicons are English. Only the first READ_CHARS characters are
    read."""
    lines = [
        sentence for sentence in sentences(response.text[:READ_CHARS]) if not sentence.endswith("?")
    ]
    clashes = [*_find_opposed_advice(lines), *_find_known_clashes(lines)]
    text = "\n".join(normalise(sentence) for sentence in lines)
    flaws = ((name, pattern.search(text)) for name, pattern in _FLAWS.items())
    issues = [f"{name}: {flaw[0]}" for name, flaw in flaws if flaw]
    issues += [f"circular: {sentence}" for sentence in lines if _is_circular(sentence)]
    reasons = [
        sentence for sentence in lines if _BECAUSE.search(sentence) and not _is_circular(sentence)
    ]
    lost = (1 + len(clashes) if clashes else 0) + len(issues)
    named = f"{len(clashes)} contradictions and {len(issues)} reasoning issues found by the rules"
    return LogicalConsistencyJudgment(
        consistency_score=max(1, 5 - lost),
        contradictions=clashes,
        reasoning_issues=issues,
        consistent_elements=reasons[:ARGUMENTS],
        explanation=named if lost else "no contradiction found by the rules",
    )


def _find_opposed_advice(lines: list[str]) -> Iterator[Contradiction]:
    """One contradiction for each topic that has a stance for and one against."""
    first: dict[tuple[Topic, int], Stance] = {}
    clashed = set()
    for stance in (stance for sentence in lines for stance in stances(sentence)):
        other = first.get((stance.topic, -stance.sign))
        against = stance if stance.sign < 0 else other
        if (
            other
            and against
            and stance.topic not in clashed
            and (not against.conditions or stance.conditions == other.conditions)
        ):
            clashed.add(stance.topic)
            why = "the one is for what the other is against"
            yield Contradiction(statement1=other.quote, statement2=stance.quote, explanation=why)
        earlier = first.get((stance.topic, stance.sign))
        if earlier is None or (earlier.conditions and not stance.conditions):
            first[stance.topic, stance.sign] = stance


def stances(sentence: str) -> Iterator[Stance]:
    """What the clauses of a sentence are for or against. Clauses about people, and conditions, are
    for nothing."""
    conditions = frozenset(_QUALIFIED.findall(normalise(sentence)))
    for clause in _CLAUSE.split(sentence):
        spoken = words(clause)
        if not spoken or _CONDITION.search(normalise(clause)) or not _REPORTED.isdisjoint(spoken):
            continue
        if "you" in spoken[:-1] and spoken[spoken.index("you") + 1] not in _MODAL:
            continue  # neither advice nor a fact
        copula = next((position for position, word in enumerate(spoken) if word in _COPULA), None)
        topic, sign = _read_advice(spoken) if copula is None else _read_state(spoken, copula)
        if all(topic):
            yield Stance(topic, sign, clause.strip(" .!"), conditions)


def _read_advice(spoken: list[str]) -> tuple[Topic, int]:
    """The first run of for and against words, as a sign, and its object: what follows it up to a
    word of _ENDS, or else what stands before it ("sleep more")."""
    begin = next((position for position, word in enumerate(spoken) if word in _DIRECTIONS), 0)
    signs: list[int] = []
    object_: list[str] = []
    for word in spoken[begin:]:
        if word in _DIRECTIONS:
            signs.append(_DIRECTIONS[word])
        elif word in _ENDS and (object_ or word not in _PARTICLES):
            break
        elif word not in STOPWORDS and word not in _PARTICLES:
            object_.append(word)
    object_ = object_ or [word for word in spoken[:begin] if word not in STOPWORDS]
    return (frozenset(map(stem, object_)),), prod(signs)


def _read_state(spoken: list[str], copula: int) -> tuple[Topic, int]:
    """Subject and predicate of "... is ...", with the sign that negation and opposites give it."""
    subject = frozenset(stem(word) for word in spoken[:copula] if word not in STOPWORDS)
    sign, predicate = _COPULA[spoken[copula]], set()
    for word in spoken[copula + 1 :]:
        if word in ("not", "never"):
            sign = -sign
        elif word in _ENDS:
            break
        elif word not in STOPWORDS:
            root = stem(word)
            sign = -sign if root in _OPPOSITE else sign
            predicate.add(_OPPOSITE.get(root, root))
    return (subject, frozenset(predicate)), sign


def _find_known_clashes(lines: list[str]) -> Iterator[Contradiction]:
    """The pairs of advice of _CLASHES of which both stand in the response, and no excuse."""
    lowered = [normalise(sentence) for sentence in lines]
    for first, other, excuse in _CLASHES:
        left = next((position for position, line in enumerate(lowered) if first.search(line)), None)
        right = next(
            (position for position, line in enumerate(lowered) if other.search(line)), None
        )
        if (
            left is not None
            and right is not None
            and not any(excuse.search(line) for line in lowered)
        ):
            yield Contradiction(
                statement1=lines[left],
                statement2=lines[right],
                explanation="the two cannot both be followed as they stand",
            )


def _is_circular(sentence: str) -> bool:
    """Whether the words after "because" are all among those before it."""
    claim, because, reason = sentence.lower().partition(" because ")
    return bool(because) and bool(stems(reason)) and stems(reason) <= stems(claim)


def measure(
    judgment: LogicalConsistencyJudgment, sample: Sample, response: Response
) -> MetricValue:
    parts = {
        "contradictions": len(judgment.contradictions),
        "reasoning_issues": len(judgment.reasoning_issues),
    }
    return MetricValue(value=judgment.consistency_score, parts=parts)


COUNTS = {"contradictions": "Contradictions", "reasoning_issues": "Reasoning Issues"}
METRIC = JudgedMetric(
    title="LOGICAL CONSISTENCY (REASONING QUALITY)",
    value_label="Consistency",
    scale=(1, 5),
    integer_scale=True,
    judgment=LogicalConsistencyJudgment,
    prompt=prompt,
    rules=rules,
    measure=measure,
    verify=verify_quotes("contradictions", of=("statement1", "statement2")),
    on_empty=lambda sample: LogicalConsistencyJudgment(
        consistency_score=5, explanation="empty response"
    ),
    preferred_judge="openai/gpt-5.2",
    parts=tuple(COUNTS),
    aggregate=sums_and_means(COUNTS),
    layout=(
        statistics_block("Consistency", True),
        counts_block(COUNTS),
    ),
)
