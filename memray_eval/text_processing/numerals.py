"""Numbers as words or numerals, English and Chinese, put into digits: "twenty-one", "二十一", "1.5
million".

A text comes in as matching.normalise leaves it. A number's word that is probably an ordinary word
stays: "one" in "no one", "一" in "一起"; in a text that holds another number a lone one is a number
only by `ones`: it counts in an answer, rarely in a passage.
Not read: fractions, Roman numerals."""

import re
from collections.abc import Iterable, Sequence, Set
from decimal import Decimal
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise
from string import ascii_uppercase
from unicodedata import category, numeric

from memray_eval.text_processing.matching import (
    COMMON_UNITS,
    NUMBER_OF,
    NUMBER_WORD,
    STOPWORDS,
    TENS,
    stems,
    words,
)
from memray_eval.text_processing.values import NUMBER, as_float, fold
from memray_eval.types import MemoryValue, Sample, session_of
from memray_eval.types.samples import CHOICES

_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_SCALE, _TIMES = "|".join(_SCALES), {"hundred": 100, "dozen": 12, **_SCALES}
_TEN, _TEEN, _UNIT = ("|".join(group) for group in (TENS, [*NUMBER_OF][10:20], [*NUMBER_OF][1:10]))
_ANY, _GAP = f"{NUMBER_WORD}|{'|'.join(_TIMES)}", r"(?:\s*-\s*|\s+)"
_RUN = re.compile(
    rf"(?<![\w'])(?:{_ANY})(?:{_GAP}(?:(?:and|point(?=\s+(?:zero|{_UNIT})\b))\s+)?(?:{_ANY}))*(?![\w'])"
)
_FROM_TEN = rf"(?:(?:{_TEN})(?:{_GAP}(?:{_UNIT}))?|{_TEEN})"
_BELOW = rf"(?:{_FROM_TEN}|{_UNIT})"  # 100
_POINT = rf"(?:{_GAP}point(?:{_GAP}(?:zero|{_UNIT})\b)+)?"
_PART = re.compile(  # of a run: up to a scale, or what has none
    rf"\b(?:(?:{'|'.join([*NUMBER_OF][11:21])}){_GAP}{_FROM_TEN}\b"  # a year in two halves
    rf"|(?:{_BELOW}{_GAP})?(?:hundred(?:{_GAP}(?:and\s+)?{_BELOW}\b)?|dozen)|{_BELOW}\b|zero"
    rf"|(?={_SCALE})){_POINT}(?:{_GAP}?(?:{_SCALE}){_POINT})?"
)
_STEP = re.compile(r"[a-z]+")
_SCALED = re.compile(
    r"(?<![\d.,])(\d{1,3}(?:,\d{3}){1,8}|\d{1,30}(?:\.\d{1,30})?)"
    rf"\s*(?:([百千万萬亿億])|-?\s*({'|'.join(_TIMES)})(?!\w))"
)
_ONE = re.compile(r"(?<![\w'])one(?![\w'])")
_PRONOUN_BEFORE = re.compile(
    r"(?:^|\W)(?:no|any|every|some|each|this|that|which|the|another|other|only|last|next|first"
    r"|right|wrong|correct|best)[ -]$"
)
_PRONOUN_AFTER = re.compile(
    r"\s+(?:of|another|who|that|which|should|can|could|may|might|must|day|thing)(?!\w)"
)
_ORDINAL_WORDS = {f"{word}th": value for word, value in NUMBER_OF.items() if 0 < value < 20}
_ORDINAL_WORDS |= {"first": 1, "second": 2, "third": 3, "fifth": 5, "eighth": 8, "ninth": 9}
_ORDINAL_WORDS |= {"twelfth": 12, "hundredth": 100}
_ORDINAL_WORDS |= {f"{word[:-1]}ieth": NUMBER_OF[word] for word in TENS}
_ORDINAL = re.compile(rf"(?<!\w)(?:({'|'.join(TENS)})[- ])?({'|'.join(_ORDINAL_WORDS)})(?!\w)")
_SUFFIXED = re.compile(r"(?<![\w.])(\d+)(?:st|nd|rd|th)(?!\w)")
_PERCENT = re.compile(r"(?<=\d)\s*(?:%|percent\b|per cent\b)")
_MINUS = re.compile(r"(?:(?<!\w)(?:minus|negative)\s+|负)(?=\d)")

