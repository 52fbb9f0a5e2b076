"""Which of the offered options a response chooses, and whether an answer is the expected one.

An option's letter is never the letter of another word, and "A" before a word is the article, "I"
the pronoun, unless the sentence says that it is the answer. It is read in \\boxed{}, <answer> and
emphasis, in full width, and where one of eleven languages states an answer (أ is A). Several
letters are no answer."""

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import cache, lru_cache
from itertools import chain, islice
from string import ascii_uppercase as _LETTERS
from typing import Any, NamedTuple

from memray_eval.benchmarks.instruction.counts import chinese_words, is_chinese
from memray_eval.benchmarks.longbench.rules import token_f1
from memray_eval.text_processing.denials import is_denied
from memray_eval.text_processing.equivalents import BOXED, concluded, one_form, side_of
from memray_eval.text_processing.values import NUMBER, UNIT_OF, Forms, fold, read_literal, tokens

_WORD_LETTERS = "AI"  # letters that are words, too
_OPTION_MARK = re.compile(
    r"(?:(?<![A-Za-z0-9])[(\[]?(?=\w[)\].:、](?!\w\.))|(?m:^)(?=[A-Z](?: [-–] |\t)))"
    r"([A-Za-z])(?:[)\].:、]| [-–] |\t)"
)
_OPTION_END = re.compile(r"[?;\n]|\.(?:\s|$)")
_AROUND_OPTION = " \n\t,;.*"
_ALTERNATIVES = re.compile(r"\b([A-Za-z][\w-]*),? or (?!not\b|so\b|both\b)([A-Za-z][\w-]*)\s*\?")

