"""InfiniteBench's twelve rules, with their defects: v1 (OpenBMB/InfiniteBench 88b3daa), which gave
the published table, and v2 (51d9b37), its head. They differ in kv_retrieval, code_debug,
longbook_choice_eng and longdialogue_qa_eng.

`score` takes the label as it was published: text, a number or a list, by task and loader. Numbers
in text are read as numbers; the original finds nothing equal to them."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from memray_eval.benchmarks import Rule
from memray_eval.benchmarks.longbench.rules import normalise_zh, qa_f1, rouge_lsum, token_f1
from memray_eval.errors import cut
from memray_eval.types import Sample

Version = Literal["v1", "v2"]
VERSIONS: Mapping[Version, str] = {"v1": "InfiniteBench 88b3daa", "v2": "InfiniteBench 51d9b37"}

Label: TypeAlias = str | int | float | Sequence["Label"]
TaskRule: TypeAlias = Callable[[str, Label], float]

LETTERS = "ABCD"
CHOICE_TASKS = frozenset({"longbook_choice_eng", "code_debug"})
_DIGITS = re.compile(r"[0-9]+")
_SIGNED = re.compile(r"-?[0-9]+")
_NUMBER = re.compile(r"\d+\.\d+|\d+")
_WORD_ENDS = str.maketrans(dict.fromkeys("\n:\"'.,?!{}", " "))
_CHOICE_MARKS = str.maketrans(dict.fromkeys("\n\"'.,?!{}", " "))
_CODE_MARKS = str.maketrans(dict.fromkeys("\n.`'\":", " "))
_DEBUG_MARKS = str.maketrans(dict.fromkeys("\n`'\"-*", " "))
_CHOICE_PREFIXES = ("answer is:", "answer:", "answer is", "option is")
# and "correct option is:", which no text holds once "option" is blanked
_DEBUG_PREFIXES = ("answer is:", "is:", "answer:")


def score(task: str, prediction: str, label: Label, version: Version = "v2") -> float:
    """The task's rule on one prediction, 0-1. Choice tasks want a label made by `choice_label`.
    Raises ValueError for a task without a rule, and for a label that its rule cannot read."""
    if (rule := TASK_RULES[version].get(task)) is None:
        names = ", ".join(TASK_RULES[version])
        raise ValueError(f"InfiniteBench has no rule for task {task!r}; there are: {names}")
    return rule(prediction, label)


def choice_label(label: Label, options: Sequence[str]) -> tuple[str, str]:
    """[text of the right option, its letter] out of the published answer: the text, [the text] or
    [the text, the letter]. Raises ValueError if the text is not an option."""
    texts = _texts(label)
    if len(texts) == 2 and texts[1] in tuple(LETTERS):
        return texts[0], texts[1]
    if len(texts) == 1 and texts[0] in options[: len(LETTERS)]:
        return texts[0], LETTERS[options.index(texts[0])]
    raise ValueError(
        f"label {cut(str(label), 80)!r} is not one of the options {list(options)}; put them into "
        "metadata.options"
    )


def number_text(prediction: str, label: Label) -> float:
    """passkey, number_string: the first run of digits is the label."""
    match = _DIGITS.search(prediction)
    return float((match[0] if match else "") == str(_first(label)))


def kv_retrieval(prediction: str, label: Label) -> float:
    """The label is a word of the prediction, case-sensitive. v1 never finds one in a list."""
    return float(isinstance(label, str) and label in prediction.translate(_WORD_ENDS).split())


def code_run(prediction: str, label: Label) -> float:
    """The last word is the label as a whole number. "-4." is one; "-4.0" ends in the word 0."""
    words = prediction.translate(_CODE_MARKS).split()
    return float(bool(words) and _whole(words[-1]) == _number(_first(label)))


def math_find(prediction: str, label: Label) -> float:
    """The first number, its sign ignored, equals the label. Raises ValueError, as the original
    does, for a whole label and a first number with a decimal point ("88.0")."""
    wanted = _number(_first(label))
    if (match := _NUMBER.search(prediction)) is None:
        return 0.0
    if isinstance(wanted, float):
        return float(float(match[0]) == wanted)
    if "." in match[0]:
        raise ValueError(
            f"the rule reads no decimal number {cut(match[0], 40)!r} where the label {wanted} is a "
            "whole one"
        )
    return float(_whole(match[0]) == wanted)


def math_calc(prediction: str, label: Label, *, skip_first: bool = False) -> float:
    """The share of the label's running values that are right before the first wrong one. All runs
    of digits are values; the original drops the first (`skip_first`) for a model called "gpt4"."""
    first = _first(label)
    # a loader may nest the list in another
    values = label if isinstance(first, str | int | float) else first
    listed = [values] if isinstance(values, str | int | float) else values
    wanted = [_number(value) for value in listed]
    if not wanted:
        raise ValueError("math_calc has an empty label; it wants the list of running values")
    right = 0
    for digits, value in zip(_DIGITS.findall(prediction)[skip_first:], wanted, strict=False):
        if _whole(digits) != value:
            break
        right += 1
    return right / len(wanted)


def longbook_qa_chn(prediction: str, label: Label) -> float:
    """F1 of lower-case characters without punctuation and space, the best over the labels."""
    predicted = normalise_zh(prediction)
    return max((token_f1(predicted, normalise_zh(text)) for text in _texts(label)), default=0.0)


def longdialogue_v1(prediction: str, label: Label) -> float:
    """The first label, as it is, is a word of the upper-cased prediction: never a small letter."""
    return float(str(_first(label)) in prediction.translate(_WORD_ENDS).upper().split())


def longdialogue_v2(prediction: str, label: Label) -> float:
    """Any label is a part of the prediction, cases ignored: "ANN" is found in "CHANNEL"."""
    upper = prediction.strip().upper()
    return float(any(text.upper() in upper for text in _texts(label)))


def longbook_choice_v1(prediction: str, label: Label) -> float:
    """The first of these that applies decides: a first character A-D ("A tale ..." is A); the whole
    prediction is the text or the letter; what follows the first prefix ("answer is:" and so on);
    the first word that is a part of "ABCD"."""
    texts = _texts(label)
    text = prediction.strip()
    if not text:
        return 0.0
    if text[0] in LETTERS:
        return float(text[0] in texts)
    if text in texts:
        return 1.0
    text = _collapse_spaces(text.translate(_CHOICE_MARKS))
    if (rest := _text_after_prefix(text, _CHOICE_PREFIXES)) is not None:
        return float(rest.startswith(tuple(texts)))
    return float(next((word for word in text.split() if word in LETTERS), None) in texts)


def longbook_choice_v2(prediction: str, label: Label) -> float:
    """1.0 if the lone letter (see `lone_letter`) is right, else as v1."""
    if lone_letter(prediction.strip(), "ABCD") in _texts(label):
        return 1.0
    return longbook_choice_v1(prediction, label)


def code_debug_v1(prediction: str, label: Label) -> float:
    """The prediction starts with "X." or "X:", X the letter; else what follows the first prefix
    decides: it must start with the letter or the function's name. A bare "X" scores 0."""
    function, letter = _texts(label)
    text = prediction.strip()
    if text[:2] in (f"{letter}.", f"{letter}:"):
        return 1.0
    return _score_debugging(_debug_text(text), function, letter)