_ONES, _LARGE = "一二两兩三四五六七八九", "万萬亿億"  # whose values unicodedata knows
_FORMAL = str.maketrans("壹贰貳叁參肆伍陆陸柒捌玖拾佰仟", "一二二三三四五六六七八九十百千")
_FORMAL_RUN = re.compile("[壹贰貳叁參肆伍陆陸柒捌玖拾佰仟萬億零]{2,}")
_CHINESE = f"〇零{_ONES}十百千{_LARGE}"
_ONE_OF, _ZEROS = f"[{_ONES}]", "[〇零]*"
_SECTION = (
    rf"{_ZEROS}(?:(?:{_ONE_OF}千)?{_ZEROS}(?:{_ONE_OF}百)?{_ZEROS}(?:{_ONE_OF}十)?|十)"
    rf"{_ZEROS}{_ONE_OF}?"
)
_COUNT = rf"(?={_ZEROS}[{_ONES}十]){_SECTION}"
_WITH_UNITS = re.compile(rf"(?![〇零])(?:{_COUNT}[亿億])?(?:{_COUNT}[万萬])?{_SECTION}")
_NUMERAL = re.compile(
    rf"[{_CHINESE}]+(?:点(?=[〇零一二三四五六七八九]+(?![十百千万亿分刻]))[〇零一二三四五六七八九]"
    rf"+)?"
)
_PERCENTAGE = re.compile(rf"百分之(\d{{1,30}}(?:\.\d{{1,30}})?|[{_CHINESE}]+)")
_COUNTED = (
    "个位名人只条张本件次天日月年岁元块米里斤吨层楼章节页号种家座辆匹头棵朵把杯瓶碗句首篇幅部台架艘"
    "支枝根颗粒片口户间所对双套组队"
    "群排届回场遍趟倍度克升段步周代级州省市县区村字词门科课题项款笔份封集季期卷册球局轮秒时点美英欧"
)
# after 一, which stands in many other words
_COUNTED_ONCE = "个位名人只条张本件次年月日岁章页层座头匹辆棵朵"
_COUNTED_ONE = re.compile(rf"(?<![{_CHINESE}第])一(?=[{_COUNTED_ONCE}])")
_COUNTED_WORDS = ("小时", "分钟", "公里", "公斤", "世纪", "星期", "英里", "厘米")
_WEEKDAY = re.compile(r"(?:星期|礼拜|周)$")
_BREAK = "，。、；：！？,.;:!?)）」』”\"'"
_CLASSIFIER = re.compile(r"(?<=\d)[个位名只口](?=\S|$)")


def in_digits(text: str, *, ordinals: bool = False, ones: bool = False) -> str:
    """The text with its numbers in digits. "21st" is 21 then; with `ordinals` that and
    "twenty-first" are "21th" both; with `ones` "one in four" is "1 in 4"."""
    text = _FORMAL_RUN.sub(lambda match: match[0].translate(_FORMAL), text)
    text = _PERCENTAGE.sub(_replace_percentage, text)
    text = _SCALED.sub(_replace_scaled, text)
    text = _SUFFIXED.sub(r"\1th" if ordinals else r"\1", text)
    text = _ORDINAL.sub(_replace_ordinal, text) if ordinals else text
    text = _NUMERAL.sub(lambda match: _replace_numeral(match, text), text)
    text = _RUN.sub(_replace_number_words, text)
    is_alone = not any(char.isdigit() for char in text)
    text = _ONE.sub(_replace_one, text) if ones or is_alone else text
    if is_alone:  # 一 is 1 where it counts something
        text = "1" if text == "一" else _COUNTED_ONE.sub("1", text)
    return _CLASSIFIER.sub("", _MINUS.sub("-", _PERCENT.sub(" percent", text)))


def _format_number(number: Decimal) -> str:
    """Without an exponent or zeros after the fraction."""
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _replace_scaled(match: re.Match[str]) -> str:
    times = _TIMES[match[3]] if match[3] else int(numeric(match[2]))
    return _format_number(Decimal(match[1].replace(",", "")) * times)


def _replace_percentage(match: re.Match[str]) -> str:
    value = Decimal(match[1]) if match[1][0].isascii() else chinese_value(match[1])
    return match[0] if value is None else f"{_format_number(Decimal(value))} percent"


def _replace_ordinal(match: re.Match[str]) -> str:
    tens, value = NUMBER_OF.get(match[1] or "", 0), _ORDINAL_WORDS[match[2]]
    return match[0] if tens and value >= 10 else f"{tens + value}th"


def _replace_number_words(match: re.Match[str]) -> str:
    """A run of number words as the numbers that it makes, each as long as it can be: "two thousand
    and five", "nineteen eighty four", "three point one four"; "five six" are two. A lone "one" is
    for `in_digits`."""
    if match[0] == "one":
        return match[0]
    values, scale_before = list[Decimal](), 0
    for part in _PART.finditer(match[0]):
        words = [word for word in _STEP.findall(part[0]) if word != "and"]
        scale = _SCALES.get(words[-1], 1)
        if scale < scale_before and NUMBER_OF.get(words[0]):
            values[-1] += _value_of(words)
        else:
            values.append(_value_of(words))
        scale_before = scale
    return " ".join(map(_format_number, values))


