"""A text as words and values, so that what means the same compares equal and a number is never its
digits in a row: 1.5 is not 15, -5 not 5, 10⁵ not 105, 120/80 no fraction.

A value is ONE token, "=" before its canonical form, and its unit the next token. Read alike:

    7.0, 7 | 1,000, 1000, 1 000, 1'000 | 1.000,50, 1000.5 | 2,5, 2.5 | .5, 0.5 | 3/4, ¾, 0.75
    1½, 1 1/2, 1.5 | 1.5e3, 1.5×10³, 1500 | 2-3, 2 to 3 | 7:30 pm, 19:30 | $5, 5 $ | O-, O negative

Ambiguous forms have one reading. A comma before three digits parts thousands (1,500 is 1500), a
lone full stop before them is decimal (1.500 is 1.5); a stroke is a fraction between small whole
numbers (denominator to 16; numerator less, or both under 20), else two numbers (120/80, 24/7) that
equal themselves alone; plain space parts thousands where no other reading is likely; a whole number
of three digits and more that begins with 0 is a code and stays as written. Dates (2024-05-01),
versions (1.2.3) and numbers of phones are one token each."""

import ast
import re
import string
import unicodedata
import warnings
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Any

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")
_SUPERSCRIPT = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺]+")
_THIN_GROUP = re.compile("(?<=\\d)[\u00a0\u202f\u2007\u2009](?=\\d{3}(?!\\d))")
_DASHES = dict.fromkeys([*range(0x2010, 0x2016), 0x2212, 0xFE58, 0xFE63, 0xFF0D], "-")
_QUOTES = {**dict.fromkeys((0x2018, 0x2019, 0x201A, 0x201B, 0x2032, 0x02BC), "'")}
_QUOTES |= dict.fromkeys((0x201C, 0x201D, 0x201E, 0x201F, 0x2033, 0xAB, 0xBB), '"')
_SEPARATORS = {0x066A: "%", 0x066B: ".", 0x066C: ",", 0x060C: ",", 0x0640: "", 0x2044: "/"}


class Forms(dict[int, str]):
    """A table for str.translate that makes a character's form when it is first wanted."""

    def __init__(self, make: Callable[[str], str], known: Mapping[int, str] | None = None) -> None:
        super().__init__(known or {})
        self._make = make

    def __missing__(self, code: int) -> str:
        self[code] = form = self._make(chr(code))
        return form


def _form(character: str) -> str:
    """What a character of NFKC becomes: nothing if it is invisible, an ASCII digit if it is one."""
    category = unicodedata.category(character)
    if category == "Cf" or "\ufe00" <= character <= "\ufe0f" or character == "\u034f":
        return ""
    return str(unicodedata.decimal(character)) if category == "Nd" else character


_FORMS = Forms(_form, _DASHES | _QUOTES | _SEPARATORS)


def fold(text: str) -> str:
    """NFKC and case folded, with straight quotes and dashes, digits of any script as ASCII, without
    invisible characters; a power is 10^5 and a fraction's character 1/2."""
    if text.isascii():
        return text.lower()
    text = _THIN_GROUP.sub("", text)
    text = _SUPERSCRIPT.sub(lambda match: f"^{match[0].translate(_SUPERSCRIPTS)}", text)
    parts = (
        f" {sign}" if sign in "¼½¾" or "⅐" <= sign <= "⅞" else "°" if sign == "º" else sign
        for sign in text
    )
    text = unicodedata.normalize("NFKC", "".join(parts)).casefold().translate(_FORMS)
    return unicodedata.normalize("NFKC", text)


def as_float(number: str) -> float:
    """The value of a number as NUMBER finds it in a folded text."""
    return float(_signed(number[:1], _canonical(number.lstrip("+-"))))


