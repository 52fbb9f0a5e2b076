"""One sample to make and its name, and seeded draws. A sample's generator is random.Random of its
own name, the same on every machine; draws by the million take those bits through numpy."""

from __future__ import annotations

from random import Random
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
UNITS = {"": 1, "k": 1024, "m": 1024 * 1024}


class QuestionOrder(NamedTuple):
    """One sample to make: `length` in tokens, `depth` in percent or None, `number` in its cell."""

    seed: int
    task: str
    language: str
    length: int
    depth: int | None
    number: int

    @property
    def id(self) -> str:
        depth = () if self.depth is None else (f"d{self.depth}",)
        return "-".join(
            (self.task, self.language, length_label(self.length), *depth, str(self.number))
        )

    def rng(self) -> Random:
        """The sample's own generator: it is the same sample whatever else is generated with it."""
        depth = "" if self.depth is None else self.depth
        return seeded_generator(
            self.seed, self.task, self.language, self.length, depth, self.number
        )


def length_label(length: int) -> str:
    for unit in ("m", "k"):
        if length % UNITS[unit] == 0:
            return f"{length // UNITS[unit]}{unit.upper() if unit == 'm' else unit}"
    return str(length)


def seeded_generator(*name: object) -> Random:
    """The generator that belongs to a name, such as (seed, task, language, length, depth, i)."""
    return Random(":".join(str(part) for part in name))


def integers(rng: Random, n: int, below: int) -> IntArray:
    """`n` integers of 0 to `below` - 1 (the modulo's bias is below / 2**32)."""
    return (np.frombuffer(rng.randbytes(4 * n), dtype="<u4") % below).astype(np.int64)


def distinct(rng: Random, n: int, below: int) -> list[int]:
    """`n` different integers of 0 to `below` - 1 in random order. Raises ValueError for too few."""
    if n > below:
        raise ValueError(f"there are no {n} different integers below {below}")
    if 2 * n <= below:
        # 1.26 n different ones are to be expected of 2 n draws, at the least
        drawn = integers(rng, 2 * n + 32, below)
        first = np.sort(np.unique(drawn, return_index=True)[1])
        if len(first) >= n:
            return cast(list[int], drawn[first[:n]].tolist())
    return cast(list[int], shuffle(rng, np.arange(below))[:n].tolist())


def shuffle(rng: Random, values: IntArray) -> IntArray:
    # all different: any way of sorting gives one order
    keys = np.frombuffer(rng.randbytes(8 * len(values)), dtype="<u8")
    return values[np.argsort(keys)]


def uuid4(rng: Random) -> str:
    bits = rng.getrandbits(128) & ~(0xF000 << 64) | (4 << 76)
    digits = f"{bits & ~(3 << 62) | (2 << 62):032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def word_of(rng: Random, letters: str, length: int) -> str:
    return "".join(rng.choices(letters, k=length))