def _value_of(words: list[str]) -> Decimal:
    value, scale = Decimal(0), Decimal(0)
    for word in words:
        number = NUMBER_OF.get(word, 0)
        if word == "point":
            scale = Decimal(1)
        elif word in _TIMES:
            value = (value or Decimal(1)) * _TIMES[word]
        elif scale:
            scale /= 10
            value += number * scale
        else:
            value = value * 100 + number if 11 <= value <= 20 and number >= 10 else value + number
    return value


def _replace_one(match: re.Match[str]) -> str:
    """ "1", unless the word is a pronoun where it stands."""
    text, start, end = match.string, *match.span()
    is_pronoun = _PRONOUN_BEFORE.search(text[max(0, start - 12) : start]) or _PRONOUN_AFTER.match(
        text[end : end + 12]
    )
    return match[0] if is_pronoun else "1"


def _replace_numeral(match: re.Match[str], text: str) -> str:
    """A Chinese numeral in digits, where it is one in its place."""
    numeral, after = match[0], text[match.end() : match.end() + 2]
    before = text[max(0, match.start() - 2) : match.start()]
    value = chinese_value(numeral)
    if value is None or numeral == "一" or _WEEKDAY.search(before):
        return numeral
    if before.endswith("第") and after[:1] and after[0] in _BREAK:  # "second, ..." in a list
        return numeral
    ends = not after or after[0] in _BREAK or after[0].isspace()
    if len(numeral) > 1 or ends or after[0] in _COUNTED or after in _COUNTED_WORDS:
        return _format_number(value)
    return numeral


def chinese_value(numeral: str) -> Decimal | None:
    """What a Chinese numeral stands for: 二十一, 三万五, 二〇二四, 三点五. None where it is none (千万, 二三)."""  # noqa: E501
    whole, _, fraction = numeral.replace("两", "二").partition("点")
    digits = "".join(str(int(numeric(char))) for char in fraction or whole)
    if fraction:
        left = chinese_value(whole)
        return None if left is None else left + Decimal(f"0.{digits}")
    if any(numeric(char) >= 10 for char in whole):
        return _sum_units(whole)
    is_about = len(whole) == 2 and not set(whole) & set("〇零")  # 二三: two or three
    return None if is_about else Decimal(digits)