_SAYS = (
    r"(?:is|was|are|would|should|seems|because|since|as|fits|works|gives|leaves|keeps|avoids"
    r"|provides|allows|offers)"
)
_BEST = (
    r"(?:correct|right|best|safest|answer|only|better|optimal|most|clearest|safer|fastest"
    r"|shortest|way|one)\b"
)
_REJECTED = (
    r"(?:(?:is|would be) "
    r"(?:too|not|bad|wrong|incorrect|blocked|impossible|unsafe)"
    r"|isn't|fails|cannot|can't|does(?: not|n't))\b"
)
_CHOOSES = (
    r"(?<!not )(?<!n't )(?<!never )\b(?:choose|chose|pick|select(?:ed)?|prefer|recommend"
    r"|go(?:ing)? (?:with|for)|take|vote(?: for)?)"
    r"(?:\s+(?:the\s+)?(?:option|answer|choice))?"
)
_SURELY = (
    r"(?:\s+(?:most |very |almost )?(?:likely|probably|certainly|definitely|clearly|indeed"
    r"|obviously|therefore|thus|hence))?"
)
_IS_ANSWER = (
    r"\b(?:answers?|ans\b\.?|choice|solution|pick|selected option|(?:correct|right|best|safest) "
    r"(?:option|letter|route|path|plan|one|statement)|correct(?=:))"
    r"(?:\s+to (?:this|the|your) question)?(?:\s+(?:is|(?:would|must|should|has to"
    rf"|would have to){_SURELY} be){_SURELY})?"
)
# For languages in which a lone A is not a word, and for those in which it is
_ANSWERS_ABROAD = (
    r"(?:antwoord|svar(?:et)?|odpowiedź|cevap|उत्तर|คำตอบ|ตอบ|đáp án|jawaban(?:nya)?|απάντηση|תשובה)"
    r"(?:\s*(?:คือ|is|är|er|to|adalah|đúng là|là|είναι|היא)(?!\w))?"
    r"|(?:antwort|lösung)(?:\s+(?:ist|lautet|wäre))?(?:\s+(?:die\s+)?(?:antwort|option))?"
    r"|(?:wähle|nehme|sondern|(?:richtig|korrekt) ist)(?: (?:die )?(?:antwort|option))?"
    r"|ответ|(?<![不非别])(?:答案|回答|选项|選項|选择|選擇|选|選|而是)(?:应该|应|應該)?(?:是|为|為|选|選)?"
    r"|答え(?:は)?|正(?:解|答)(?:は)?|(?:정답|답|선택)(?:은|는|이)?|(?:الإجابة|الاجابة|الجواب|الخيار)"
    r"(?:\s+(?:الصحيحة|الصحيح))?(?:\s+(?:هي|هو))?(?:\s+الخيار)?"
)
_ANSWERS_ROMANCE = (
    r"(?:je choisis|elijo|escolho|scelgo|(?:r[ée]ponse|respuesta|resposta|risposta)"
    r"(?:\s+(?:correcte?a?|corretta|correta|exacte))?|(?:opción|opção|alternativa) corre(?:c?ta))"
    r"(?:\s+(?:est|es|é|è|sería|serait))?(?:\s+(?:la|le|a))?(?:\s*l?['’]?\s?(?:option|opción|opção|opzione))?"
)
_RIGHT_ABROAD = (
    r"(?:wählen|nehmen)\b|(?:ist|wäre|est|es|é|è)\s+(?:(?:die|der|das|la|le|a|o|il)\s+)?(?:richtig|korrekt|bonne|beste"
    r"|corre[ct]ta?e?|juste|exacte?)|是?(?:正确|正確|对的|對的|最佳)|(?:가|이|번이)\s*(?:정답|맞)"
)
_WRONG_ABROAD = (
    r"\s*(?:ist (?:falsch|nicht)|kann nicht|est (?:fau|incor)|n['’]est|no es|es (?:fals|incor)"
    r"|不|错|錯|是错|是錯|(?:는|은|가|이)\s*(?:틀|아니|오답))"
)
_IS = (
    r"(?:\b(?:(?:it|that)(?:['’]?s| is)|(?:must|should|has to|would(?: have to)?) be"
    r"|(?:would|['’](?:d|ll)|to) say|(?:th(?:at|is)|and \w) leaves(?: us with)?|looks like"
    r"|the best is|no,|(?<!not )only|(?:conclusion|(?:most )?likely|definitely|clearly|probably"
    r"|certainly|surely|ultimately|consequently|accordingly|as a result|in conclusion"
    r"|therefore|thus|hence|so|daher|deshalb|somit|folglich|donc|quindi|entonces)[,:]?"
    r"|c['’]est(?: la)?|es la|(?:es|das) ist)|\A\s*also)"
)
_JOINING = "and|or|und|oder|et|ou|y|o|ed"
_JOINING_UNSPACED = "和|或|与|與|跟|및|또는|와|과|و|أو"
_BESIDE_LETTERS = frozenset(
    f"{_JOINING}|{_JOINING_UNSPACED}|both|beide|option|options|answer|answers".split("|")
)
_COMMAND = re.compile(
    r"\\(?:text|textbf|textrm|mathrm|mathbf|mathsf)\s*\{|\\[()\[\]]|\$|</?(?:b|i|u|em|strong|code)>"
)
_ARABIC = re.compile(r"(?<![\w\u064b-\u0652])[أابجده]ـ?(?![\w\u064b-\u0652])")
_LATIN = str.maketrans("أابجده", "AABCDE")
# Scripts without spaces between words, or, as Korean, with particles at them; not Chinese
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\uac00-\ud7af]")
_DENIES = re.compile(
    r" (?:not(?! only )|never|no(?! doubt )|neither|except|cannot|nicht|kein\w*|pas|non|não"
    r"|(?:is|are|was|were|do|does|did|has|have|had|ca|could|would|should|must|need|wo|ai)nt) "
    r"|[不没沒非]|ไม่|아니|않|でな|ではな|じゃな"
)
_CLAUSE_END = re.compile(
    r"\n|[.;](?=\s)|[。；]|,? (?:because|since|as|and not|rather than|instead of) |, (?=not )"
)
_SIGNS = frozenset("+-\u2212!|&[(*/<>=^→⇒")
# Signs of code and of order, where the same space or none is on both sides
_OPERATOR = re.compile(
    r"(?<=[A-Za-z0-9_)\]])( ?)(?:[-+*/%|&^:]=|={2,3}|\*\*|//|&&|\|\||<<|>>|[<>])"
    r"\1(?=[A-Za-z0-9_(\[\"'$\\√π∞-])"
    r"|(?<=\b[a-z] )\+(?= (?:[a-z]\b|\d))|(?<=\b[a-z])\+(?=[a-z]\b|\d)"
    r"|(?<=\b[a-z] )-(?= \d)|(?<=\w )-(?=-?[A-Za-z])|(?<!\S)!(?=[A-Za-z(])"
)
_OPERATOR_NAMES = dict(
    zip(
        "+-*/%|&^:=<>!",
        "plus minus times by mod or and to is eq less more not".split(),
        strict=True,
    )
)
_CHARGE = re.compile(r"\^\{?(\d?)([+-])\}?(?![\w{])")  # SO4^2-
_ARROW = re.compile(r"(?:--?|=)>(?!=)|[→⇒⟶⟹]")
_PROSE = re.compile(r"(?<![^\W\d_])(?<!\\)[^\W\d_]{3,}")
_VARIABLE = r"(?<![^\W\d_])[bnru-z]\b"  # letters that are no units
_UNARY = re.compile(rf"((?:\A|[=(\[{{,$]) ?)(-)(?=\\[dt]?(?:frac|sqrt|pi|infty)|[√π∞]|{_VARIABLE})")
_BINARY = re.compile(
    rf"((?<![^\W\d_])[bnru-z]|[)}}](?! ?-\d{{3}})|\^\d|\d(?= ?[-+] ?(?:\d*{_VARIABLE}|[(\\√])))"
    rf" ?([-+]) ?(?=\d|[({{\\√]|\d*{_VARIABLE})"
)
_HALF_OPEN = re.compile(r"(?=\[[^\]]*\)|\([^)]*\])([(\[])([^()\[\],]*),([^()\[\],]*)[)\]]")
_NUMBERS = re.compile(NUMBER)
_STATED = re.compile(rf"\banswer(?: is)?[\s:*$]{{1,4}}({NUMBER})")
_PAIR = re.compile(r"[\s$]*([(\[])[^()\[\],]*,[^()\[\],]*([)\]])[\s$.]*")
_FENCE_MARKS = re.compile(r"\A(?:```|~~~)[A-Za-z0-9]*\s|(?:```|~~~)\Z")
_MOST_PRINTED = 4_000  # characters of data as Python prints it
_CODE_AMONG_WORDS = re.compile(r"[^`]{0,200}`([^`\n]+)`[^`]{0,40}")
_REJECTS = re.compile(
    r"(?i:\b(?:wrong|incorrect|false|instead|rather|but|fails?|avoid|without|isn't|doubt)\b)|\?"
)
_DOUBTS = re.compile(  # in a clause before "it is"
    r"(?i:n['’]t|\b(?:not|never|doubt|if|whether|unless)\b)[^.,;:!?\n]*\Z"
)
_EQUATION = re.compile(r"[\s$]*[a-z]\w{0,2}\s*=([^=<>]+)")
# Words beside a number that is the answer all the same, and words of a question that are not
_BESIDE_NUMBER = frozenset(
    "there are is it were was he she they has have in total altogether all".split()
)
_COMPARES = frozenset(
    "than not least most over under no never up to half about or and between from without".split()
)
_OR = re.compile(r"(?i:\b(?:or|not|n?either|but)\b)|或|不|\?")
_SAY_SEVERAL = re.compile(
    r" (?:are (?:both |all |the )*(?:correct|right|true|answers?|options?|choices?)"
    r"|because|since|as)\b"
)
_BESIDE_SEVERAL = re.compile(
    r"[\W_]|(?i:\b(?:and|both|und|et|y|the|is|are|correct|right|answers?|options?|choices?)\b)"
    r"|[和与跟选項项是为：]|答案|正确|正确|정답은?"
)
_MOST_TRIED = 100  # brackets at which JSON may begin


