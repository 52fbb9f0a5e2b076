"""What a judge is told of a type of question about conversations, beside the strict or the lenient
rubric: what its reference is, and where strict and lenient part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from memray_eval.types import Sample

Severity = Literal["strict", "lenient"]


class TypeCriteria(NamedTuple):
    """What both rubrics say of a type, and what either adds."""

    both: str
    strict: str
    lenient: str


_UNANSWERABLE = TypeCriteria(
    "The conversations do not tell what the question asks; where the reference gives a reason, it "
    "is this one. CORRECT if the response says that it is not known or not told, or that the "
    "question takes something for granted that is not so.",
    "An answer beside that, even a guess that is marked as one, is INCORRECT.",
    "What else is known on the subject may stand beside it, as long as it is not given as the "
    "answer.",
)
_FACT = TypeCriteria(
    "The reference is a fact that a speaker told.",
    "Each thing that the reference names must be there, and no other in its place.",
    "The fact in other words, or with a detail less, is CORRECT.",
)
_SEVERAL = TypeCriteria(
    "The answer is put together from several places of the conversations; the reference gives its "
    "result, often a list or a count.",
    "All items of a list must be there, none may be added, and a count must be exact.",
    "Most items of a list suffice, and one more does no harm; a count must still be right.",
)
_TIME = TypeCriteria(
    "The answer is a point in time, a span, or an order. A date in another form, or worked out "
    "from the date of a conversation ('the day before 8 May'), is the same one.",
    "It must be as exact as the reference, to the day where that names one.",
    "A count of days, weeks or months that is off by one is CORRECT, and so is a date without its "
    "year, or a month where the reference names a day in it.",
)
_OPEN = TypeCriteria(
    "The answer is a judgment that draws on what was said and on common knowledge.",
    "It must come to the reference's conclusion and give no reason that contradicts it.",
    "The reference's conclusion, however hedged or reasoned, is CORRECT.",
)
_UPDATE = TypeCriteria(
    "What was said first was changed later; the reference is the newest state.",
    "The response must give the newest state as the answer; an older one beside it must be marked "
    "as past.",
    "An older state may stand beside it, as long as the newest is there.",
)
_PREFERENCE = TypeCriteria(
    "The reference is no answer but a description of a response that suits this user.",
    "The response must use every preference or fact of the user that the reference names, and go "
    "against none.",
    "It suffices that the response uses one of them rightly and goes against none.",
)
_CONTRADICTION = TypeCriteria(
    "The user said two things that contradict each other; a right response points that out.",
    "It must name both statements and ask or leave open which one holds.",
    "It suffices that the response sees the contradiction.",
)
_ORDER = TypeCriteria(
    "The answer is a list of events in their order.",
    "All events must be there, in exactly this order.",
    "One event may be missing or out of its place.",
)
_SUMMARY = TypeCriteria(
    "The reference is a summary.",
    "All of its main points must be there, and nothing that contradicts it.",
    "About half of its main points suffice.",
)
_INSTRUCTION = TypeCriteria(
    "The user once said how they want to be answered; the reference says what a response that "
    "keeps to it looks like.",
    "It must keep to it throughout.",
    "It must keep to it for the most part.",
)
_CHOICE = TypeCriteria(
    "The question has options, of which one is right.",
    "The response must settle on the right option and on no other.",
    "The right option's text without its letter is CORRECT too.",
)
CRITERIA: Mapping[tuple[str, str], TypeCriteria] = {
    ("locomo", "multi_hop"): _SEVERAL,
    ("locomo", "temporal"): _TIME,
    ("locomo", "open_domain"): _OPEN,
    ("locomo", "single_hop"): _FACT,
    ("locomo", "adversarial"): _UNANSWERABLE,
    ("longmemeval", "single-session-user"): _FACT,
    ("longmemeval", "single-session-assistant"): _FACT,
    ("longmemeval", "single-session-preference"): _PREFERENCE,
    ("longmemeval", "multi-session"): _SEVERAL,
    ("longmemeval", "temporal-reasoning"): _TIME,
    ("longmemeval", "knowledge-update"): _UPDATE,
    ("beam", "abstention"): _UNANSWERABLE,
    ("beam", "contradiction_resolution"): _CONTRADICTION,
    ("beam", "event_ordering"): _ORDER,
    ("beam", "information_extraction"): _FACT,
    ("beam", "instruction_following"): _INSTRUCTION,
    ("beam", "knowledge_update"): _UPDATE,
    ("beam", "multi_session_reasoning"): _SEVERAL,
    ("beam", "preference_following"): _PREFERENCE,
    ("beam", "summarization"): _SUMMARY,
    ("beam", "temporal_reasoning"): _TIME,
}


def criteria_of(sample: Sample, severity: Severity) -> str:
    """What a judge is told of the sample's type; "" for samples of other suites."""
    criteria = CRITERIA.get((sample.suite, sample.task))
    if sample.metadata.get("unanswerable") is True:
        criteria = _UNANSWERABLE
    elif sample.suite == "personamem":
        criteria = _CHOICE
    if criteria is None:
        return ""
    return f"This type of question\n- {criteria.both}\n- {getattr(criteria, severity)}"
