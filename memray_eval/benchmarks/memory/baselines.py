"""Candidates without a model that show what a figure of the memory suite is worth: a candidate that
is not above them has not used the memory with sense. Each sees the prompt that a model sees.

A job names one as `{baseline: dump}`."""

import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from memray_eval.benchmarks.conversations import Rank, rank_by_vectors, rank_by_words
from memray_eval.benchmarks.memory.suite import PROFILE

RETRIEVED = 5  # lines that a retrieval quotes
Messages = Sequence[Mapping[str, str]]
# Words in the names of keys that an assistant should not mention unasked
_PRIVATE = frozenset(
    """
    debt debts divorce court salary prison inheritance will custody affair bankrupt bankruptcy
    insolvency asylum visa miscarriage termination savings pension loan rent tax lawsuit conviction
    arrears feud quarrel dispute mortgage overdraft fine money secret sexual wife wifes husband
    husbands son sons daughter daughters sister sisters brother brothers mother mothers father
    fathers mum mums dad dads cousin friend partner ex old neighbour neighbours colleague
""".split()
)


def dump(messages: Messages) -> str:
    """Quotes the whole profile."""
    return _quote(_profile(messages))


def all_but_last(messages: Messages) -> str:
    """Quotes the profile without its last line."""
    return _quote(_profile(messages)[:-1])


def none(messages: Messages) -> str:
    """Quotes nothing."""
    return _quote([])


def key_words(messages: Messages) -> str:
    """Quotes the lines whose key names no person, no money and no matter of law."""
    keys = ((line, line.partition(":")[0]) for line in _profile(messages))
    return _quote([line for line, key in keys if not _PRIVATE & set(key.casefold().split())])


def lexical_retrieval(messages: Messages) -> str:
    """Quotes the RETRIEVED lines that BM25 ranks highest for the query."""
    return _retrieve(messages, rank_by_words)


def embedding_retrieval(messages: Messages) -> str:
    """Quotes the RETRIEVED lines nearest to the query by the local embedding model. Raises
    EmbeddingError."""
    return _retrieve(messages, lambda lines: rank_by_vectors(lines, "local"))


def _retrieve(messages: Messages, ranking: Callable[[Sequence[str]], Rank]) -> str:
    lines = _profile(messages)
    if not lines:
        return _quote([])
    scores = ranking(lines)(messages[-1]["content"])
    best = np.argsort(-scores, kind="stable")[:RETRIEVED]
    return _quote([lines[number] for number in sorted(best)])


def _profile(messages: Messages) -> list[str]:
    """The lines of the profile in the system message, as `key: value`."""
    _, _, text = messages[0]["content"].partition(f"{PROFILE}\n")
    block = text.partition("\n\n")[0]
    return [line for line in re.split(r"^- ", block, flags=re.MULTILINE)[1:] if ": " in line]


def _quote(lines: Sequence[str]) -> str:
    quoted = "".join(f"\n- {line.strip()}" for line in lines)
    return f"This is what I know of you:{quoted}" if lines else "Please see a doctor about this."