class ChosenOption(NamedTuple):
    """An option by its letter or word, and where the response first states it as the answer."""

    option: str
    start: int


def offered_options(prompt: str) -> dict[str, str]:
    """The options of a prompt by their letters ("A) center B) right", "(a) ... (b) ...", "A. ... B.
    ..."), or the two words of "left or right?", each under itself. Empty if it offers none."""
    prompt = _with_latin_letters(prompt)
    marks: list[re.Match[str]] = []
    for match in _OPTION_MARK.finditer(prompt):
        if len(marks) < len(_LETTERS) and match[1].upper() == _LETTERS[len(marks)]:
            marks.append(match)
    if len(marks) > 1:
        last = _OPTION_END.search(prompt, marks[-1].end())
        ends = [*(mark.start() for mark in marks[1:]), last.start() if last else len(prompt)]
        texts = (
            prompt[mark.end() : end].strip(_AROUND_OPTION).removesuffix(" or")
            for mark, end in zip(marks, ends, strict=True)
        )
        return {
            mark[1].upper(): text.rstrip(_AROUND_OPTION)
            for mark, text in zip(marks, texts, strict=True)
        }
    pair = _ALTERNATIVES.search(prompt)
    return {word.lower(): word for word in pair.groups()} if pair else {}


def find_choice(response: str, options: Mapping[str, str]) -> ChosenOption | None:
    """The option that a response settles on: the last that it says is its answer ("the answer is
    B", "I choose B", \\boxed{B}), else the one that it opens with, else the only one that it marks
    ("(B)", "**B**", "option B"), else the one whose words it is. None if it settles on none or
    several. The letter may be one that was not offered (up to H)."""
    if not options:
        return None
    if not set(options) <= set(_LETTERS):
        return _find_word(response, options)
    text = _COMMAND.sub(lambda match: " " * len(match[0]), _with_latin_letters(response))
    letters = "".join(sorted({*options, *"ABCDEFGH"}))
    if lone := _lone_letters(text, letters):
        return lone[0] if len({choice.option for choice in lone}) == 1 else None
    stated, opening, marked, more = _readings(letters)
    statements = [
        (match.end(), ChosenOption(_letter(match), match.start()))
        for match in stated.finditer(text)
    ]
    for match in BOXED.finditer(text):
        inner = (match[1] or match[2] or "").strip()
        if choice := find_choice(inner, options):
            statements.append((match.end(), ChosenOption(choice.option, match.start())))
        elif _lone_letters(inner, letters):  # several
            return None
    opens = opening.match(text)
    first = ChosenOption(_letter(opens), 0) if opens else None
    if not statements:
        named = [
            ChosenOption(_letter(match), match.start())
            for match in marked.finditer(text)
            if not is_denied(text, *match.span(), "")
        ]
        if opens and more.match(text, opens.end()):
            return None
        return _unstated(text, options, first, named)
    end, last = max(statements)
    if more.match(text, end):
        return None
    if first and first.option == last.option:
        return first
    return next(choice for _, choice in sorted(statements) if choice.option == last.option)


