"""Invented prose from a seeded grammar: the haystack of the essay tasks. It has no digits."""

import math
import re
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from random import Random
from string import Formatter
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from memray_eval.errors import ConfigError

IntArray = NDArray[np.int64]
UNITS = {"": 1, "k": 1024, "m": 1024 * 1024}


class QuestionOrder(NamedTuple):
    """One sample to make: `length` in tokens, `depth` in percent or None, `number` in its cell."""

    seed: int
    task: str
    length: int
    depth: int | None
    number: int

    @property
    def id(self) -> str:
        depth = "" if self.depth is None else f"-d{self.depth}"
        return f"{self.task}-en-{length_label(self.length)}{depth}-{self.number}"

    def rng(self) -> Random:
        """The sample's own generator: it is the same sample whatever else is generated with it."""
        # "en", here and in names of pools: another name would be another text
        seed, task, *cell = ("" if part is None else part for part in self)
        return seeded_generator(seed, task, "en", *cell)


def length_label(length: int) -> str:
    for unit, label in (("m", "M"), ("k", "k")):
        if length % UNITS[unit] == 0:
            return f"{length // UNITS[unit]}{label}"
    return str(length)


def seeded_generator(*name: object) -> Random:
    """The generator that belongs to a name, such as (seed, task, length, depth, i)."""
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


BLOCK = 256  # units that share a generator
SMALLEST = 1024  # units of a pool, however short the samples
SPARE = 1.2  # units drawn for a sample, over what its length takes on the average

_FIRST_SENTENCE = re.compile(r".*?(?:[.!?](?=\s)|[。！？])")


class TextUnit(NamedTuple):
    """A stretch of text and, if questions are asked about it, its key and its values."""

    text: str
    key: str = ""
    values: tuple[str, ...] = ()


class Pile:
    """Units that samples draw from, and their tokens."""

    def __init__(self) -> None:
        self._units: list[TextUnit] = []
        self._counts = np.zeros(0, np.int64)

    def draw(self, rng: Random, tokens: int, extra: int = 0) -> list[int]:
        """Numbers of units: `extra`, then enough for `tokens`, whatever was drawn before."""
        raise NotImplementedError

    def unit(self, number: int) -> TextUnit:
        return self._units[number]

    def texts(self, numbers: Sequence[int]) -> list[str]:
        units = self._units
        return [units[number].text for number in numbers]

    def counts(self, numbers: Sequence[int]) -> IntArray:
        return self._counts[numbers]

    def totals(self, numbers: Sequence[int]) -> IntArray:
        """Tokens of the first 1, 2, ... of these units."""
        return np.cumsum(self._counts[numbers])


