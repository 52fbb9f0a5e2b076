"""Needles: generated texts of any length with something to find in them (`memray-eval dataset make needles`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memray_eval.suites import Suite
from memray_eval.suites.templates import Wording, own_wording
from memray_eval.suites.templates.records import check_record, ours
from memray_eval.types import Candidate, Prompt, Sample

# RULER's and InfiniteBench's lengths count on an answer whose first words stand in the prompt. A chat model says them itself,
# so that a length gets room for a sentence (or two UUIDs) where theirs has none: passkey's 6, say, or vt's 30.
_SENTENCE_TOKENS = 64
_FOUND_TOKENS = 128  # RULER's for its niah tasks
_LISTED_TOKENS = 120  # RULER's for its ten common words
_CALC_TOKENS_MAX = 30_000  # InfiniteBench's for math_calc
_TOKENS_A_VALUE = 4  # " 57," where each digit is a token
_NIAH = ("single_1", "single_2", "single_3", "multikey_1", "multikey_2", "multikey_3", "multivalue", "multiquery")
_ANSWER = {"en": "\nAnswer:", "zh": "\n答案："}

# task: what to say before the context and after the question, in English and in Chinese; tokens of an answer
_WORDS: dict[str, tuple[str, str, str, str, int]] = {
    "passkey": (
        "A pass key is hidden somewhere in the text below. Find it and keep it in mind.",
        "Reply with the number alone.",
        "下面的文字中藏着一个通行密钥。请找到并记住它。",
        "只写数字。",
        _SENTENCE_TOKENS,
    ),
    "number_string": (
        "A sequence of digits is hidden somewhere in the text below. Find it and keep it in mind.",
        "Reply with the digits alone, each repetition included.",
        "下面的文字中藏着一串数字。请找到并记住它。",
        "只写这串数字，重复的数字也要写全。",
        _SENTENCE_TOKENS,
    ),
    "kv_retrieval": (
        "Below is a JSON object of keys and values.",
        "Reply with that key's value alone.",
        "下面是一个由键和值组成的 JSON 对象。",
        "只写该键对应的值。",
        _FOUND_TOKENS,
    ),
    "math_find": (
        "Below is a long list of numbers.",
        "Reply with that number alone.",
        "下面是一长串数字。",
        "只写这个数。",
        _SENTENCE_TOKENS,
    ),
    "math_calc": (
        "Below is a long sum of additions and subtractions.",
        "Give the value after each operation, from left to right, as one list of numbers; leave out the number that the sum "
        "begins with. For 1 + 3 - 2 that is [4, 2]. Write the whole list and nothing else.",
        "下面是一个很长的加减算式。",
        "请从左到右写出每一步运算之后的值，写成一个数字列表，不包括算式开头的数。例如 1 + 3 - 2 写作 [4, 2]。"
        "写出完整的列表，不要写别的内容。",
        _CALC_TOKENS_MAX,
    ),
    "code_run": (
        "Below are Python functions that call one another.",
        "Follow the calls to the end. Reply with the returned number alone.",
        "下面是一些互相调用的 Python 函数。",
        "请一直追踪到调用结束，只写返回的数。",
        _SENTENCE_TOKENS,
    ),
    **dict.fromkeys(
        (f"niah_{kind}" for kind in _NIAH),
        (
            "Some things worth remembering are hidden in the text below. Keep them in mind.",
            "Reply with what is asked for alone; if it is several things, with all of them.",
            "下面的文字中藏着一些需要记住的内容。请记住它们。",
            "只写所问的内容；如果不止一个，请全部写出。",
            _FOUND_TOKENS,
        ),
    ),
    "vt": (
        "Variables are given values in the text below, some of them another variable's. Keep track of them.",
        "Reply with the names of the variables alone, all of them.",
        "下面的文字中有一些变量赋值，有的变量取另一个变量的值。请留意它们。",
        "只写变量名，并全部写出。",
        _SENTENCE_TOKENS,
    ),
    "cwe": (
        "Below is a numbered list of words, some of which occur more often than the others. Keep count of them.",
        "Reply with the words alone.",
        "下面是一个带编号的词表，有些词出现得比别的词更多。请留意各词出现的次数。",
        "只写这些词。",
        _LISTED_TOKENS,
    ),
    "fwe": (
        "Below is a text of made-up words, some of which occur more often than the others. Keep count of them.",
        "Reply with the words alone.",
        "下面是一段由生造词组成的文字，有些词出现得比别的词更多。请留意各词出现的次数。",
        "只写这些词。",
        _SENTENCE_TOKENS,
    ),
    "qa": (
        "Below are documents, few of which help to answer a question that follows them.",
        "Answer from the documents. Reply with the answer alone, in as few words as possible.",
        "下面是若干文档，其中只有少数有助于回答之后的问题。",
        "请根据文档回答，只写答案，尽量简短。",
        _SENTENCE_TOKENS,
    ),
    # a sample of the user's own without a task
    "": (
        "Read the text below; a question about it follows.",
        "Answer from the text.",
        "请阅读下面的文字，之后回答关于它的一个问题。",
        "请根据上文回答。",
        _FOUND_TOKENS,
    ),
}


def _wordings() -> dict[tuple[str, str], Wording]:
    out = {}
    for task, (before, after, before_zh, after_zh, max_tokens) in _WORDS.items():
        for language, first, last in (("en", before, after), ("zh", before_zh, after_zh)):
            out[task, language] = own_wording(first, f"{{input}}\n\n{last}{_ANSWER[language]}", max_tokens)
    return out


WORDINGS = _wordings()
TASKS = tuple(task for task in _WORDS if task)


def adapt(raw: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """Needles are made in our own format. Raises ValueError that says what a row lacks, or the known tasks."""
    if "sample_id" not in raw:
        check_record(raw, "needles", {"id": None, "query": None})
    return ours(raw, TASKS)


def prompt(sample: Sample, candidate: Candidate) -> Prompt:
    """In the sample's language (Chinese, else English): instructions, the context, the question. A list of running values gets
    as many tokens as it needs, up to InfiniteBench's 30,000."""
    wording = WORDINGS[sample.task, "zh" if sample.language.startswith("zh") else "en"]
    values = {"context": sample.context or "", "input": sample.query}
    label = sample.metadata.get("label")
    if sample.task == "math_calc" and isinstance(label, list):
        needed = _SENTENCE_TOKENS + _TOKENS_A_VALUE * len(label)
        wording = wording.model_copy(update={"max_tokens": min(_CALC_TOKENS_MAX, needed)})
    return wording.ask(values)


SUITE = Suite(
    description="Needles: generated texts of any length, with something hidden to find, follow or count",
    metrics=("semantic_correctness", "rule_score"),
    prompt=prompt,
    adapt=adapt,
    tasks=TASKS,
    has_contexts=True,
)