def _find_word(response: str, options: Mapping[str, str]) -> ChosenOption | None:
    """Which of two words a response states last as its answer, else names first; none where it
    denies them, or names both as one ("left or right", "neither Maria nor Peter")."""
    either = "|".join(re.escape(word) for word in options)
    ends = r"(?![\w-])"
    joins = r"(?:[^\w,;.!?]+and[^\w,;.!?]+|\W+(?:n?or|vs|versus)\W+|/)(?:(?:to|on|in|the|an?) )*"
    as_both = rf"(?<![\w-])({either}){joins}(?!\1\b)(?:{either}){ends}"
    denied = rf"(?:n't|\b(?:not|never)) (?!only|just|merely)\w+ (?:the )?(?:{either}){ends}"
    text = response.replace("’", "'")
    text = re.sub(f"(?i){as_both}|{denied}", lambda match: " " * len(match[0]), text)
    word = rf"(?i:(?!no (?:doubt|one|matter|wonder)\b)({either}){ends})"
    named, stated = (
        [
            ChosenOption(match[1].lower(), match.start(1))
            for match in re.finditer(before + word, text)
            if not is_denied(text, *match.span(1), "")
        ]
        for before in (r"(?<![\w-])", rf"(?i:{_IS_ANSWER}|{_CHOOSES})[\s:*\"'“]{{1,4}}(?:the )?")
    )
    side = _side_within(response, options)
    last = [ChosenOption(side, 0)] if side else stated[-1:] + named
    return next((choice for choice in named + last if choice.option == last[0].option), None)


def _unstated(
    text: str, options: Mapping[str, str], first: ChosenOption | None, named: list[ChosenOption]
) -> ChosenOption | None:
    """The option of a response that states none as its answer, by what it opens with and marks."""
    if first:
        if _repeats_options(text, options):
            return None
        line_starts = {
            choice.option
            for choice in named
            if "\n" in text[max(choice.start - 2, 0) : choice.start]
        }
        if not line_starts - {first.option}:  # else it goes through options line by line
            return first
    if named:
        return named[0] if len({choice.option for choice in named}) == 1 else None
    return _choose_by_words(text, options)


def _with_latin_letters(text: str) -> str:
    """The text, as long as before, with full width letters and lone Arabic ones as Latin."""
    if text.isascii():
        return text
    return _ARABIC.sub(lambda match: match[0].translate(_LATIN), text.translate(_TWINS))


def _twin(character: str) -> str:
    """The ASCII character that one of full width, in a circle or of a mathematical alphabet is."""
    plain = unicodedata.normalize("NFKC", character)
    return plain if len(plain) == 1 and plain.isascii() else character


_TWINS = Forms(_twin)


def _lone_letters(text: str, letters: str) -> list[ChosenOption] | None:
    """The letters of a text that says nothing else ("(B)", "A, B", "A or C"), else None."""
    if len(text) > 100:
        return None
    parts = [
        part for part in re.finditer(r"[^\W_]+", text) if part[0].lower() not in _BESIDE_LETTERS
    ]
    if not parts or any(len(part[0]) > 1 or part[0].upper() not in letters for part in parts):
        return None
    if re.search(r"[+\-−]", text):  # a grade
        return None
    return [ChosenOption(part[0].upper(), part.start()) for part in parts]


