"""LongBench's nine rules and LongBench v2's, with the semantics of THUDM/LongBench 2e00731, its
defects included. Each gives 0-1, the best over the accepted answers, 0.0 without any."""

import difflib
import importlib
import logging
import re
import string
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Any

from memray_eval.benchmarks import Rule
from memray_eval.errors import cut

_LATIN_WORD = re.compile(r"[a-z0-9]+")


def rouge_l(prediction: str, reference: str) -> float:
    """The f of "rouge-l" of PyPI rouge 1.0.1, 0-1: summary level, over sets of unique words.

    Sentences end at "." only ("。" ends none); words are what whitespace parts; the words of the LCS
    of every pair of sentences are joined into one set, which is divided by the unique words of
    either text. A sentence of spaces counts as one word. No sentence ("", "...") is 0.0, as in
    LongBench. Sentences of over 970 words, at which the package fails, are scored here, too."""  # noqa: E501
    predicted, wanted = _dotted_sentences(prediction), _dotted_sentences(reference)
    if not predicted or not wanted:
        return 0.0
    common = {
        target[row] for target in wanted for said in predicted for row, _ in lcs(target, said)
    }
    precision = len(common) / len({word for sentence in predicted for word in sentence})
    recall = len(common) / len({word for sentence in wanted for word in sentence})
    return 2.0 * ((precision * recall) / (precision + recall + 1e-8))


def rouge_lsum(prediction: str, references: Sequence[str]) -> float:
    """rougeLsum f of rouge_score 0.1.2 without a stemmer, 0-1, the best over the references (none:
    0.0). Sentences are lines; words are runs of a-z and 0-9 after lowering, so a Chinese text
    scores 0.0. The LCS of a reference's line with every line of the prediction are united by
    position, and no word counts more often than it occurs."""
    predicted = _lines(prediction)
    return max((_lsum(predicted, _lines(reference)) for reference in references), default=0.0)


def _lsum(predicted: list[list[str]], wanted: list[list[str]]) -> float:
    n_predicted, n_wanted = sum(map(len, predicted)), sum(map(len, wanted))
    if not n_predicted or not n_wanted:
        return 0.0
    unique = set(map(tuple, predicted))
    left_predicted = Counter(word for line in predicted for word in line)
    left_wanted = Counter(word for line in wanted for word in line)
    hits = 0
    for target in wanted:
        # the positions that are on its LCS with any of the predicted lines
        for column in sorted({column for line in unique for _, column in lcs(line, target)}):
            word = target[column]
            if left_predicted[word] > 0 and left_wanted[word] > 0:
                hits += 1
                left_predicted[word] -= 1
                left_wanted[word] -= 1
    precision, recall = hits / n_predicted, hits / n_wanted
    return 2 * precision * recall / (precision + recall) if hits else 0.0


def lcs(rows: Sequence[str], columns: Sequence[str]) -> list[tuple[int, int]]:
    """One longest common subsequence, as (row, column) of each common word. From the end it takes
    an equal pair; else it drops a row if only that keeps the length, else a column."""
    places: dict[str, int] = {}
    for column, word in enumerate(columns):
        places[word] = places.get(word, 0) | 1 << column
    every = (1 << len(columns)) - 1
    # flat[r] has bit c set if the length of the first r rows does not grow from column c to c + 1
    flat = [every]
    for word in rows:
        before, hits = flat[-1], flat[-1] & places.get(word, 0)
        flat.append(((before + hits) | (before - hits)) & every)
    pairs = []
    row, column = len(rows), len(columns)
    while row and column:
        if rows[row - 1] == columns[column - 1]:
            row, column = row - 1, column - 1
            pairs.append((row, column))
        elif not (flat[row - 1] | flat[row]) >> (column - 1) & 1:
            row -= 1
        else:
            column -= 1
    return pairs[::-1]


def _dotted_sentences(text: str) -> list[list[str]]:
    return [part.split() or [""] for part in text.split(".") if part]


def _lines(text: str) -> list[list[str]]:
    return [_LATIN_WORD.findall(line.lower()) for line in text.split("\n") if line]


VERSION = "LongBench 2e00731"
FIRST_LINE_TASKS = frozenset({"trec", "triviaqa", "samsum", "lsht"})

# The original's own list: it lacks 《 〈 〉 and the middle dot.
_ZH_PUNCTUATION = (
    "！？｡。＂＃＄％＆＇（）＊＋，－／：；＜＝＞＠［＼］＾＿｀｛｜｝～｟｠｢｣､、"
    "〃》「」『』【】〔〕〖〗〘〙〚〛〜〝〞〟〰〾〿–—‘’‛“”„‟…‧﹏."
)
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_NO_ZH_PUNCTUATION = str.maketrans("", "", string.punctuation + _ZH_PUNCTUATION)
_ARTICLE = re.compile(r"\b(a|an|the)\b")
_NUMBER = re.compile(r"\d+")
_CHOICES = (
    re.compile(r"The correct answer is \(([A-D])\)"),
    re.compile(r"The correct answer is ([A-D])"),
)


