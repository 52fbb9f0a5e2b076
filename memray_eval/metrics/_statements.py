"""What a sentence states of the user under a memory key: it mentions the key, or claims a value or
a state for it.

A key is only mentioned, and nothing is claimed, where the sentence asks for it ("what was your last
potassium?"), denies knowing it ("I have no ferritin on record"), advises to measure, change or
discuss it ("have your vitamin D checked"), makes it a condition ("if your pressure is above 140"),
or speaks of everybody ("a normal potassium is 3.5 to 5.0"). English only."""

import re
from functools import lru_cache

from memray_eval.text_processing.matching import NUMBER_WORD, WORD, normalise, stem, stem_each

READ_CHARS = 600  # of a sentence

# Words of keys that say how a fact is kept, or with the others where it is from, not what about
KEY_FILLER = stem_each(
    """
    avg average mean usual typical current known daily weekly monthly recent last level status value
    type kind history preferred preference favourite favorite main primary intake frequency amount
    count score reading note result results test number provider latest date scan plan
    """
)
_QUALIFIERS = KEY_FILLER | stem_each(
    "serum plasma total rate day year hours percent unit kg lb cm km mg dl mmol ml bpm watts"
)
# By words of a key (as stems), what it is also called.
_ALSO = (
    (
        {"blood", "pressur"},
        r"bp|(?:blood )?pressure|readings?(?= (?:[\w'-]+ ){0,5}\d{2,3} ?(?:/|over) ?\d{2,3})",
    ),
    ({"bp"}, r"bp|blood pressure"),
    ({"heart", "rate"}, r"(?:resting )?(?:pulse|heart ?rate|hr)"),
    ({"hba1c"}, r"(?:hb)?a1c"),
    ({"glucos"}, r"(?:blood )?(?:glucose|sugars?)"),
    ({"ferritin"}, r"ferritin|iron stores"),
    ({"egfr"}, r"egfr|kidney function|kidneys"),
    ({"kidney"}, r"egfr|kidney function|kidneys"),
    ({"ldl"}, r"ldl|cholesterol"),
    ({"creatin", "kinas"}, r"ck"),
    ({"haemoglobin"}, r"ha?emoglobin|hb"),
    ({"oxygen"}, r"spo2|sats"),
    ({"temperatur"}, r"temperature|fever"),
    ({"smoker"}, r"smok(?:ers?|es?|ed|ing)"),
    ({"smoke"}, r"smok(?:ers?|es?|ed|ing)"),
    ({"alcohol"}, r"alcohol|drinking|units"),
    ({"pregnanc"}, r"pregnan(?:t|cy)|trimester"),
    ({"pregnant"}, r"pregnan(?:t|cy)|trimester"),
    ({"weight"}, r"weigh(?:s|t|ed)?(?!-| ?(?:in|loss)\b)"),
    ({"goal"}, r"goals?|aims?|targets?"),
    ({"medic"}, r"medications?|medicines?|meds"),
    ({"work", "hour"}, r"shifts?|nights"),
    ({"insur"}, r"insur(?:er|ance)"),
    ({"occup"}, r"job|occupation"),
    ({"allergi"}, r"allerg(?:y|ies|ic)"),
    ({"diabet"}, r"diabet(?:es|ic)"),
)
_KEPT_OUT = stem_each("resting fasting own home clinic body function saturation")
_KIN = r"(?:mother|father|mum|mom|dad|sister|brother|grandmother|grandfather|aunt|uncle|parents?)"
_IS_KIN = re.compile(_KIN)
_FAMILY = stem("family")