def _repeats_options(text: str, options: Mapping[str, str]) -> bool:
    """Returns True if a text goes through several of the options with their words."""
    lowered = text.lower()
    patterns = (
        rf"\b{letter.lower()}[).:、]\s*{re.escape(words.lower())}"
        for letter, words in options.items()
        if words
    )
    return sum(re.search(pattern, lowered) is not None for pattern in patterns) > 1


def _choose_by_words(text: str, options: Mapping[str, str]) -> ChosenOption | None:
    """The option whose own words a response is, or states as its answer."""
    says = rf"(?i:{_IS_ANSWER}|{_ANSWERS_ABROAD}|{_ANSWERS_ROMANCE}|\bit(?:['’]s| is| would be))"
    ends = [match.end() for match in re.finditer(says, text) if match.end()]
    for start in (0, *reversed(ends)):
        clause = _CLAUSE_END.split(text[start : start + 300].lstrip(' \n:*_"“'))[0]
        option = _option_of_words(text if not start else clause, options)
        if option and not _DOUBTS.search(text[max(0, start - 60) : start]):
            return ChosenOption(option, start)
    return None


def _option_of_words(text: str, options: Mapping[str, str]) -> str:
    normal, form = _normalise_answer(text), _normalise_answer(one_form(text))
    named = ((option, words) for option, words in options.items() if words)
    return next(
        (
            option
            for option, words in named
            if _normalise_answer(words) == normal or _normalise_answer(one_form(words)) == form
        ),
        "",
    )


def _option_within(response: str, options: Mapping[str, str]) -> str:
    """The option that is the response's yes or no, else the only one whose words a response holds
    and does not deny beside them; "" if it holds several."""
    if side := _side_within(response, options):
        return side
    text, held = f" {_cut_form(response)} ", []
    named = ((_cut_form(words), option) for option, words in options.items())
    for words, option in sorted(named, key=lambda each: -len(each[0])):  # "not guilty" first
        ends = "(?= $)" if words == "no" else "(?= )"  # else it is "no" of a noun
        if words:
            text = text.replace(f" not {words} ", "  ")
            text, n_held = re.subn(rf"(?<= ){re.escape(words)}{ends}", "", text)
            held += [option] if n_held else []
    is_denial = _DENIES.search(text) or _DENIES.search(text.replace(" ", ""))  # cut or not
    return held[0] if len(held) == 1 and not is_denial else ""


def _cut_form(text: str) -> str:
    """The words and values of a text in one form, spaced in scripts without spaces, too."""
    return " ".join(_cut(_normalise_answer(one_form(text)).split()))


def _side_within(response: str, options: Mapping[str, str]) -> str:
    """The option that is the response's yes or no (or true, false), if both are offered."""
    sides = {side_of(words, is_gold=True): option for option, words in options.items()}
    return (sides | {"": ""})[side_of(response)] if {"yes", "no"} <= sides.keys() else ""


def _letter(match: re.Match[str]) -> str:
    return next(group for group in match.groups() if group).upper()


