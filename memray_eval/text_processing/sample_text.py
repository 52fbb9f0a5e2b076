"""How a sample's question with its choices, memory and history are written as text, for prompts,
judges and rules alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from string import ascii_uppercase

import numpy as np

from memray_eval.types import MemoryValue, Sample, session_of
from memray_eval.types.samples import CHOICES

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


def draw_order(sample: Sample, keys: Iterable[str]) -> list[str]:
    """Keys in an order drawn from the sample's id by a seed: the same for every candidate, judge
    and executor, and in all turns of a session, whatever order a file or a stage left them in. So a
    place gives away neither a key's role nor where the sample has been."""
    seed, names = f"{_SEED}\0{session_of(sample)}\0", list(keys)
    start = blake2b(seed.encode("utf-8", "surrogatepass"), digest_size=8)
    digests, copy = [], start.copy
    for name in names:
        drawn = copy()
        drawn.update(name.encode() if name.isascii() else name.encode("utf-8", "surrogatepass"))
        digests.append(drawn.digest())
    order = np.argsort(np.frombuffer(b"".join(digests), ">u8"), kind="stable")
    return [names[place] for place in order.tolist()]


@dataclass(frozen=True)
class _MemoryOf:
    """A sample as the key of a cache: equal to those of its session with the very same memory."""

    memory_id: int
    session: str
    sample: Sample = field(compare=False)


@lru_cache(1)  # a sample's candidates, and a record's judges, follow each other
def _memory_order(of: _MemoryOf) -> Sequence[str]:
    return draw_order(of.sample, of.sample.memory)


def memory_entries(sample: Sample) -> list[tuple[str, str]]:
    """The user's memory as keys and the texts of values, in the order of `draw_order`."""
    memory, of = sample.memory, _MemoryOf(id(sample.memory), session_of(sample), sample)
    return [
        (key, value if type(value := memory[key]) is str else value_text(value))
        for key in _memory_order(of)
    ]


def memory_lines(sample: Sample) -> str:
    """The user's memory, a line per key, in the order of `memory_entries`."""
    return "\n".join(f"{key}: {text}" for key, text in memory_entries(sample)) or "(empty)"


def history_lines(sample: Sample) -> str:
    """The earlier conversation, a line per turn."""
    return "\n".join(f"{turn.role}: {turn.content}" for turn in sample.history) or "(none)"