NUMBER = (
    rf"(?:about |around |roughly |nearly |over |under )?(?:an? )?(?:\d[\d.,/]*(?! ?(?:to"
    rf"|-) ?\d)\b%?|(?:the )?(?:low|mid|high|upper)"
    rf"[- ](?:\w+ties|teens|\d+s)|(?!one\b)(?:{NUMBER_WORD})(?:[- ](?:{NUMBER_WORD}))?\b)"
)
_BE = (
    r"(?:(?:is|are|was|were)(?:n't)?|remains?|remained|stays?|stayed|runs?|ran|sits?"
    r"|sat|came|looks?|looked|seems?|seemed|read|measured|hit"
    r"|reached|dropped|rose|fell|went|hovers?|averages?|averaged|stands?|stood|suggests?|shows?"
    r"|(?:has|have) (?:\w+ )?(?:been|come|gone|dropped|risen|improved|stayed))"
)
_NO_STATE = (
    r"(?:not |n't )?(?:important|worth|essential|key|needed|useful|helpful|relevant"
    r"|missing|unknown|something|what|one of|affected"
    r"|checked|measured|tested|recorded|known|on (?:record|file)|listed|among|part"
    r"|a (?:good|great|key|useful)|the (?:first|next|best)"
    r"|how|why|whether|where|that i|in my|here|mentioned|given|shared|to be|by)"
)
_STATE = (
    r"(?:low|high|raised|elevated|normal|borderline|healthy|mild|moderate|severe"
    r"|chronic|poor|good|excellent|stable|irregular|fast"
    r"|slow|short|long|rising|falling|steady|uncontrolled|existing|advanced)"
)
_ASIDE = (
    r"(?:for|too|then|especially|which|who|if|and|or|but|so|please|though|however|as|in|with"
    r"|when|check|ideally|say)"
)
_CLAIMS = re.compile(
    "|".join(
        (
            rf"\byour (?:[\w'-]+ ){{0,2}}@(?:'s)?(?:,? [\w'-]+){{0,3}}? {_BE}\b(?! (?:[\w'-]+ "
            rf"){{0,1}}?{_NO_STATE}\b)",
            rf"@(?:'s)?(?:,? (?!below\b|above\b|under\b|over\b|than\b|if\b|between\b"
            rf"|for\b|every\b)[\w'-]+){{0,4}}?,? {NUMBER}",
            rf"{NUMBER} ?(?:[\w'%/-]+ )?@",
            r"\b(?:given|with|because of|due to|considering|despite|since|based on"
            r"|alongside|thanks to) your (?:[\w'-]+ ){0,2}@",
            r"\byou(?:'re| are|'ve| have| had| were| take| use)(?: (?!to\b|not "
            r"sure|your\b)[\w'-]+){0,3}? @",
            r"\b(?:as|for|like|being) an? (?:[\w'-]+ ){0,2}@",
            r"\byou (?:(?:already|also|still|don't|do not|no longer|never|only|currently) )*@",
            rf"\byour {_STATE} (?:[\w'-]+ )?@",
            r"\byou(?:'ve| have)? (?:told|mentioned|said|noted|reported|listed)\b(?! "
            r"(?:nothing|no\b))[^?;]*@",
            rf"\byour (?:[\w'-]+ )?@, (?!{_ASIDE}\b)[\w'. -]{{2,30}},",
        )
    )
)
_PERSONAL = re.compile(
    r"\b(?:you|your|yours|you're|you've)\b|@ (?:was|were|came|measured|dropped|rose|fell)\b"
    r"|\bwith (?:an?|the) @ (?:of|at|around)\b"
)
_GENERAL = re.compile(
    r"\b(?:normal(?:ly)? (?:range|@|is|for)|typical(?:ly)?|usual(?:ly)?|average adult"
    r"|most (?:people|adults|labs|guidelines)|labs"
    r"|adults|guidelines?|in general|generally|anyone|people|ideal(?:ly)?|target|recommended|aim)\b"
)
_DENIED = re.compile(
    r"\b(?:i|we|notes?|records?|file|memory|nothing|chats?)\b(?: [\w'-]+){0,3}? (?:don't"
    r"|do not|doesn't|does not|can't|cannot|couldn't"
    r"|haven't|have no|has no|have never|hasn't|never|no idea|not "
    r"(?:know|have|see|sure|aware|given))\b"
    r"|\bi(?:'ve| have)? (?:no|not|never)\b|\b(?:no|nor|neither|any) (?:[\w'-]+ ){0,2}@"
    r"|\bnot (?:a|an|your|the) (?:[\w'-]+ ){0,2}@"
    r"|\byou(?:'ve| have)? (?:never|not|haven't|didn't|did not) (?:\w+ )?(?:told|tell"
    r"|said|say|mention|mentioned|share|shared|give|given)"
    r"|\byou haven't\b|\bwithout (?:a|an|any|your|knowing|that|the)\b[^,]*@"
    r"|@ (?:[\w'-]+ ){0,2}(?:doesn't|does not|isn't|is not|never|not)"
    r" (?:\w+ )?(?:appear|on|in|known|recorded|listed|mentioned|something|here|among"
    r"|part|stored)\b|\bunknown\b|\bmissing\b|\ba guess\b"
)
_CONDITION = re.compile(
    r"\b(?:if|whether|unless|in case|depends? on|depending on|once|how|what|which|until)\b[^@]*@"
)
_MODAL = r"(?:should|could|might|may|can|would|will|must|needs?)"
_ADVISED = re.compile(
    r"\b(?:check|measure|test|track|monitor|log|record|watch|count|ask|discuss|talk"
    r"|tell|share|mention|book|bring|get|keep|aim|lower"
    r"|raise|reduce|improve|control|manage|recheck|to know|knowing|review"
    r"|protect|support|affects?|push(?:es)?|raises|lowers"
    rf"|have your|having your|a note of|note down|write down|{_MODAL})\b(?: (?!(?:that"
    rf"|because|since|as|given|with|so|but)\b)[\w'-]+){{0,5}} @"
    r"|@ (?:[\w'-]+ )?(?:checked|tested|measured|taken|done|looked at|reviewed|tests?(?! "
    r"results?)|checks?)\b"
    rf"|@ (?:(?!you\b|i\b)[\w'-]+ )?{_MODAL}\b"
)
_PREMISE = re.compile(r"(?:since|because|as|given|now that|with) [^?]*,")
_CLAUSE = re.compile(r"[;:]\s+|,?\s+-\s+|,\s+(?:so|but|and|which|though|because)\s+|\s+but\s+")