@cache
def _readings(letters: str) -> tuple[re.Pattern[str], ...]:
    """The patterns of a stated answer, of a response that opens with its answer, of an option's
    mark, and of what makes several of one letter."""
    plain = "".join(letter for letter in letters if letter not in _WORD_LETTERS)
    words = "".join(letter for letter in letters if letter in _WORD_LETTERS)
    # A letter may come right before a word of a script without spaces, or with particles
    spaced = r"(?![\u0600-\u06ff\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af])\w"
    ends = rf"(?!{spaced}|['’/&+]|-[\w\s.,]|-$)"
    # A letter that is a word counts before punctuation, at the end, and before what an answer goes
    # on with.
    bare = rf"(?:[{plain}]{ends}|[{words}]{ends}(?!\s+(?!{_SAYS}\b)\w))"
    lower = rf"(?i:[{plain}]|[{words}](?=[.!*]))(?=[.!*]*\s*(?:\n|\Z))"
    abroad = rf"[{letters}]{ends}"
    closed = rf"[{letters}{letters.lower()}](?=[)\]`]|['’](?!\w))"
    marks = r"[\s(\[{*_\"“「【】《'‘`:=—–•✓✔-]{0,9}"
    shut = r"[)\]}*_\"”'’`]*"
    announced = (
        rf"(?i:{_IS_ANSWER})\s{{0,3}}{marks}(?:(?i:option|letter|choice)\s)?{marks}"
        rf"({closed}|{bare}|{lower})"
        rf"|(?i:{_CHOOSES})\s{marks}({closed}|{bare})"
        rf"|(?<![\w'’(-])({bare})[)*\]]{{0,3}} (?:is|seems|would be|looks) (?:the )?(?i:{_BEST})"
        rf"|\(([{letters}])\) is (?:the )?(?i:{_BEST})"
        rf"|\b(?i:not|nicht|pas|no) [('‘`]?[{letters}][)'’`]?"
        rf"(?:,? (?:but(?: rather)?|sondern|mais|sino) |[.;] )[('‘`]?({closed}|{bare})"
        rf"|(?i:{_IS})\s{marks}({closed}|{bare})(?!{shut} {_REJECTED})"
        rf"(?={shut}\s*(?:[.,;!]|$|(?:{_SAYS}|weil|car)\b))"
        rf"|(?i:{_ANSWERS_ABROAD})\s{{0,3}}{marks}({closed}|{abroad})"
        rf"|(?i:{_ANSWERS_ROMANCE})\s{{0,3}}{marks}({closed}|{bare})"
        rf"|(?<![A-Za-z0-9'’-])(?<!nicht )({abroad})[)*\]]{{0,3}}\s?(?:{_RIGHT_ABROAD})"
    )
    opening = (
        rf"\s{{0,20}}(?:(?i:option|answer|choice|letra|alternativa|opción|opção|вариант)\b)?{marks}({closed}|{bare})"
        rf"(?!\s?\?)(?![)\]*_]{{0,3}} {_REJECTED})(?![)\]*_]{{0,3}}{_WRONG_ABROAD})"
    )
    marked = (
        rf"(?<!\w)[(\[]([{letters}{letters.lower()}])[)\]]|(?<![\w(])([{letters}{letters.lower()}])\)"
        rf"|\*\*([{letters}])[.:)]?\*\*|(?m:^)([{letters}])[.:]\s|\b(?i:option|choice) ({bare})"
    )
    joining = rf"(?:[,/&、+]|(?:{_JOINING})\b|{_JOINING_UNSPACED})"
    more = (
        rf"{shut}\s*{joining}\s*(?:(?:and|or)\s)?[(\[*_'‘`]*[{letters}]"
        rf"(?={shut}\s*(?:[.;:。都均皆]|$|{joining}|(?:are|sind|sont|son)\b))"
    )
    return tuple(map(re.compile, (announced, opening, marked, more)))


class Match(NamedTuple):
    """How a response compares with the answers: exact or not, and the best token F1, 0-1."""

    exact: bool
    f1: float


def compare(
    prompt: str, response: str, answers: Sequence[str], choices: Sequence[str] = ()
) -> Match:
    """The response beside the best of the answers. If an answer is an offered option (its letter,
    "B) right", or its text; of the `choices`, else of the prompt), the chosen option is compared: 1
    or 0; several ("A, C") in any order. JSON is exact if it is equal as data, yes and no whatever
    their reason; else exact is equality of words and values (text_processing/values.py), as they
    are or in one form (equivalents.py), and F1 is LongBench's over these. Of a working its
    conclusion counts. Empty answers count nowhere."""
    return _compare(prompt, response, tuple(answers), tuple(choices))


def why_no_answer(answers: Sequence[str]) -> str | None:
    """The reason why nothing can be compared with a sample's answers, None if something can."""
    return None if any(answer.strip() for answer in answers) else "the sample's answers are empty"


@lru_cache(16)  # several metrics ask for each response
def _compare(prompt: str, response: str, golds: tuple[str, ...], choices: tuple[str, ...]) -> Match:
    answers = [concluded(answer) for answer in golds if answer.strip()]
    options = dict(zip(_LETTERS, choices, strict=False)) or offered_options(prompt)
    if sets := {_as_several(answer, options) for answer in answers} - {frozenset()}:
        is_right = _as_several(concluded(response), options) in sets
        return Match(is_right, float(is_right))
    right = {_as_option(answer, options) for answer in answers} - {""} if options else None
    if right:
        choice = find_choice(response, options)
        option = choice.option if choice else _option_within(response, options if choices else {})
        return Match(option in right, float(option in right))
    readings = dict.fromkeys((response, concluded(response)))
    is_worked = any(answer not in golds for answer in answers)
    folded = fold(response)
    if is_worked and (numbers := _STATED.findall(folded) or _NUMBERS.findall(folded)):
        readings[numbers[-1]] = None  # as a gold with its working has one
    held = chain(readings, _within(concluded(response), prompt, answers))
    if any(_is_same(reading, answer) for reading in held for answer in answers):
        return Match(True, 1.0)
    f1s = (
        _f1(form(reading), form(answer))
        for answer in answers
        for form in ((str,) if is_chinese(answer) else (str, one_form))
        for reading in readings
    )
    return Match(False, max(f1s, default=0.0))


