"""Whether a reply says that it does not know: by its words, in English."""

from __future__ import annotations

import re

from memray_eval.text_processing.matching import normalise

_WHAT = r"(?:information|details?|mention|record|indication|evidence|data|specifics?)"
_UNKNOWN = re.compile(
    rf"\bno (?:\w+ ){{0,2}}{_WHAT}\b"
    r"|\bnot (?:\w+ ){0,2}(?:mentioned|specified|stated|provided|given|discussed|available|known|"
    r"recorded|indicated|said|clear|disclosed|enough information)\b"
    r"|\b(?:don't|do not|doesn't|does not|didn't|did not|never|haven't|have not|hasn't|has not) "
    r"(?:\w+ ){0,3}(?:know|mention|specify|state|provide|say|tell|have (?:any |enough |this )?"
    r"(?:information|record|details?)|contain|include|share|shared|mentioned|told|discuss|recall)"
    r"|\b(?:can't|cannot|can not|unable to|impossible to|couldn't|could not) (?:\w+ ){0,2}"
    r"(?:answer|determine|find|tell|say|know|be determined|be answered|infer|recall|provide)\b"
    r"|\b(?:unknown|unanswerable|unspecified|insufficient information|unclear from|lacks? "
    r"(?:the |any |enough )?information)\b"
    r"|\bn/a\b|\bnone mentioned\b|\bi'm not sure\b|\bi am not sure\b"
)


def says_unknown(text: str) -> bool:
    """Returns True if a text says that it does not know, or that what was asked is not told."""
    return _UNKNOWN.search(normalise(text[:4000])) is not None