@lru_cache(maxsize=4096)
def telling_stems(key: str) -> frozenset[str]:
    """The words that say what a key is about, as stems."""
    own = stem_each(key)
    telling = {word for word in own - _QUALIFIERS if len(word) > 1 or len(own) < 2}
    return frozenset(telling) or own


@lru_cache(maxsize=4096)
def _names(key: str) -> re.Pattern[str] | None:
    own, telling = stem_each(key), telling_stems(key)
    names = [
        pattern for needed, pattern in _ALSO if needed <= own and telling - needed <= _KEPT_OUT
    ]
    return re.compile(rf"\b(?:{'|'.join(names)})\b") if names else None


@lru_cache(maxsize=4096)
def _split_into_words(sentence: str) -> tuple[str, tuple[re.Match[str], ...], tuple[str, ...]]:
    """A sentence normalised, its words, and their stems."""
    text = normalise(sentence[:READ_CHARS]).replace("@", "at")
    tokens = tuple(WORD.finditer(text))
    return text, tokens, tuple(stem(token[0].removesuffix("'s")) for token in tokens)


@lru_cache(maxsize=4096)
def mask_values(key: str, sentence: str) -> str | None:
    """The sentence, normalised, with "@" where it mentions the key; None where it does not."""
    text, tokens, words = _split_into_words(sentence)
    names = _names(key)
    if names and (masked := names.subn("@", text))[1]:
        return masked[0].replace("non-@", "not @").replace("@'s been", "@ has been")
    wanted = telling_stems(key)
    if _FAMILY in wanted:  # "your father had ..."
        kin = (_IS_KIN.fullmatch(token[0].removesuffix("'s")) for token in tokens)
        words = tuple(_FAMILY if is_kin else word for is_kin, word in zip(kin, words, strict=True))
    if 2 * len(wanted.intersection(words)) <= len(wanted):
        return None
    for start, word in enumerate(words):
        near = [
            position
            for position in range(start, min(len(words), start + len(wanted) + 2))
            if words[position] in wanted
        ]
        if word in wanted and 2 * len({words[position] for position in near}) > len(wanted):
            return f"{text[: tokens[start].start()]}@{text[tokens[near[-1]].end() :]}"
    return None


def find_claims(key: str, sentence: str) -> list[str]:
    """The clauses that claim a value or a state of the user under the key, which is "@" there."""
    text = mask_values(key, sentence)
    if text is None or not _PERSONAL.search(text):
        return []
    *clauses, last = _CLAUSE.split(text)
    if not last.rstrip().endswith("?"):
        clauses.append(last)
    elif premise := _PREMISE.match(last):
        clauses.append(premise[0])  # "since your ldl is 160, should ...?" claims before it asks
    return [
        clause
        for clause in clauses
        if _CLAIMS.search(clause)
        and not (
            _GENERAL.search(clause)
            or _DENIED.search(clause)
            or _CONDITION.search(clause)
            or _ADVISED.search(clause)
        )
    ]
