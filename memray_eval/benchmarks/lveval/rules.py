"""LV-Eval's score, as infinigence/LVEval 63e7ae9 has it (metrics.py, config.py, evaluation.py).

F1 of words against the first answer alone, but 0 where too few of the answer's keywords are in the
prediction; ROUGE-L without common words for dureader_mixup. The two lists of common words are the
original's own (MIT, (c) 2024 Infinigence AI)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from memray_eval.benchmarks import Rule
from memray_eval.benchmarks.longbench.rouge import rouge_l
from memray_eval.benchmarks.longbench.rules import (
    chinese_words,
    english_words,
    normalise_zh,
    segment,
    token_f1,
)
from memray_eval.types import Sample

VERSION = "LV-Eval 63e7ae9"
LEAST_RECALL, LEAST_RECALL_ZH = 0.2, 0.4  # of the keywords
_COMMON = frozenset(
    "and to of in her was with for it from is that his he by she they or at because be on are "
    "their what as had were about being this who but have has when which does".split()
)
_COMMON_ZH = frozenset(
    (
        "的 和 是 等 在 年 可以 为 与 ‰ 了 或 一种 月 c 至 日 有 进行 于 不 中 "
        "× 根据 小 由 亩 也 要 指 法 会 元 主要 以及 通过 首先 对 然后 号 以 所 后 丁 "
        "包括 无 将 用 能 形 方面 因素 位于 而 从 到 一定 用于 但 使用 让 具有 并 亿元 万元 上 "
        "类 基于 才 来 地 片 其他 个 或者 变得 时 给 你 使 条 受 已经 带 度"
    ).split()
)


def gated_f1(prediction: str, answer: str, keywords: str | None) -> float:
    """F1 of English words, 0.0 if the prediction has less than a fifth of the keywords' words.
    Common words are no part of that count, though of what it is divided by. Without keywords
    nothing is asked first. Raises ValueError for keywords without a word."""
    predicted = english_words(prediction)
    if keywords and _recall(predicted, english_words(keywords), _COMMON) < LEAST_RECALL:
        return 0.0
    return token_f1(predicted, english_words(answer))


def gated_f1_zh(prediction: str, answer: str, keywords: str | None) -> float:
    """As `gated_f1`, of Chinese words and by two fifths; without keywords by the answer."""
    predicted = chinese_words(prediction)
    if _recall(predicted, chinese_words(keywords or answer), _COMMON_ZH) < LEAST_RECALL_ZH:
        return 0.0
    return token_f1(predicted, chinese_words(answer))


def rouge_without_common(prediction: str, answer: str, keywords: str | None) -> float:
    """ROUGE-L over Chinese words that are not common ones. As in the original the words are cut
    twice, the second time out of the first ones with spaces between them."""

    def words(text: str) -> str:
        cut = segment(" ".join(segment(text)))
        return " ".join(word for word in map(normalise_zh, cut) if word not in _COMMON_ZH)

    return rouge_l(words(prediction), words(answer))


def _recall(predicted: Sequence[str], keywords: Sequence[str], common: frozenset[str]) -> float:
    if not keywords:
        raise ValueError("answer_keywords: they have no word to look for")
    same = Counter(predicted) & Counter(keywords)
    return sum(count for word, count in same.items() if word not in common) / len(keywords)


TASK_RULES: Mapping[str, Callable[[str, str, str | None], float]] = {
    **dict.fromkeys(
        "hotpotwikiqa_mixup loogle_SD_mixup loogle_CR_mixup loogle_MIR_mixup "
        "multifieldqa_en_mixup".split(),
        gated_f1,
    ),
    **dict.fromkeys(("multifieldqa_zh_mixup", "cmrc_mixup", "lic_mixup"), gated_f1_zh),
    # LongBench's F1, of answers without keywords
    "factrecall_en": lambda text, answer, _: token_f1(english_words(text), english_words(answer)),
    "factrecall_zh": lambda text, answer, _: token_f1(chinese_words(text), chinese_words(answer)),
    "dureader_mixup": rouge_without_common,
}


def _score(sample: Sample, text: str) -> float:
    """The first answer alone, as the original compares."""
    if (why_not := _why_not(sample)) is not None:
        raise ValueError(why_not)
    if not sample.answers:
        raise ValueError("LV-Eval compares the first answer, and the sample has none")
    keywords = sample.metadata.get("answer_keywords")
    return TASK_RULES[sample.task](text, sample.answers[0], str(keywords) if keywords else None)


def _why_not(sample: Sample) -> str | None:
    return None if sample.task in TASK_RULES else f"LV-Eval has no task {sample.task!r}"


RULES = {
    "lveval": Rule(
        title="LV-Eval score",
        value_label="Score",
        about="F1 of words, 0 where the answer's keywords are missing, as LV-Eval scores each "
        "task.",
        version=VERSION,
        score=_score,
        by=gated_f1,
        why_not=_why_not,
    )
}
