"""Where each id of a dataset stood first."""

from __future__ import annotations

from array import array

import numpy as np
import numpy.typing as npt

_SMALLEST = 1 << 10  # slots
_MOST_FULL = 2 / 3
_MOST_WORDS = 256
_NUMBER_BITS = 48
_MOST_NUMBER = (1 << _NUMBER_BITS) - 1

Numbers = npt.NDArray[np.uint64]


class FirstPlaces:
    """By an id's number (8 bytes, a digest of it), the place where it stood first, in words: a hash
    table of open addresses in two arrays. A place such as "row 12" takes 16 bytes of them, so that
    a million ids take 34 MB, where a dict of texts takes 200."""

    def __init__(self) -> None:
        self._n = 0
        self._numbers = array("Q", bytes(8 * _SMALLEST))  # 0: free
        # The word's number from 1 on, and the number after it; 0 for one of `_texts`
        self._places = array("Q", bytes(8 * _SMALLEST))
        self._words: dict[str, int] = {}
        self._texts: dict[int, str] = {}

    def __len__(self) -> int:
        return self._n

    def find_or_add(self, number: int, place: str) -> str | None:
        """Where the id of this number stood first; None if it is new, and stands at `place`."""
        number = number or 1
        numbers, mask = self._numbers, len(self._numbers) - 1
        slot = number & mask
        while there := numbers[slot]:
            if there == number:
                return self._place_at(slot)
            slot = (slot + 1) & mask
        numbers[slot] = number
        self._places[slot] = self._pack(place)
        if not self._places[slot]:
            self._texts[number] = place
        self._n += 1
        if self._n > _MOST_FULL * len(numbers):
            self._resize(2 * len(numbers))
        return None

    def isdisjoint(self, other: FirstPlaces) -> bool:
        wanted = other._filled()
        numbers = np.frombuffer(self._numbers, np.uint64)
        slots = wanted & np.uint64(numbers.size - 1)
        while wanted.size:
            there = numbers[slots]
            if (there == wanted).any():
                return False
            wanted, slots = wanted[there != 0], slots[there != 0]
            slots = (slots + np.uint64(1)) & np.uint64(numbers.size - 1)
        return True

    def update(self, other: FirstPlaces) -> None:
        """Adds the ids of another, none of which is here."""
        numbers, theirs = other._filled(), other._packed()
        packed = theirs.copy()
        for word, number in other._words.items():
            own = self._words.setdefault(word, len(self._words) + 1)
            is_word = theirs >> np.uint64(_NUMBER_BITS) == number
            packed[is_word] = theirs[is_word] & np.uint64(_MOST_NUMBER) | np.uint64(
                own << _NUMBER_BITS
            )
        self._texts |= other._texts
        self._n += len(other)
        if self._n > _MOST_FULL * len(self._numbers):
            size = len(self._numbers)
            while self._n > _MOST_FULL * size:
                size *= 2
            self._resize(size)
        self._insert(numbers, packed)

    def _filled(self) -> Numbers:
        numbers: Numbers = np.frombuffer(self._numbers, np.uint64)
        found: Numbers = numbers[numbers != 0]
        return found

    def _packed(self) -> Numbers:
        """The packed place of each filled slot."""
        places: Numbers = np.frombuffer(self._places, np.uint64)
        found: Numbers = places[np.frombuffer(self._numbers, np.uint64) != 0]
        return found

    def _pack(self, place: str) -> int:
        """A place as a number, 0 where it is not a word and a number."""
        word, blank, digits = place.rpartition(" ")
        if (
            not blank
            or not (digits.isascii() and digits.isdigit())
            or (digits[0] == "0" and digits != "0")
        ):
            return 0
        number = int(digits)
        if number > _MOST_NUMBER or (word not in self._words and len(self._words) == _MOST_WORDS):
            return 0
        return self._words.setdefault(word, len(self._words) + 1) << _NUMBER_BITS | number

    def _place_at(self, slot: int) -> str:
        packed = self._places[slot]
        if not packed:
            return self._texts[self._numbers[slot]]
        word = list(self._words)[(packed >> _NUMBER_BITS) - 1]
        return f"{word} {packed & _MOST_NUMBER}"

    def _resize(self, size: int) -> None:
        numbers, packed = self._filled(), self._packed()
        self._numbers, self._places = array("Q", bytes(8 * size)), array("Q", bytes(8 * size))
        self._insert(numbers, packed)

    def _insert(self, numbers: Numbers, packed: Numbers) -> None:
        """Puts ids into the table, none of which is there: round by round, each into the first slot
        that is free from its own on."""
        table, places = (np.frombuffer(of, np.uint64) for of in (self._numbers, self._places))
        last = np.uint64(table.size - 1)
        slots, left = numbers & last, np.arange(numbers.size)
        while left.size:
            free = left[table[slots[left]] == 0]
            table[slots[free]] = numbers[free]  # of several that want a slot, the last has it
            placed = table[slots[left]] == numbers[left]
            places[slots[left[placed]]] = packed[left[placed]]
            left = left[~placed]
            slots[left] = (slots[left] + np.uint64(1)) & last