_END = r"(?!\d)"
_SPACED = r"[1-9]\d?(?: \d{3}){1,8}|[1-9]\d\d(?: \d{3}){0,8} 000"
_PLAIN = (
    rf"(?:[1-9]\d{{0,2}}(?:,\d{{3}})+(?:\.\d+)?{_END}(?!,\d)"  # 1,000.5
    rf"|[1-9]\d?(?:,\d\d)+,\d{{3}}(?:\.\d+)?{_END}"  # 1,00,000
    rf"|[1-9]\d{{0,2}}(?:\.\d{{3}})+,\d+{_END}|[1-9]\d{{0,2}}(?:\.\d{{3}}){{2,}}(?!\.?\d)"
    rf"|[1-9]\d{{0,2}}(?:'\d{{3}})+(?:\.\d+)?{_END}|[1-9]\d{{0,2}}(?: 000)+{_END}"
    rf"|(?<!\d,)(?:0,\d+|\d+,(?:\d\d?|\d{{4,}}))(?![\d]|[,.]\d)"  # 2,5
    r"|\d+(?:\.\d+)?|\.\d+)"
)
_SIGN = r"(?<![a-z\d)\]%])[-+](?=[$€£¥₩₹]? ?\.?\d)"
NUMBER = rf"(?:{_SIGN})?{_PLAIN}"
_FRACTION = r"(?: ?/ ?)"
_UNSPACED = "\u0e00-\u0eff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
_LETTER = rf"(?:[^\W\d_{_UNSPACED}]|[^\x00-\x7f\s{_UNSPACED}])"
_TOKEN = re.compile(
    rf"(?P<clock>(?<![\d:.,])(?P<hour>1[0-2]|0?[1-9])(?:[:.](?P<minute>[0-5]\d))? ?"
    rf"(?P<half>[ap])(?:m\b|\.m\.)(?!\w))"
    r"|(?P<chain>\d+(?:-\d+){2,}|\d+(?:/\d+){2,}|\d+(?: ?: ?\d+)+"
    r"|(?![1-9]\d{0,2}(?:\.\d{3}){2,}(?:,\d+)?(?![.\d]))\d+(?:\.\d+){2,})"
    rf"|(?P<value>(?P<sign>{_SIGN})?(?P<money>[$€£¥₩₹] ?)?"
    rf"(?:(?P<mixed>\d+) (?P<top>\d{{1,2}}){_FRACTION}(?P<bottom>\d{{1,2}})(?![\d/.,]\d|\d)"
    rf"|(?P<spaced>(?<!\d )(?:{_SPACED})(?:[.,]\d+)?(?! ?\d))"
    rf"|(?P<first>{_PLAIN})"
    rf"(?:\^(?P<power>[-+]?\d{{1,3}})(?!\d)"
    rf"|(?: ?[x×*·] ?10(?:\^|\*\*)|e)(?P<exponent>[-+]?\d{{1,3}})(?![\d])"
    rf"|{_FRACTION}(?P<below>{_PLAIN})"
    rf"|(?:-| - | to | bis )(?P<second>{NUMBER}))?))"
    rf"|(?P<word>[{_UNSPACED}]+|{_LETTER}(?:{_LETTER}|\d|(?<=\d)[.-](?=\d)"
    rf"|['._-](?={_LETTER}|\d))*(?:\+\+|\#)?)"
    r"|(?P<symbol>[$%€£¥₩₹]|[<>]=?(?= ?[-+.]?\d))"
)
_JOINED = re.compile(r"(?<!\d)['._-]|['._-](?!\d)")
# Per unit the spellings that a number may have behind it
_UNITS = {
    "hour": "h hr hrs hour hours",
    "minute": "min mins minute minutes",
    "second": "sec secs second seconds",
    "day": "day days",
    "night": "night nights",
    "week": "wk wks week weeks",
    "month": "month months",
    "year": "yr yrs year years",
    "mg": "mg milligram milligrams",
    "mcg": "mcg µg μg ug microgram micrograms",
    "g": "g gram grams gramme grammes",
    "kg": "kg kgs kilo kilos kilogram kilograms",
    "lb": "lb lbs pound pounds",
    "ml": "ml millilitre millilitres milliliter milliliters",
    "l": "l litre litres liter liters",
    "km": "km kms kilometre kilometres kilometer kilometers",
    "mile": "mile miles",
    "m": "m metre metres meter meters",
    "cm": "cm centimetre centimetres centimeter centimeters",
    "mmhg": "mmhg",
    "mmol": "mmol mmol/l mmol/mol",
    "mg/dl": "mg/dl",
    "bpm": "bpm beats",
    "kcal": "kcal kcals calorie calories",
    "percent": "% percent pct prozent",
    "$": "dollar dollars",
    "€": "eur euro euros",
    "£": "gbp",
    "tb": "tb terabyte terabytes",
    "gb": "gb gigabyte gigabytes",
    "mb": "mb megabyte megabytes",
    "unit": "iu unit units",
    "step": "step steps",
    "cup": "cup cups",
    "glass": "glass glasses",
    "time": "time times",
    "celsius": "°c celsius",
    "fahrenheit": "°f fahrenheit",
    "degree": "° degree degrees deg",
}
UNIT_OF = {word: unit for unit, words in _UNITS.items() for word in words.split()}
_ARTICLES = frozenset(("a", "an", "the"))
_PLAIN_TEXT = str.maketrans({mark: None if mark in "'._-" else " " for mark in string.punctuation})
_NEEDS_LOOK = re.compile(r"[\d%$#^<>+]|--|\.\.|['._-]{2}|-(?!\w)|o-[np]|ab-[np]", re.IGNORECASE)
_AREA = re.compile(r"\b([cdkm]?m|ft)\^([23])\b")
_DOUBLED = re.compile(r"--|\.\.\.")
_MINUS = re.compile(r"\bminus (?=\d)")
# Blood groups as they are spoken; marks and charges (B-, A+, Ca2+), but "B- Paris" is an option
_GROUP = re.compile(r"(?<![\w-])(ab|o)(?:([+-])(?![\w+-])|-(?=positive\b|negative\b))")
_MARK = re.compile(r"(?<![\w-])([a-z]{1,2}\d?)(\+(?![\w+-])|-(?=[\s)`*\"']*(?:$|[.,;:!?])))")
_SIGN_NAMES = {"+": " positive", "-": " negative", None: " "}
_MOST_DIGITS = 40  # of a number that is calculated with
_MOST_POWER = 40