def first_line(task: str, prediction: str) -> str:
    """The part of a prediction that is scored: of FIRST_LINE_TASKS the first line."""
    return prediction.lstrip("\n").split("\n")[0] if task in FIRST_LINE_TASKS else prediction


def qa_f1(prediction: str, answers: Sequence[str]) -> float:
    """F1 of bags of lower-case English words without punctuation and articles; 0.0 if empty."""
    predicted = english_words(prediction)
    return max((token_f1(predicted, english_words(answer)) for answer in answers), default=0.0)


def qa_f1_zh(prediction: str, answers: Sequence[str]) -> float:
    """F1 of the bags of Chinese words: jieba cuts the raw text, then each word is normalised and
    empty ones drop out. It is not InfiniteBench's character F1."""
    predicted = chinese_words(prediction)
    return max((token_f1(predicted, chinese_words(answer)) for answer in answers), default=0.0)


def rouge(prediction: str, answers: Sequence[str]) -> float:
    """ROUGE-L f of PyPI rouge 1.0.1."""
    return max((rouge_l(prediction, answer) for answer in answers), default=0.0)


def rouge_zh(prediction: str, answers: Sequence[str]) -> float:
    """ROUGE-L over jieba's words, punctuation among them. "。" ends no sentence, so a text is mostly
    one."""  # noqa: E501
    predicted = " ".join(segment(prediction))
    return max((rouge_l(predicted, " ".join(segment(answer))) for answer in answers), default=0.0)


def classification(prediction: str, answers: Sequence[str], classes: Sequence[str]) -> float:
    """1 / (how many class names the prediction holds) if the answer is among them, else 0.0.
    Case-sensitive. Names that are a part of the answer's do not count, but as in the original,
    which removes them from the list that it walks, the name after a removed one is not looked at.
    Raises ValueError without classes."""
    if not classes:
        raise ValueError(
            "the sample has no classes: give the task's class names in `classes` (LongBench: "
            "all_classes)"
        )
    return max((_share_of_classes(prediction, answer, classes) for answer in answers), default=0.0)


def _share_of_classes(prediction: str, answer: str, classes: Sequence[str]) -> float:
    named = [name for name in classes if name in prediction]
    for name in named:
        if name in answer and name != answer:
            named.remove(name)
    return 1.0 / len(named) if answer in named else 0.0


def count(prediction: str, answers: Sequence[str]) -> float:
    """The share of the numbers in the prediction that are the answer, as text: "05" is not "5"."""
    numbers = _NUMBER.findall(prediction)
    return max((numbers.count(answer) / max(1, len(numbers)) for answer in answers), default=0.0)


def retrieval(prediction: str, answers: Sequence[str]) -> float:
    """The share of the numbers in the prediction that are the N of the answer's "Paragraph N".
    Raises ValueError if an answer has none (the original: IndexError)."""
    wanted = [_paragraph("Paragraph ", answer) for answer in answers]
    return count(prediction, wanted)


def retrieval_zh(prediction: str, answers: Sequence[str]) -> float:
    """As `retrieval`, for answers that read 段落N."""
    wanted = [_paragraph("段落", answer) for answer in answers]
    return count(prediction, wanted)


def _paragraph(name: str, answer: str) -> str:
    if match := re.search(rf"{name}(\d+)", answer):
        return match[1]
    wanted = f"{name}N"
    raise ValueError(
        f"the answer {cut(answer, 80)!r} names no paragraph; retrieval wants {wanted!r}"
    )


def code_sim(prediction: str, answers: Sequence[str]) -> float:
    """fuzzywuzzy's ratio of the prediction's first line of code to the answer, in steps of 0.01, by
    difflib, which the repository installs. The first line (after leading newlines) without any of `
    # // is taken: an empty line too, and "" if there is none."""
    lines = prediction.lstrip("\n").split("\n")
    line = next(
        (line for line in lines if "`" not in line and "#" not in line and "//" not in line), ""
    )
    if line in answers:  # which difflib may miss: it leaves out frequent characters
        return 1.0
    ratios = (difflib.SequenceMatcher(None, line, answer).ratio() for answer in answers)
    return max((round(100 * ratio) / 100 for ratio in ratios), default=0.0)