def _f1(response: str, answer: str) -> float:
    words, wanted = tokens(_spell_signs(response)), tokens(_spell_signs(answer))
    if is_chinese(answer) or _UNSPACED.search(answer):
        words, wanted = _cut(words), _cut(wanted)
        words, wanted = _part(words, wanted), _part(wanted, words)
    return token_f1(words, wanted)


def _part(words: Sequence[str], others: Sequence[str]) -> tuple[str, ...]:
    """Words, of which Chinese ones that begin or end with another are two: 上海市 beside 上海."""
    parts: list[str] = []
    for word in words:
        ends = {other for other in others if 1 < len(other) < len(word) and is_chinese(other)}
        first = next((end for end in ends if word.startswith(end)), "")
        last = "" if first else next((end for end in ends if word.endswith(end)), "")
        parts += filter(None, (first, word.removeprefix(first).removesuffix(last), last))
    return tuple(parts)


def _cut(tokens: Sequence[str]) -> tuple[str, ...]:
    """Tokens, of which those in Chinese are cut into words, those of _UNSPACED into characters."""
    parts: list[str] = []
    for token in tokens:
        whole = token if _UNSPACED.search(token) else (token,)
        parts += chinese_words(token) if is_chinese(token) else whole
    return tuple(parts)


def _as_option(answer: str, options: Mapping[str, str]) -> str:
    """The option that an answer names, "" for none."""
    bare = _with_latin_letters(answer).strip().strip("()[]*.:")
    is_lettered = set(options) <= set(_LETTERS)
    key = bare if is_lettered else bare.lower()
    if key in options:
        return key
    mark = _OPTION_MARK.match(_with_latin_letters(answer).strip())
    if mark and mark[1].upper() in options:
        return mark[1].upper()
    lettered = bare.upper() if is_lettered and len(bare) == 1 else ""
    return _option_of_words(answer, options) or (lettered if lettered in options else "")


def _within(response: str, prompt: str, answers: Sequence[str]) -> Iterator[str]:
    """What a response holds as its answer: in a JSON object, in its only span of code, after "x ="
    if no answer is an equation, and a number beside nothing but words of the question."""
    if "{" in response and isinstance(data := _read_data(response), dict):
        named = {key.lower(): value for key, value in data.items() if isinstance(key, str)}
        values = [named[key] for key in ("final_answer", "answer", "result") if key in named]
        yield from (str(value) for value in values[:1] if isinstance(value, str | int | float))
    if (code := _CODE_AMONG_WORDS.fullmatch(response.strip())) and not (
        _REJECTS.search(response) or _DENIES.search(f" {_normalise_answer(response)} ")
    ):
        yield code[1]
    form = one_form(response)
    if (equation := _EQUATION.fullmatch(form)) and not any("=" in answer for answer in answers):
        yield equation[1]
    words = tokens(form)
    if not 0 < sum(word.startswith("=") for word in words) < 3:
        return
    of_question = {UNIT_OF.get(word, word) for word in tokens(one_form(prompt))} - _COMPARES
    of_question = {word for word in of_question if not word.startswith("=")}
    rest = [word for word in words if word not in of_question | _BESIDE_NUMBER]
    if 0 < len(rest) < 3 and rest[0].startswith("=") and len(rest) < len(words):
        yield " ".join(rest).removeprefix("=")


def _as_several(text: str, options: Mapping[str, str]) -> frozenset[str]:
    """The options of a text that names several by letters ("A, C", "AC") or words; else none."""
    if not options or _option_of_words(text, options) or _OR.search(text):
        return frozenset()
    for part in (text, _SAY_SEVERAL.split(text)[0]):
        letters = _BESIDE_SEVERAL.sub("", _with_latin_letters(part))
        if 1 < len(letters) == len(set(letters) & options.keys()):
            return frozenset(letters)
    named = [_as_option(part, options) for part in re.split(r"[\n,;、，；]|\band\b", text)]
    return frozenset(named) if len(set(named)) > 1 and all(named) else frozenset()