@lru_cache(1024)
def tokens(text: str) -> tuple[str, ...]:
    """The words and values of a text in order, folded, without punctuation and the articles before
    a word; hyphens and apostrophes within a word join its parts (B-12 is B12)."""
    if text.isascii() and not _NEEDS_LOOK.search(text):
        return _drop_articles(text.lower().translate(_PLAIN_TEXT).split())
    folded = _AREA.sub(r"\1\2", fold(text if text.isascii() else text.translate(_PARTED)))
    folded = _GROUP.sub(lambda match: match[1] + _SIGN_NAMES[match[2]], folded)
    folded = _MARK.sub(lambda match: match[1] + ("plus" if match[2] == "+" else "minus"), folded)
    folded = " ".join(_MINUS.sub("-", _DOUBLED.sub(" ", folded)).replace("per cent", "%").split())
    out: list[str] = []
    for match in _TOKEN.finditer(folded):
        if match["word"]:
            word = _JOINED.sub("", match["word"])
            after_value = bool(out) and out[-1].startswith("=")
            out.append(UNIT_OF.get(word, word) if after_value else word)
        elif match["symbol"]:
            out.append(UNIT_OF.get(match["symbol"], match["symbol"]))
        else:
            out += _read(match, folded)
    return _drop_articles(out)


def _parted(character: str) -> str:
    """Punctuation that is not ASCII as a space, a symbol as a word of its own."""
    category, plain = unicodedata.category(character), unicodedata.normalize("NFKC", character)
    if character.isascii() or _FORMS[ord(character)] != character or character in "°º‰·×⁄":
        return character
    if category[0] == "P":
        return plain if plain.isascii() and len(plain) == 1 else " "
    return f" {character} " if category in ("So", "Sm") and plain == character else character


_PARTED = Forms(_parted, {ord(mark): " - " for mark in "—―⸺"} | {ord(mark): "" for mark in "®™©"})


def _drop_articles(words: list[str]) -> tuple[str, ...]:
    if _ARTICLES.isdisjoint(words):
        return tuple(words)
    return tuple(
        word
        for word, after in pairwise([*words, ""])
        if not (after and word in _ARTICLES) or (word == "a" and len(after) == 1)  # A, C
    )


def _read(match: re.Match[str], text: str) -> list[str]:
    """The tokens of a clock time, a chain of numbers, or a value with its currency."""
    if match["clock"]:
        hour = int(match["hour"]) % 12 + 12 * (match["half"] == "p")
        return [f"={hour}:{match['minute'] or '00'}"]
    if chain := match["chain"]:
        parts = re.split(r"([-/.:])", chain.replace(" ", ""))
        if ":" in chain:
            return [f"={_canonical(parts[0])}{''.join(parts[1:])}"]
        return [
            "=" + "".join(part.lstrip("0") or "0" if part.isdigit() else part for part in parts)
        ]
    sign = "-" if match["sign"] == "-" else ""
    money = [UNIT_OF.get(match["money"].strip(), match["money"].strip())] if match["money"] else []
    return [*(f"={value}" for value in _values(match, text, sign)), *money]