class UnitPool(Pile):
    """Units that `make` makes from their number, each its own. No sample draws one twice."""

    def __init__(
        self,
        seed: int,
        name: str,
        make: Callable[[Random, int], TextUnit],
        measure: Callable[[str], int],
        capacity: int | None = None,
    ) -> None:
        super().__init__()
        self._seed, self._name, self._capacity = seed, name, capacity
        self._make, self._measure = make, measure

    def draw(self, rng: Random, tokens: int, extra: int = 0) -> list[int]:
        return self.sample(rng, math.ceil(tokens / self.mean * SPARE) + extra + 8)

    def sample(self, rng: Random, n: int) -> list[int]:
        """The numbers of `n` different units. Raises ConfigError if there are fewer."""
        if self._capacity is not None and n > self._capacity:
            raise ConfigError(
                f"there are {self._capacity:,} different {self._name.partition(':')[0]}, and "
                f"a sample of this length draws from {n:,}: its largest length is about "
                f"{int(self._capacity / SPARE * self.mean):,} tokens"
            )
        size = max(SMALLEST, 1 << math.ceil(math.log2(2 * n)))
        size = size if self._capacity is None else min(size, self._capacity)
        self.grow(size)
        return distinct(rng, n, size)

    @cached_property
    def mean(self) -> float:
        """Tokens of a unit, by the first block."""
        self.grow(BLOCK)
        return max(1.0, float(self._counts[:BLOCK].mean()))

    def grow(self, size: int) -> None:
        """Makes the missing units up to a number."""
        before = len(self._units)
        if before >= size:
            return
        for first in range(before, size, BLOCK):
            rng = seeded_generator("pool", self._seed, self._name, first // BLOCK)
            self._units.extend(self._make(rng, number) for number in range(first, first + BLOCK))
        new = np.fromiter((self._measure(unit.text) for unit in self._units[before:]), np.int64)
        self._counts = np.concatenate([self._counts, new])


class Corpus(Pile):
    """Lines of a text in order, from the sample's own line on, and again after the end."""

    def __init__(self, lines: Sequence[str], measure: Callable[[str], int]) -> None:
        super().__init__()
        self._units = [TextUnit(line) for line in lines]
        self._counts = np.fromiter((measure(line) for line in lines), np.int64, len(lines))

    def draw(self, rng: Random, tokens: int, extra: int = 0) -> list[int]:
        n = math.ceil(tokens / max(1.0, float(self._counts.mean())) * SPARE) + extra + 8
        size = len(self._units)
        if size > 1:  # lines differ in length: never short of what the mean promises
            n += size
        start = rng.randrange(size)
        return [number % size for number in range(start, start + n)]


@lru_cache(maxsize=64)
def scatter(size: int, *name: object) -> Callable[[int], int]:
    """A one-to-one map of 0 to size - 1 onto itself that scatters neighbours."""
    rng = seeded_generator("spread", *name)
    steps = iter(lambda: rng.randrange(size // 3, size), -1)
    step = next(step for step in steps if math.gcd(step, size) == 1)
    start = rng.randrange(size)
    return lambda number: (number * step + start) % size


def insert_sentence(paragraph: str, sentence: str) -> str:
    """The paragraph with a sentence put in after its first one."""
    match = _FIRST_SENTENCE.match(paragraph)
    first = match.group() if match else ""
    if not first or not paragraph[len(first) :].strip():
        return f"{sentence}\n"
    if first[-1] in "。！？":
        return first + sentence + paragraph[len(first) :]
    return f"{first} {sentence}{paragraph[len(first) :]}"


def nearest_cut(totals: IntArray, depth: int) -> int:
    """The unit before which a needle has `depth` percent of the tokens above it."""
    cuts = np.concatenate([np.zeros(1, np.int64), totals])
    return int(np.argmin(np.abs(cuts - depth / 100 * cuts[-1])))


def insert_needles(texts: list[str], needles: Sequence[tuple[int, str]]) -> str:
    """The texts in a row, each needle before the text of its number, in order."""
    pieces = list(texts)
    for number, needle in reversed(sorted(needles, key=lambda item: item[0])):
        pieces.insert(number, needle)
    return "".join(pieces)


SENTENCES = 3  # in a paragraph, which is one line

_SLOTS = {
    "who": (
        "the baker|the ferryman|my aunt|the schoolteacher|an old sailor|the clockmaker|"
        "our neighbour|the young doctor|the gardener|a travelling painter|the librarian|"
        "the miller|her brother|the innkeeper|a retired judge|the carpenter|the beekeeper|"
        "the postman|the widow next door|a student of law|the stationmaster|the weaver|the cook|"
        "the apprentice|the choir master|the mapmaker|the night watchman|a quiet stranger|"
        "the glassblower|the captain|the mayor|my cousin|the shepherd|the tailor"
    ),
    "did": (
        "carried|mended|painted|described|lost|borrowed|hid|sketched|counted|polished|sold|"
        "praised|kept|sent away|put back|weighed|measured|returned|wrapped up|forgot|admired|"
        "traded|inspected|took apart|locked up|wrote about|guarded|collected|labelled|repaired|"
        "gave away|looked for|brought home|photographed|dusted|examined"
    ),
    "thing": (
        "a crate of apples|the brass telescope|a bundle of letters|the broken chair|a jar of honey|"
        "the ship's bell|a woollen coat|the church organ|a basket of eggs|the blue bicycle|"
        "a map of the coast|the wedding photographs|a sack of flour|the garden gate|"
        "an unfinished novel|the silver spoons|a tin of buttons|the fishing nets|a pair of boots|"
        "the long ladder|an old violin|the kitchen clock|a cage of finches|the account books|"
        "a roll of canvas|the copper kettle|a stack of plates|the weather vane|a barrel of cider|"
        "the reading lamp|a chest of tools|the spinning wheel|a box of chalk|the torn sail"
    ),
    "where": (
        "behind the old mill|at the edge of the market|in the harbour office|"
        "under the chestnut tree|beside the canal|on the upper floor|in the school yard|"
        "near the railway bridge|at the far end of the pier|in the cellar|by the north gate|"
        "across the square|on the road to the hills|in the public gardens|above the bakery|"
        "at the bend of the river|inside the chapel|along the sea wall|in the back room|"
        "between the two orchards|outside the town hall|on the landing|among the vines|"
        "next to the fountain|in the drying shed|at the crossroads|beneath the lighthouse|"
        "in a rented attic"
    ),
    "when": (
        "At dawn|Before the harvest|Late in the evening|On the first warm day of spring|"
        "After the storm|During the long strike|One Sunday|In the middle of winter|"
        "Toward the end of the summer|A week later|While the shops were closed|On market day|"
        "Every autumn|Some years earlier|The following morning|At noon|Just before the holidays|"
        "That same night|When the fog had lifted|In those days|Shortly after supper|"
        "Between two trains|Once the guests had left|All through June"
    ),
    "why": (
        "because the bridge was being rebuilt|since nobody else had the patience|"
        "although the roof still leaked|so that the children would have something to do|"
        "while the rain beat against the shutters|as custom required|"
        "without saying a word to anyone|for reasons that were never explained|"
        "although it was hardly worth the trouble|because a promise had been made|"
        "as if time did not matter|in spite of the cold|while the band was rehearsing|"
        "since the price of coal had gone up|because the letter had come too late|"
        "to everyone's surprise|as a favour to a friend|"
        "although the doctor had advised against it|while the kettle was coming to the boil|"
        "so the story goes"
    ),
    "idea": (
        "patience is mostly a matter of practice|a good tool outlives its owner|"
        "most quarrels begin with a misheard word|the sea teaches people to wait|"
        "nothing is as slow as a committee|old houses remember their builders|"
        "bread tastes better when it is shared|a town is known by its benches|"
        "maps are full of polite lies|the shortest road is seldom the driest|"
        "every trade has its own silence|people trust what they can repair|"
        "winter makes neighbours of strangers|a garden is never finished|"
        "small debts weigh the most|luck visits those who leave the door open|"
        "rivers keep no secrets for long|one learns a street by walking it in the rain"
    ),
    "how": (
        "slow|careful|curious|stubborn|cheerful|absent-minded|thrifty|silent|restless|thoughtful"
        "|proud|gentle|untidy|punctual|"
        "generous|sceptical|homesick|practical|dreamy|talkative|weary|hopeful|polite|ambitious"
    ),
    "change": (
        "the tram line was extended to the quarry|the library bought a second stove|"
        "the lower fields were drained|a new clock was hung above the ticket window|"
        "the ferry began to run on Sundays|the theatre changed hands|"
        "the orchard was divided among the heirs|the council planted lime trees along the avenue|"
        "the old well was covered over|a school of music opened in the granary|"
        "the mill wheel stopped for good|the lamps were lit an hour later|"
        "the harbour froze from wall to wall|the price of salt fell again|"
        "a second bridge was promised"
    ),
}
_TEMPLATES = (
    "{when}, {who} {did} {thing} {where}, {why}.",
    "{When} {who} {did} {thing}, and {who} {did} {thing} {where}.",
    "It was {who} who {did} {thing} {where}, {why}.",
    "{Who} used to say that {idea}, {why}.",
    "Nobody in the town was as {how} as {who}, who {did} {thing} {where}.",
    "{when}, {change}, and {who} {did} {thing} {why}.",
    "There is a saying that {idea}; {who} believed it, {why}.",
    "{Who} {did} {thing} {where}, but {who} never noticed.",
    "In the year when {change}, {who} {did} {thing} {where}.",
    "If {idea}, then {who} was right to be so {how}.",
    "{Who} and {who} met {where} and talked about {thing} until it was dark.",
    "What {who} {did} {where} was not {thing} at all but {thing}, {why}.",
    "{when}, one could see {who} {where}, {how} and {how}, waiting for {thing}.",
    "The letters speak of {thing}, of {thing} and of {who}, who grew more {how} each year.",
    "After {change}, people said that {idea}.",
    "{Who} {did} {thing}; {who}, more {how} than ever, {did} {thing} {where}.",
)
_WORDS = {slot: tuple(words.split("|")) for slot, words in _SLOTS.items()}
# each template as parts (text before, slot, whether it starts with a capital)
_PARTS = tuple(
    tuple(
        (text, (slot or "").lower(), (slot or "").istitle())
        for text, slot, _, _ in Formatter().parse(template)
    )
    for template in _TEMPLATES
)


def _sentence(rng: Random) -> str:
    words = list[str]()
    for text, slot, is_capital in rng.choice(_PARTS):
        words.append(text)
        if slot:
            word = rng.choice(_WORDS[slot])
            words.append(word[0].upper() + word[1:] if is_capital else word)
    return "".join(words)


def paragraph(rng: Random) -> str:
    """One line of prose, ending with a newline."""
    return " ".join(_sentence(rng) for _ in range(SENTENCES)) + "\n"