def code_debug_v2(prediction: str, label: Label) -> float:
    """1.0 if the lone letter among A-J is right, or the prediction starts with the letter or the
    function's name (so does "An error" if A is right), else by the prefixes as v1."""
    function, letter = _texts(label)
    text = prediction.strip()
    if lone_letter(text, "ABCDEFGHIJ") == letter:
        return 1.0
    text = _debug_text(text)
    return 1.0 if text.startswith((letter, function)) else _score_debugging(text, function, letter)


def lone_letter(text: str, letters: str) -> str | None:
    """The last of these letters alone on the first line that has one, an article "A" too."""
    alone = re.compile(rf"\b[{letters}]\b")
    return next((hits[-1] for line in text.split("\n") if (hits := alone.findall(line))), None)


def _debug_text(text: str) -> str:
    return _collapse_spaces(re.sub("[Oo]ption", " ", text.translate(_DEBUG_MARKS)))


def _score_debugging(text: str, function: str, letter: str) -> float:
    rest = _text_after_prefix(text, _DEBUG_PREFIXES)
    return float(rest is not None and rest.startswith((letter, function)))


def _text_after_prefix(text: str, prefixes: Sequence[str]) -> str | None:
    """The text after the first prefix, by their order, and one character behind it."""
    for prefix in prefixes:
        if (start := text.find(prefix)) >= 0:
            return text[start + len(prefix) + 1 :]
    return None