def _sum_units(numeral: str) -> Decimal | None:
    """The value of a numeral with units (十, 百, 千, 万, 亿). None where it is none."""
    if not _WITH_UNITS.fullmatch(numeral):
        return None
    total = section = digit = unit = 0
    for before, size in pairwise([0, *(int(numeric(char)) for char in numeral)]):
        if size < 10:
            digit, unit = size, before
        elif size < 10**4:
            section, digit = section + (digit or 1) * size, 0
        else:
            total, section, digit = total + (section + digit) * size, 0, 0
    # 三万五 is 35,000
    return Decimal(total + section + digit * (unit // 10 if unit > 10 else 1))


READ_CHARS = 5_000  # of a text, to tell its language
FOREIGN_SHARE = 0.3  # of the letters, in other scripts than Latin
# Of German, French, Spanish, Portuguese and Italian, what English does not have
_FOREIGN = (
    frozenset(
        """
    der die das und ist nicht ein eine einen sie ihr ihre ihrer dein deine du mit für auf den dem zu
    im von auch wenn oder bei sind wird haben dich dir sich noch nach
    le la les et est de du des que qui une votre vos vous pour avec dans ne pas plus sur au aux ce
    el los las en un su sus tu por con para se como pero si del al esta tiene muy
    os um uma seu sua com não na nos mais você ao dos das
    il lo gli di per non più della nel sono che una tuo tua suo hai ha
""".split()
    )
    - STOPWORDS
)
_ENGLISH = STOPWORDS - frozenset("a an am as do i in me no on or so was will".split())
_NUMBER = re.compile(rf"(?<![a-z\d.,])(?:{NUMBER})")
_GROUPED = re.compile(r"(?<![\d.,])\d{1,3}(?:\.\d{3})+(?![\d.,]?\d)")  # thousands
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_ARABIC = re.compile(r"[\u0600-\u06ff]")  # whose articles and particles are a part of the word


def may_be_foreign(text: str, unique: Set[str]) -> bool:
    """Whether different words of a text may be foreign, in a tenth of the time of `is_foreign`."""
    if not _FOREIGN.isdisjoint(unique):
        return True
    is_plain = text.isascii() or len(text.encode("utf-8", "replace")) < 1.1 * len(text)
    return not is_plain or (not text.isascii() and _ENGLISH.isdisjoint(unique))


def is_unspaced(text: str) -> bool:
    """Returns True if a text is of a script whose words no spaces part, such as Chinese."""
    return len(_UNSPACED.findall(text)) > FOREIGN_SHARE * sum(map(str.isalpha, text))


@lru_cache(maxsize=1024)
def is_foreign(text: str, *, is_prose: bool = True) -> bool:
    """Returns True if a text is in another script than Latin, or has more function words of another
    language than of English. Without any, prose with other letters than a to z is foreign."""
    text = fold(text[:READ_CHARS])
    letters = [char for char in text if char.isalpha()]
    other = sum(ord(char) > 0x24F and not 0x1E00 <= ord(char) < 0x1F00 for char in letters)
    if other > FOREIGN_SHARE * len(letters):
        return True
    spoken = words(text)
    foreign = sum(word in _FOREIGN for word in spoken)
    english = sum(word in _ENGLISH for word in spoken)
    if english or not is_prose:
        return foreign >= 2 and foreign > english
    return foreign > 0 or not all(map(str.isascii, letters))


def holds_value(text: str, value: str) -> bool:
    """Returns True if a value stands in a text of any language: its words as they are written, or,
    of a figure, its numbers, however they are written. A number of one digit says too little."""
    numbers = _numbers(value)
    if numbers and len(stems(value) - COMMON_UNITS) <= 1:
        heard = _numbers(text) | {float(m[0].replace(".", "")) for m in _GROUPED.finditer(text)}
        return numbers <= heard and any(one >= 10 or one % 1 for one in numbers)
    wanted = " ".join(fold(value).split())
    least = 3 if _ARABIC.match(wanted) else 2
    if len(wanted) < least:
        return False
    line = " ".join(fold(text).split())
    return any(
        not _joins(line[at - 1 : at], wanted[0])
        and not _joins(line[at + len(wanted) :][:1], wanted[-1])
        for at in (found.start() for found in re.finditer(f"(?={re.escape(wanted)})", line))
    )


def _numbers(text: str) -> frozenset[float]:
    return frozenset(as_float(match[0]) for match in _NUMBER.finditer(fold(text)))


def _joins(outside: str, inside: str) -> bool:
    """Returns True if two neighbouring characters are parts of one word."""
    both = (outside, inside)
    if any(map(_UNSPACED.match, both)) or all(map(_ARABIC.match, both)):
        return False
    return all(char and category(char)[0] in "LMN" for char in both)


_SEED = "memory 1"  # another one would be another order, and other prompts


def choices_of(sample: Sample) -> tuple[str, ...]:
    """The choices of a question that stood in a column of their own."""
    listed = sample.metadata.get(CHOICES)
    is_list = isinstance(listed, list) and all(isinstance(choice, str) for choice in listed)
    return tuple(listed) if isinstance(listed, list) and is_list else ()


def choice_lines(sample: Sample) -> str:
    """An empty line, then a line for each choice of the question; "" where it has none."""
    lettered = zip(ascii_uppercase, choices_of(sample), strict=False)
    listed = "\n".join(f"{letter}) {text}" for letter, text in lettered)
    return f"\n\n{listed}" if listed else ""


def value_text(value: MemoryValue) -> str:
    """A memory value as a reader would write it: a list with commas, a truth value as yes or no."""
    if isinstance(value, str):
        return value
    if isinstance(value, tuple):
        return ", ".join(value_text(item) for item in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def draw_order(sample: Sample, keys: Iterable[str]) -> Sequence[str]:
    """Keys in an order drawn from the sample's id by a seed: the same for every candidate, judge
    and executor, and in all turns of a session, whatever order a file or a stage left them in. So a
    place gives away neither a key's role nor where the sample has been."""
    return _drawn(session_of(sample), tuple(keys))


@lru_cache(2)  # a sample's candidates, and a record's judges, follow each other
def _drawn(session: str, names: tuple[str, ...]) -> Sequence[str]:
    def digest(name: str) -> bytes:
        data = f"{_SEED}\0{session}\0{name}".encode("utf-8", "surrogatepass")
        return blake2b(data, digest_size=8).digest()

    return sorted(names, key=digest)


def memory_entries(sample: Sample) -> list[tuple[str, str]]:
    """The user's memory as keys and the texts of values, in the order of `draw_order`."""
    memory = sample.memory
    return [(key, value_text(memory[key])) for key in draw_order(sample, memory)]


def memory_lines(sample: Sample) -> str:
    """The user's memory, a line per key, in the order of `memory_entries`."""
    return "\n".join(f"{key}: {text}" for key, text in memory_entries(sample)) or "(empty)"


def history_lines(sample: Sample) -> str:
    """The earlier conversation, a line per turn."""
    return "\n".join(f"{turn.role}: {turn.content}" for turn in sample.history) or "(none)"