def longbench2_choice(prediction: str, letter: str) -> float:
    """LongBench v2: 1.0 if "The correct answer is (X)", else "The correct answer is X", names the
    letter, without "*"; other wordings, and "(x)", are wrong. Not "compensated"."""
    text = prediction.replace("*", "")
    match = next((match for pattern in _CHOICES if (match := pattern.search(text))), None)
    return float(match is not None and match[1] == letter)


def english_words(text: str) -> list[str]:
    return _ARTICLE.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split()


def normalise_zh(text: str) -> str:
    """Lowered, without ASCII and Chinese punctuation and without whitespace."""
    return "".join(text.lower().translate(_NO_ZH_PUNCTUATION).split())


def token_f1(predicted: Collection[str], wanted: Collection[str]) -> float:
    """F1 of two bags of tokens; nothing in common, or nothing at all, is 0.0."""
    same = (Counter(predicted) & Counter(wanted)).total()
    if not same:
        return 0.0
    precision, recall = same / len(predicted), same / len(wanted)
    return (2 * precision * recall) / (precision + recall)


def chinese_words(text: str) -> list[str]:
    return [word for part in segment(text) if (word := normalise_zh(part))]


def segment(text: str) -> list[str]:
    """The text cut into words by jieba's default mode, spaces and punctuation among them. The first
    call reads its dictionary (about a second)."""
    return [str(word) for word in _jieba().cut(text, cut_all=False)]


@cache
def _jieba() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it imports pkg_resources, which warns of its own end
        jieba = importlib.import_module("jieba")
        jieba.setLogLevel(logging.ERROR)  # it tells of loading its dictionary on stderr
        jieba.initialize()
    return jieba


def _rule(
    title: str, value_label: str, about: str, score: Callable[[str, Sequence[str]], float]
) -> Rule:
    return Rule(
        title=title,
        value_label=value_label,
        about=about,
        version=VERSION,
        score=lambda sample, text: score(first_line(sample.task, text), sample.answers),
        by=score,
    )


RULES = {
    "qa_f1": _rule(
        "QA F1",
        "F1",
        "F1 of English words against the best answer, as LongBench scores seven tasks.",
        qa_f1,
    ),
    "qa_f1_zh": _rule(
        "QA F1, Chinese words",
        "F1",
        "F1 of Chinese words against the best answer, as LongBench scores multifieldqa_zh.",
        qa_f1_zh,
    ),
    "rouge": _rule(
        "ROUGE-L",
        "ROUGE-L",
        "ROUGE-L f of PyPI rouge 1.0.1 against the best answer, as LongBench scores summaries.",
        rouge,
    ),
    "rouge_zh": _rule(
        "ROUGE-L, Chinese words",
        "ROUGE-L",
        "ROUGE-L f over jieba's words, as LongBench scores Chinese summaries.",
        rouge_zh,
    ),
    "classification": Rule(
        title="Classification",
        value_label="Accuracy",
        about="The share that the right class has of the classes named, as LongBench scores trec "
        "and lsht.",
        version=VERSION,
        score=lambda sample, text: classification(
            first_line(sample.task, text), sample.answers, sample.classes
        ),
        by=classification,
        why_not=lambda sample: None if sample.classes else "the sample has no classes",
    ),
    "count": _rule(
        "Count",
        "Accuracy",
        "The share of the response's numbers that are the answer, as LongBench scores "
        "passage_count.",
        count,
    ),
    "retrieval": _rule(
        "Paragraph retrieval",
        "Accuracy",
        "The share of the numbers that are the right paragraph's (LongBench: "
        "passage_retrieval_en).",
        retrieval,
    ),
    "retrieval_zh": _rule(
        "Paragraph retrieval, Chinese",
        "Accuracy",
        "The share of the numbers that are the right 段落's (LongBench: passage_retrieval_zh).",
        retrieval_zh,
    ),
    "code_sim": _rule(
        "Code similarity",
        "Similarity",
        "How alike the first line of code and the answer are, as LongBench scores lcc and "
        "repobench-p.",
        code_sim,
    ),
}
RULE_OF_TASK: Mapping[str, str] = {
    **dict.fromkeys(
        ("narrativeqa", "qasper", "multifieldqa_en", "hotpotqa", "2wikimqa", "musique", "triviaqa"),
        "qa_f1",
    ),
    "multifieldqa_zh": "qa_f1_zh",
    **dict.fromkeys(("gov_report", "qmsum", "multi_news", "samsum"), "rouge"),
    **dict.fromkeys(("dureader", "vcsum"), "rouge_zh"),
    **dict.fromkeys(("trec", "lsht"), "classification"),
    "passage_count": "count",
    "passage_retrieval_en": "retrieval",
    "passage_retrieval_zh": "retrieval_zh",
    **dict.fromkeys(("lcc", "repobench-p"), "code_sim"),
}
