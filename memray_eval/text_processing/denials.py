"""Denials: if a text takes back a word of its own ("definitely not Tokyo", "Tokyo is not the
capital", "不是东京"), by what is next to the word: rather missed than invented."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from memray_eval.text_processing.matching import STOPWORDS, in_a_row, normalise, stem
from memray_eval.text_processing.values import tokens
from memray_eval.types.samples import EXPECTS

_LOOKS_BACK, _LOOKS_ON = 80, 100  # characters

_FILLERS = (
    r"(?:be|been|being|is|was|were|are|it|it's|its|that|this|he|she|they|there|a|an|the|definitely|certainly|actually|really|"
    r"exactly|necessarily|even|in|at|on|by|from|of|to|for|as|think|believe|say|saying|mean|call|called|named|known|located|found|"
    r"have|has|had|answer|correct|right|confused|mistaken|with|going)"
)
_DENIED = re.compile(
    r"(?:(?:(?<!\bif )(?<!\bwhy )(?<!\bor )\bnot|(?<!\bwhy "
    r")\b\w+n't|\bnever|\bneither|\bnor|\bcannot|\bunlike|\bexcluding|"
    r"\bno longer|\banything but|\bfar from|\brather than|\binstead of|\bas opposed to|"
    r"(?<!\bnone )(?<!\bno )(?<!\bone )(?<!\bnobody )(?<!\bnothing )\bother "
    r"than|\b(?:false|wrong|untrue|incorrect) that|"
    rf"\bruled out)(?:\s+{_FILLERS})*"
    r"|(?:(?<![是要])不(?:可能|会|应该)?是|并非|绝非|决非|而非|不在|不叫)(?:在|叫|由|说|指|位于|来自)?)"
    r"[\s\"'“「『《(（*_]*$"
)
_NONE_BUT = re.compile(
    r"(?:\b(?:no|none|nothing|nobody|not|cannot)\b|n't\b)[^.;,]*\bother than[\s\"'(*_]*$"
)
_ADVERB = (
    r"(?:\s+(?:definitely|certainly|actually|really|clearly|simply|absolutely|of course|also))?"
)
_CLOSES = r"[\s\"'”」』》)）*_]*"
_DENIED_AFTER = re.compile(
    rf"{_CLOSES}(?:(?:is|was|are|were|does|do|did|has|had|have|can|could|would|will){_ADVERB}"
    r"(?:\s+not|n't)\b|(?:肯定|绝对|当然|显然|也|并)?(?:不是|并非))(?P<rest>[^.;,!?，。；！？]*)"
)
_WRONG_AFTER = re.compile(
    rf"{_CLOSES}(?:(?:is|was|are|were|would "
    rf"be){_ADVERB}\s+(?:wrong|incorrect|false|untrue|ruled out)\b"
    r"|\?\s*(?:no|nope|wrong|definitely not|certainly not)\b"
    r"|,?\s*(?:but|and)\s+(?:that|this|it)(?:'s| is| was)\s+(?:wrong|incorrect|false|not "
    r"(?:right|correct|true))\b|(?:肯定|绝对|显然)?(?:是错|不对|不正确|错误|[？?]不))"
)
_THE_ANSWER = re.compile(
    r"\s*(?:a|an|the)?\s*(?:correct|right|true|answer|case)\b|\s*it\s*$|.*(?:答案|正确|对的)"
)
_NOT_ALL = re.compile(r"\s*(?:only|just|merely|simply|until|but)\b|只|仅")
_NEGATIVE = re.compile(r"\b(?:not|never|no|none|neither|except|without)\b|n't|[不没非除]")
_WORD = re.compile(r"[^\W\d_]+")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")


def is_denied(text: str, start: int, end: int, question: str) -> bool:
    """Returns True if what stands there in a text is denied by what is next to it. "X is not ..."
    denies X only where it goes on with a word of the question, in lower case ("Tokyo is not the
    capital"), and the question is not itself a negative one."""
    before = text[max(0, start - _LOOKS_BACK) : start].lower()
    after = text[end : end + _LOOKS_ON].lower()
    if _NONE_BUT.search(before):  # "no city other than Tokyo" says that it is Tokyo
        return False
    if _DENIED.search(before) or _WRONG_AFTER.match(after):
        return True
    match = _DENIED_AFTER.match(after)
    if match is None or _NOT_ALL.match(match["rest"]):
        return False
    if _THE_ANSWER.match(match["rest"]):
        return True
    return not _NEGATIVE.search(question) and bool(_content(match["rest"]) & _content(question))


def _content(text: str) -> set[str]:
    """What a text is about: the stems of its words, and of Chinese text its pairs of characters."""
    found = [word for word in _WORD.findall(text) if word not in STOPWORDS]
    runs = [word for word in found if _UNSPACED.search(word)]
    pairs = {run[start : start + 2] for run in runs for start in range(len(run) - 1)}
    return pairs | {stem(word) for word in found if word not in runs}


_WHAT = r"(?:information|details?|mention|record|indication|evidence|data|specifics?)"
_UNKNOWN = re.compile(
    rf"\bno (?:\w+ ){{0,2}}{_WHAT}\b"
    r"|(?:\bnot|\b(?:is|are|was|were)n't|\b(?:has|have|had)n't been) (?:\w+ ){0,2}"
    r"(?:mentioned|specified|stated|provided|(?<!a )given(?! (?:an? |up\b|to (?!me|us)))|discussed|"
    r"available(?! (?:until|before|after|next|on (?:\w+day|the weekend))\b)|"
    r"known(?! (?:for(?! (?:sure|certain))|as|to(?! (?:me|us)))\b)|"
    r"recorded|indicated|said|clear|disclosed|enough information)\b"
    r"|\b(?:don't|do not|doesn't|does not|didn't|did not|never|haven't|have not|hasn't|has not) "
    r"(?:\w+ ){0,3}(?:know|mention|specify|state|provide|say|tell|have (?:any |enough |this )?"
    r"(?:information|record|details?)|contain|include|share|shared|mentioned|told|discuss|recall)"
    r"|\b(?:haven't|have not|hasn't|has not|never) (?:\w+ )?said(?! (?!anything|wh|how|if\b|that))"
    r"|\b(?:chats?|conversations?|messages|history|context|text|records?|logs?|transcripts?|notes|"
    r"memory) (?:do|does|did)(?:n't| not) (?:\w+ ){0,2}(?:indicate|reveal|show|cover|address)\b"
    r"|\bthere(?:'s| is| was) nothing (?:in (?:\w+ ){1,4})?(?:about|regarding|concerning)\b"
    r"|\bi have no idea\b|^no idea\b"
    r"|\b(?:can't|cannot|can not|unable to|impossible to|couldn't|could not) (?:\w+ ){0,2}"
    r"(?:answer|determine|find|tell|say|know|be determined|be answered|infer|recall|provide)\b"
    r"|\b(?:unknown|unanswerable|unspecified|insufficient information|unclear from|lacks? "
    r"(?:the |any |enough )?information)\b"
    r"|\bn/a\b|\bnone mentioned\b|\bi'm not sure\b|\bi am not sure\b"
)


def says_unknown(text: str) -> bool:
    """Returns True if a text says that it does not know, or that what was asked is not told."""
    return _UNKNOWN.search(normalise(text[:4000])) is not None


LISTS = ("not", "outdated", "ask", "or_ask")
_POSSESSIVE = re.compile(r"['’]s\b")


def read_expectations(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """What is expected of a response. Raises ValueError that names the field at fault."""
    expects = metadata.get(EXPECTS)
    if not isinstance(expects, Mapping) or not expects:
        raise ValueError(f"metadata.{EXPECTS}: a mapping of say, {', '.join(LISTS)}")
    if unknown := sorted(map(str, expects.keys() - {"say", *LISTS})):
        raise ValueError(
            f"metadata.{EXPECTS}: no {unknown[0]!r}; there are: say, {', '.join(LISTS)}"
        )
    groups = {"say": expects.get("say", []), **{name: [expects.get(name, [])] for name in LISTS}}
    for name, lists in groups.items():
        if not isinstance(lists, list) or not all(map(_is_texts, lists)):
            wanted = "a list of lists of texts" if name == "say" else "a list of texts"
            raise ValueError(f"metadata.{EXPECTS}.{name}: {wanted}, none of them empty")
    _check_agreement(expects)
    return expects


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) and tokens(text) for text in value)


def _check_agreement(expects: Mapping[str, Any]) -> None:
    """Raises ValueError if an old value is a new one, or what must be said must not be said."""
    old = {tokens(text): text for text in expects.get("outdated", ())}
    said = [text for group in expects.get("say", ()) for text in group]
    if equal := next((text for text in said if tokens(text) in old), None):
        raise ValueError(
            f"metadata.{EXPECTS}.outdated: {old[tokens(equal)]!r} is the old value and in say the "
            "new one; give what differs, or leave it out of one of them"
        )
    for name, texts in (("say", said), *((name, expects.get(name, ())) for name in LISTS[2:])):
        if both := next((text for text in texts if says(text, expects.get("not", ()))), None):
            raise ValueError(
                f"metadata.{EXPECTS}.not: forbids {both!r}, which is in {name}; "
                "leave it out of one of them"
            )


def says(text: str, sought: Iterable[str]) -> bool:
    """True if the text holds one of the phrases, as words and values, without case."""
    plain = _POSSESSIVE.sub("", text)
    readings = tokens(plain), tokens(plain.replace("-", " "))
    return any(in_a_row(phrase, words) for words in readings for phrase in map(tokens, sought))