def _is_same(response: str, answer: str) -> bool:
    """Whether a response is the answer: as JSON, by words and values, as yes or no, in one form."""
    if answer.lstrip().startswith(("{", "[")) and (wanted := _read_data(answer)) is not None:
        value = _read_data(response)
        value = _only_json(response, type(wanted)) if value is None else value
        with suppress(RecursionError, ValueError):  # a number of over 4,300 digits
            if isinstance(value, dict | list):
                return bool(_with_kinds(wanted) == _with_kinds(value))
    if "sqrt" not in answer and _normalise_answer(response) == _normalise_answer(answer):
        return _has_same_ends(response, answer)
    if (side := side_of(answer, is_gold=True)) and side_of(response) == side:
        return True
    response, answer = one_form(response), one_form(answer)
    same = _normalise_answer(response) == _normalise_answer(answer)
    return same and _has_same_ends(response, answer)


def _has_same_ends(response: str, answer: str) -> bool:
    """False of the interval [1, 2] beside (1, 2)."""
    both = (_PAIR.fullmatch(response), _PAIR.fullmatch(answer))
    return not all(both) or len({pair.group(1, 2) for pair in both if pair}) == 1


def _read_data(text: str) -> Any:
    """The value of a text as JSON, or as Python prints it; None if it is none."""
    value, bare = read_json(text), _FENCE_MARKS.sub("", text.strip())
    if value is None and bare.startswith(("{", "[")) and len(bare) < _MOST_PRINTED:
        with suppress(ValueError):
            return read_literal(bare)
    return value


def _with_kinds(value: Any) -> Any:
    """Data in small letters, whose numbers are of another kind than true and false, which Python's
    1 and 0 equal."""
    if isinstance(value, dict):
        return {str(key).casefold(): _with_kinds(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_with_kinds(part) for part in value]
    if isinstance(value, bool | None):
        return value
    return (Decimal(str(value)),) if isinstance(value, int | float) else str(value).casefold()


def _only_json(reply: str, kind: type) -> Any:
    """The one value of a kind among a reply's words; None if it holds none, or several."""
    values, last = list[Any](), 0
    for start, end, value in json_values(reply, r"[{\[]", _MOST_TRIED):
        if start >= last:
            last = end
            values += [value] if isinstance(value, kind) and value not in values else []
    return values[0] if len(values) == 1 else None


def json_values(text: str, opening: str, most: int) -> Iterator[tuple[int, int, Any]]:
    """The JSON values that begin at so many brackets of a text, with where each begins and ends."""
    for bracket in islice(re.finditer(opening, text), most):
        try:
            value, end = _DECODER.raw_decode(text, bracket.start())
        except (ValueError, RecursionError):
            continue
        yield bracket.start(), end, value


def _normalise_answer(text: str) -> str:
    """The words and values of a text, the text itself if it has none ("+")."""
    return ("" if is_chinese(text) else " ").join(tokens(_spell_signs(text))) or fold(text).strip()


def _spell_signs(text: str) -> str:
    """The text with the signs that tell answers apart as words: a != b, x += 1, ls -l, and in a
    formula, which has no word of three letters, x - 1, -√2 and [1, 2). Hyphens, dashes and ranges
    stay; `tokens` reads the sign of O- and Ca2+."""
    if _SIGNS.isdisjoint(text):
        return text
    is_prose = _PROSE.search(text)
    text = _ARROW.sub(" → ", text.replace("\u2212", "-"))
    for sign, twin in (("!=", " ≠ "), ("<=", " ≤ "), (">=", " ≥ ")):
        text = text.replace(sign, twin)
    text = _CHARGE.sub(lambda match: f" {match[1]}{_OPERATOR_NAMES[match[2]]} ", text)
    text = _OPERATOR.sub(_spell_operator, text)
    if is_prose:
        return text
    text = _HALF_OPEN.sub(
        lambda match: f" {'open' if match[1] == '(' else 'closed'} {match[2]} ; {match[3]} ", text
    )
    return _BINARY.sub(_spell, _UNARY.sub(_spell, text))


def _spell_operator(match: re.Match[str]) -> str:
    sign, after = match[0].strip(), match.string[match.end()]
    if sign == "**" and after.isdigit():
        return "^"
    return f" {''.join(_OPERATOR_NAMES[part] for part in sign)}{'' if after == ' ' else ' '}"


def _spell(match: re.Match[str]) -> str:
    return f"{match[1]} {'plus' if match[2] == '+' else 'minus'} "


def read_json(text: str) -> Any:
    """The value of a reply as JSON, also in a code fence; None if it is none (or says null)."""
    inner = text.strip()
    if len(inner) > 5 and inner.startswith("```") and inner.endswith("```"):
        inner = re.sub(r"\A[A-Za-z]{1,10}(?=[\s{\[])", "", inner[3:-3])
    try:
        return json.loads(inner, parse_constant=_refuse_constant)
    # broken, a number of over 4,300 digits, or nested too deeply
    except (ValueError, RecursionError):
        return None


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