def _collapse_spaces(text: str) -> str:
    return re.sub(" {2,}", " ", text)


def _whole(text: str) -> int | None:
    """int(text), or None if it is not a whole number (or has more digits than Python reads)."""
    try:
        return int(text)
    except ValueError:
        return None


def _first(label: Label) -> Label:
    """A label, or the first of a list of labels: only the first counts."""
    if isinstance(label, str | int | float):
        return label
    if not label:
        raise ValueError("the sample has no answer, and the rule of its task needs one")
    return label[0]


def _texts(label: Label) -> list[str]:
    return [str(label)] if isinstance(label, str | int | float) else [str(item) for item in label]


def _number(label: Label) -> int | float:
    """A label as a number. Raises ValueError if it is not one."""
    if isinstance(label, int | float):
        return label
    text = str(label)
    if (whole := _whole(text)) is not None:
        return whole
    try:
        return float(text)
    except ValueError:
        raise ValueError(
            f"the label {cut(text, 80)!r} is no number, and the rule of its task needs one"
        ) from None


_BOTH: Mapping[str, TaskRule] = {
    "passkey": number_text,
    "number_string": number_text,
    "code_run": code_run,
    "math_find": math_find,
    "math_calc": math_calc,
    # F1 of words by LongBench's normalisation: not "ROUGE F1"
    "longbook_qa_eng": lambda prediction, label: qa_f1(prediction, _texts(label)),
    "longbook_qa_chn": longbook_qa_chn,
    "longbook_sum_eng": lambda prediction, label: rouge_lsum(prediction, _texts(label)),
}
TASK_RULES: Mapping[Version, Mapping[str, TaskRule]] = {
    "v1": {
        **_BOTH,
        "kv_retrieval": kv_retrieval,
        "longbook_choice_eng": longbook_choice_v1,
        "longdialogue_qa_eng": longdialogue_v1,
        "code_debug": code_debug_v1,
    },
    "v2": {
        **_BOTH,
        "kv_retrieval": lambda prediction, label: kv_retrieval(prediction, str(_first(label))),
        "longbook_choice_eng": longbook_choice_v2,
        "longdialogue_qa_eng": longdialogue_v2,
        "code_debug": code_debug_v2,
    },
}


def label_of(sample: Sample) -> Label:
    """The published label in metadata.label; else it is made of the answers: numbers out of their
    text for math_calc, the first answer for kv_retrieval, all of them for the others."""
    published: Any = sample.metadata.get("label")
    answers = list(sample.answers)
    if published is None and sample.task == "math_calc":
        return [int(number) for answer in answers for number in _SIGNED.findall(answer)]
    if published is None and sample.task == "kv_retrieval" and answers:
        return answers[0]
    label: Label = answers if published is None else published
    if sample.task in CHOICE_TASKS:
        return choice_label(label, sample.metadata.get("options", ()))
    return label


def rule_of(sample: Sample) -> str | None:
    """metadata.rules = "v1" or "v2" picks the version; v2 is the default."""
    if sample.task not in TASK_RULES["v2"]:
        return None
    return f"infinitebench_{sample.metadata.get('rules', 'v2')}"


def _rule(version: Version, about: str) -> Rule:
    def score_sample(sample: Sample, text: str) -> float:
        label = label_of(sample)
        if sample.task == "math_calc":
            return math_calc(text, label, skip_first=sample.metadata.get("model") == "gpt4")
        return score(sample.task, text, label, version)

    return Rule(
        title="InfiniteBench score",
        value_label="Score",
        about=about,
        version=VERSIONS[version],
        score=score_sample,
        by=score,
        why_not=lambda sample: (
            None
            if sample.task in TASK_RULES["v2"]
            else f"InfiniteBench has no rule for task {sample.task!r}"
        ),
    )


RULES = {
    "infinitebench_v1": _rule(
        "v1",
        "InfiniteBench's rule of the sample's task, as it was for the published table (88b3daa).",
    ),
    "infinitebench_v2": _rule(
        "v2", "InfiniteBench's rule of the sample's task, as its head has it (51d9b37)."
    ),
}
