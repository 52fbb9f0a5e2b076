"""Claims of a response about its user, and what they rest on: memory, query or history. No model,
deterministic."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from memray_eval.metrics._shared.contradictions import (
    contradictions,
    contradicts,
    is_state_supported,
)
from memray_eval.metrics._shared.memory import cosine, statement, uses_value
from memray_eval.metrics._shared.statements import mask_values
from memray_eval.ports import Vectors
from memray_eval.text_processing.matching import normalise, quantities, sentences, stems
from memray_eval.types import Response, Sample

Source = Literal["memory", "query", "history", "none"]

MIN_WORDS = 3  # a name by which the user is greeted is no claim
SUPPORT_SHARE = 0.5  # of a claim's content words, found in one kind of source
SUPPORT_COSINE = 0.55  # of a claim with one statement of a source

_CONDITIONAL = re.compile(
    r"^\W*(?:and |or )?(?:if|when|whenever|unless|whether|in case|once|until|before|after|the "
    r"moment|while|how|what|why)\b"
    r"|\b(?:if|when|whenever|unless|whether|how|what|ways?) (?:to |much |often |long )*you\b"
)
_CLAUSE = re.compile(r"\s*(?:[,;:()]|\s-\s|\b(?:so|but|which means|therefore|and then)\b)\s*")
_SUBJECT = (
    r"(?:^|\b(?:and|that|since|because|as|given|although|though|while|know|see|remember"
    r"|noticed?|understand|hear|like|now) )\W*"
)
# "you have", "you're", "you mentioned", but not the advice of "you can", "you should", "you have
# to".
_ASSERTS = re.compile(
    _SUBJECT + r"(?:you(?:'re|'ve)\b|you (?:also |already |often |usually |currently |still |only "
    r"|recently |both )?(?:are|have|had|were"
    r"|was|mentioned|said|told|noted|reported|shared|described|take|took|work|live|suffer|felt"
    r"|get|sleep|drink|eat|smoke|weigh|use"
    r"|used|tend|struggle|started|stopped|prefer|like|love|enjoy|avoid|wake|woke|go|don't|didn't"
    r"|exercise|walk|run|play|manage|lost"
    r"|gained|finish|fell|slipped|keep|came|cook|share|speak|train|swim|teach|look after|care "
    r"for|do not)\b"
    r"(?! to (?:be sure|make|consult|talk|see|start|consider|ensure|check|keep|do|take|get)\b))"
)
_YOUR_IS = re.compile(
    r"\byour (?:[\w'%/.-]+ "
    r"){1,6}?(?:is|are|was|were|has|have|had|shows?|suggests?|indicates?|at|of|remains?|means?"
    r"|makes?)\b"
    r"|\b(?:given|with|considering|because of|due to|based on|since|alongside|on top of) your\b"
    r"|^as (?:a|an) (?!health|medical|ai\b|result|rule|general|first|start|reminder|caring)[\w "
    r"-]{3,40}$"
)
_COURTESY = re.compile(
    r"\byou(?:'re| are) (?:not alone|right|welcome|doing|here|asking|wise|very "
    r"welcome|absolutely|probably|likely|so |worth)"
    r"|\b(?:help|let|make|keep|get) you\b|\bi(?:'m| am)? (?:hope|wish|glad)\b|\byour "
    r"(?:question|message|time|health is)\b"
)
_ADVICE = re.compile(
    r"\byou (?:can|could|should|may|might|must|need|want|will|would|shall|ought)\b|\byou'(?:ll|d)\b"
    r"|\b(?:make sure|be sure|ensure|try|aim|consider|remember|avoid|talk|ask|let)\b.*\byou"
    r"|\b(?:talk|speak|ask|check|listen|see|tell|discuss|show|work) (?:to |with |it with )?your\b"
)
_FILLER = frozenset(
    stems(
        "mention said told note report share describe feel currently recently given considering "
        "based due"
    )
)


@dataclass(frozen=True)
class Claim:
    """A clause that says something of the user, and the source that it rests on (`none`:
    hallucinated)."""

    text: str
    source: Source


def clauses(text: str) -> list[str]:
    """The clauses of a text that are not part of a question, each once, in order."""
    statements = (sentence for sentence in sentences(text) if not sentence.rstrip().endswith("?"))
    split = (
        clause.strip(" .!\"'") for sentence in statements for clause in _CLAUSE.split(sentence)
    )
    return list(dict.fromkeys(clause for clause in split if clause))


def is_assertion(clause: str) -> bool:
    """Whether a clause says outright how it is with the user: no condition, no advice, no
    courtesy."""
    lowered = normalise(clause)
    if condition := _CONDITIONAL.search(lowered):
        # "your knee hurts when you climb" still says that it hurts
        lowered = lowered[: condition.start()]
    if _ADVICE.search(lowered) or _COURTESY.search(lowered):
        return False
    says = _ASSERTS.search(lowered) or _YOUR_IS.search(lowered)
    return bool(says) and bool(stems(clause) - _FILLER or quantities(clause))


def source_statements(sample: Sample) -> dict[Source, list[str]]:
    """What a claim about the user may rest on, in order of precedence."""
    return {
        "memory": [statement(key, value) for key, value in sample.memory.items()],
        "query": sentences(sample.query),
        "history": [line for turn in sample.history for line in sentences(turn.content)],
    }


def claim_texts(sample: Sample, response: Response) -> list[str]:
    """The texts whose vectors `check_claims` compares."""
    sources = source_statements(sample)
    return [*clauses(response.text), *(line for lines in sources.values() for line in lines)]


def check_claims(sample: Sample, response: Response, vectors: Vectors) -> list[Claim]:
    """The clauses with content specific to this user, each with the first source that supports it.

    A clause is a claim when it asserts something of the user ("you have ...", "your ... is ..."),
    or when it uses a memory (see memory.py), be it in passing ("move the 6 am espresso"). A source
    supports a claim that uses a memory, one of whose statements it paraphrases (SUPPORT_COSINE), or
    half of whose content words (SUPPORT_SHARE) it holds; and an assertion with a number that stands
    in no source rests on none. A sentence that contradicts the memory, or the first one of a
    response that agrees with a false premise of the query, rests on none, whatever else supports
    it: see metrics/_shared/contradictions.py."""
    sources = source_statements(sample)
    pooled = {
        source: (stems(" ".join(lines)), quantities(" . ".join(lines)))
        for source, lines in sources.items()
    }
    everything = [quantity for _, heard in pooled.values() for quantity in heard]
    denied = _denied_clauses(sample, response)
    referring = _referring_clauses(sample, response, vectors)
    claims = []
    for clause in clauses(response.text):
        if clause in denied:
            claims.append(Claim(denied[clause], "none"))
            continue
        asserts = is_assertion(clause)
        uses = len(clause.split()) >= MIN_WORDS and (
            any(
                uses_value(*entry, clause, vectors) or is_state_supported(*entry, clause)
                for entry in sample.memory.items()
            )
            or clause in referring
        )
        if not asserts and not uses:
            continue
        content, numbers = stems(clause) - _FILLER, quantities(clause)
        invented = asserts and not all(
            any(number.matches(other) for other in everything) for number in numbers
        )
        source: Source = "none"
        if uses and not invented:
            source = "memory"
        elif not invented:
            source = next(
                (
                    name
                    for name, lines in sources.items()
                    # A source that knows SUPPORT_SHARE of the words said, or, where none is said,
                    # the numbers
                    if (
                        len(content & pooled[name][0]) / len(content) >= SUPPORT_SHARE
                        if content
                        else numbers
                    )
                    or any(cosine(vectors, clause, line) >= SUPPORT_COSINE for line in lines)
                ),
                "none",
            )
        claims.append(Claim(clause, source))
    return list(dict.fromkeys(claims))


def _denied_clauses(sample: Sample, response: Response) -> dict[str, str]:
    """The clauses that contradict the memory; where only their sentence as a whole does, each with
    that sentence."""
    denied: dict[str, str] = {}
    for key, sentence in contradictions(sample, response):
        parts = clauses(sentence)
        own = [part for part in parts if contradicts(key, sample.memory[key], part)]
        denied |= {part: part for part in own} or dict.fromkeys(parts, sentence)
    return denied


def _referring_clauses(sample: Sample, response: Response, vectors: Vectors) -> set[str]:
    """The clauses that name a memory key whose value stands elsewhere in their sentence: "it's a
    penicillin, and you're allergic to those"."""
    referring = set()
    for sentence in sentences(response.text):
        for key, value in sample.memory.items():
            parts = [part for part in clauses(sentence) if mask_values(key, part) is not None]
            if parts and uses_value(key, value, sentence, vectors):
                referring.update(parts)
    return referring
