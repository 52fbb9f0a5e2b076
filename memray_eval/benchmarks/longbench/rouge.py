"""ROUGE-L by two packages, exactly: PyPI rouge 1.0.1 (LongBench) and rouge_score 0.1.2
(InfiniteBench), down to which common subsequence they read off their table (`lcs`)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

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
    common: set[str] = set()
    predicted_words = [(sentence, frozenset(sentence)) for sentence in predicted]
    for target in wanted:
        target_words = set(target)
        for sentence, words in predicted_words:
            if not (target_words & words) <= common:  # else it can add nothing
                common.update(target[row] for row, _ in lcs(target, sentence))
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
    left_predicted = Counter(word for line in predicted for word in line)
    left_wanted = Counter(word for line in wanted for word in line)
    hits = 0
    for target in wanted:
        for column in sorted(_united(target, predicted)):
            word = target[column]
            if left_predicted[word] > 0 and left_wanted[word] > 0:
                hits += 1
                left_predicted[word] -= 1
                left_wanted[word] -= 1
    precision, recall = hits / n_predicted, hits / n_wanted
    return 2 * precision * recall / (precision + recall) if hits else 0.0


def _united(target: list[str], predicted: list[list[str]]) -> set[int]:
    """Positions in the target that are on its LCS with any of the predicted lines."""
    positions: set[int] = set()
    for line in predicted:
        words = set(line)
        # It can add nothing
        if {column for column, word in enumerate(target) if word in words} <= positions:
            continue
        positions.update(column for _, column in lcs(line, target))
    return positions


def lcs(rows: Sequence[str], columns: Sequence[str]) -> list[tuple[int, int]]:
    """One longest common subsequence, as (row, column) of each common word. From the end it takes
    an equal pair; else it drops a row where only that keeps the length, else a column."""
    places: dict[str, int] = {}
    for column, word in enumerate(columns):
        places[word] = places.get(word, 0) | 1 << column
    every = (1 << len(columns)) - 1
    # flat[r] has bit c set if the length of the first r rows does not grow from column c to c + 1
    flat = [every]
    for word in rows:
        before = flat[-1]
        if hits := before & places.get(word, 0):
            flat.append(((before + hits) | (before - hits)) & every)
        else:
            flat.append(before)
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