def _values(match: re.Match[str], text: str, sign: str) -> list[str]:
    """The canonical forms of a value: one, but for numbers that only look like one."""
    if match["mixed"]:
        part = _fraction(match["top"], match["bottom"])
        if part is not None and part < 1 and len(match["mixed"]) <= _MOST_DIGITS:
            return [_signed(sign, _format(int(match["mixed"]) + part))]
        first, pair = match["mixed"], f"{_canonical(match['top'])}/{_canonical(match['bottom'])}"
        return [_signed(sign, _canonical(first)), pair]
    if match["spaced"]:
        groups = re.split(r"[ .,]", match["spaced"])
        alone = match[0] == text
        if alone or len(groups) > 2 or groups[1].startswith("0"):
            return [_signed(sign, _canonical(match["spaced"].replace(" ", "").replace(",", ".")))]
        whole, _, rest = match["spaced"].partition(" ")
        return [_signed(sign, _canonical(whole)), _canonical(rest)]
    first = match["first"]
    around = text[max(0, match.start() - 1) : match.start()] + text[match.end() : match.end() + 1]
    if "," in first and around in ("[]", "()"):  # a list
        return [_canonical(part) for part in first.split(",")]
    number = _canonical(first)
    if match["power"] or match["exponent"]:
        return [_signed(sign, _raised(number, match["power"], match["exponent"]))]
    if below := match["below"]:
        part = _fraction(first, below)
        plain = f"{number}/{_canonical(below)}" if part is None else _format(part)
        return [_signed(sign, plain)]
    if second := match["second"]:
        return [f"{_signed(sign, number)}-{_signed(second, _canonical(second.lstrip('+-')))}"]
    return [_signed(sign, number)]


def _signed(sign: str, number: str) -> str:
    return f"-{number}" if sign.startswith("-") and number != "0" else number


def _canonical(number: str) -> str:
    """A number as _PLAIN has it, without parted thousands and zeros that say nothing."""
    comma, stop = number.rfind(","), number.rfind(".")
    number = number.replace("'", "").replace(" ", "")
    if comma > stop >= 0:  # 1.000,50
        number = number.replace(".", "").replace(",", ".")
    elif comma >= 0 and re.fullmatch(r"[1-9]\d{0,2}(?:,\d{2,3})*,\d{3}(?:\.\d+)?", number):
        number = number.replace(",", "")
    elif comma >= 0:
        number = number.replace(",", ".")
    elif number.count(".") > 1:
        number = number.replace(".", "")
    whole, _, part = number.partition(".")
    if not part and len(whole) > 2 and whole.startswith("0") and whole.strip("0"):
        return whole  # a code
    whole, part = whole.lstrip("0") or "0", part.rstrip("0")
    return f"{whole}.{part}" if part else whole


def _fraction(top: str, bottom: str) -> Fraction | None:
    """The value of what looks like a fraction, None for a ratio of two numbers."""
    if not (top.isdigit() and bottom.isdigit() and len(top) < 3 and len(bottom) < 3):
        return None
    above, below = int(top), int(bottom)
    is_small = 1 < below <= 16 and above != below and above < 20
    return Fraction(above, below) if is_small else None


def _raised(number: str, power: str | None, exponent: str | None) -> str:
    """A power or a number in scientific notation by its value; as written if that is too long."""
    raised = int(power or exponent or 0)
    if abs(raised) > _MOST_POWER or len(number) > _MOST_DIGITS:
        return f"{number}{'^' if power else 'e'}{raised}"
    value = Fraction(number)
    if exponent:
        return _format(value * Fraction(10) ** raised)
    return "0" if not value else _format(value**raised)


def _format(value: Fraction) -> str:
    """A fraction as a decimal number if it is one, else as its terms."""
    size = value.denominator.bit_length()
    if pow(10, size, value.denominator):
        return f"{value.numerator}÷{value.denominator}"
    digits = str(value.numerator * 10**size // value.denominator).zfill(size + 1)
    return _canonical(f"{digits[:-size]}.{digits[-size:]}")


def read_literal(text: str) -> Any:
    """The value of a text as Python prints it, without a warning of its escapes. Raises
    ValueError."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.literal_eval(text.strip())
    except (SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise ValueError(str(error)) from None


# C0 controls but tab and newline, DEL, C1 controls, and lone surrogates, which no encoding can
# write.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def quoted(text: str, most: int = 48) -> str:
    """A text in quotes on one line, which "…" ends where it is longer."""
    line = escape_controls(" ".join(text.split()))
    return repr(line if len(line) <= most else f"{line[: most - 1]}…")


def escape_controls(text: str) -> str:
    """The text with each control character and lone surrogate as \\uXXXX: a terminal shows it and
    does nothing. The escape is JSON's, so JSON stays JSON."""
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
