"""Invented prose from a seeded grammar: the haystack of the essay tasks. It has no digits."""

from __future__ import annotations

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
    language: str
    length: int
    depth: int | None
    number: int

    @property
    def id(self) -> str:
        depth = "" if self.depth is None else f"-d{self.depth}"
        return f"{self.task}-{self.language}-{length_label(self.length)}{depth}-{self.number}"

    def rng(self) -> Random:
        """The sample's own generator: it is the same sample whatever else is generated with it."""
        return seeded_generator(*("" if part is None else part for part in self))


def length_label(length: int) -> str:
    for unit, label in (("m", "M"), ("k", "k")):
        if length % UNITS[unit] == 0:
            return f"{length // UNITS[unit]}{label}"
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


BLOCK = 256  # units that share a generator
SMALLEST = 1024  # units of a pool, however short the samples
SPARE = 1.2  # units drawn for a sample, over what its length takes on the average

_FIRST_SENTENCE = re.compile(r".*?(?:[.!?](?=\s)|[。！？])")


class TextUnit(NamedTuple):
    """A stretch of text and, where questions are asked about it, its key and its values."""

    text: str
    key: str = ""
    values: tuple[str, ...] = ()


class Pile:
    """Units that samples draw from, and their tokens."""

    def __init__(self) -> None:
        self._units: list[TextUnit] = []
        self._counts = np.zeros(0, np.int64)

    def draw(self, rng: Random, tokens: int, extra: int = 0) -> list[int]:
        """Numbers of units: `extra`, then enough for so many tokens, whatever was drawn before."""
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
        name: tuple[object, ...],
        make: Callable[[Random, int], TextUnit],
        measure: Callable[[str], int],
        capacity: int | None = None,
    ) -> None:
        super().__init__()
        self._name, self._make, self._measure, self._capacity = name, make, measure, capacity

    def draw(self, rng: Random, tokens: int, extra: int = 0) -> list[int]:
        return self.sample(rng, math.ceil(tokens / self.mean * SPARE) + extra + 8)

    def sample(self, rng: Random, n: int) -> list[int]:
        """The numbers of `n` different units. Raises ConfigError if there cannot be so many."""
        if self._capacity is not None and n > self._capacity:
            raise ConfigError(
                f"there are {self._capacity:,} different {self._name[-2]} ({self._name[-1]}), and "
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
        """Makes the units up to a number, where they are not there yet."""
        before = len(self._units)
        if before >= size:
            return
        for first in range(before, size, BLOCK):
            rng = seeded_generator("pool", *self._name, first // BLOCK)
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
    """Before which unit a needle stands so that `depth` percent of the tokens are above it."""
    cuts = np.concatenate([np.zeros(1, np.int64), totals])
    return int(np.argmin(np.abs(cuts - depth / 100 * cuts[-1])))


def insert_needles(texts: list[str], needles: Sequence[tuple[int, str]]) -> str:
    """The texts in a row, each needle before the text of its number, in order."""
    pieces = list(texts)
    for number, needle in reversed(sorted(needles, key=lambda item: item[0])):
        pieces.insert(number, needle)
    return "".join(pieces)


SENTENCES = 3  # in a paragraph, which is one line

_EN_SLOTS = {
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
_EN_TEMPLATES = (
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

_ZH_SLOTS = {
    "who": (
        "面包师|摆渡人|姑姑|老教师|年迈的水手|钟表匠|邻居|年轻的医生|园丁|画师|图书管理员|磨坊主|"
        "她的哥哥|客栈老板|木匠|养蜂人|邮差|学徒|站长|织布的女工|厨子|合唱团的指挥|守夜人|"
        "陌生的旅客|船长|镇长|表弟|牧羊人|裁缝|说书人"
    ),
    "did": (
        "修好了|搬走了|画下了|弄丢了|借来了|藏起了|擦亮了|卖掉了|称赞过|带回了|寄出了|包好了|"
        "忘记了|检查了|拆开了|锁上了|守护着|收集了|送出了|寻找着|清点了|写到过|换来了|抱着|摆好了"
    ),
    "thing": (
        "一筐苹果|那架铜望远镜|一捆旧信|断了腿的椅子|一罐蜂蜜|船上的铜钟|一件毛衣|教堂里的风琴|"
        "一篮鸡蛋|蓝色的自行车|海岸的地图|结婚时的照片|一袋面粉|花园的木门|没写完的小说|几把银勺|"
        "一盒纽扣|晾着的渔网|一双长靴|长长的梯子|旧提琴|厨房的挂钟|一笼小鸟|店里的账本|一卷画布|"
        "铜水壶|一摞盘子|屋顶的风向标|一桶果酒|读书用的台灯"
    ),
    "where": (
        "在老磨坊后面|在集市边上|在港口的小屋里|在栗子树下|在运河旁|在楼上|在学校的院子里|"
        "在铁路桥附近|在码头尽头|在地窖里|在北门外|在广场对面|在通往山里的路上|在公园里|在河湾处|"
        "在海堤上|在后屋|在两片果园之间|在喷泉旁|在路口"
    ),
    "when": (
        "天刚亮的时候|收割之前|夜深以后|入春第一个暖和的日子|暴风雨过后|有一个星期天|隆冬时节|"
        "夏天快结束时|过了一个星期|店铺关门的那几天|赶集的日子|每到秋天|几年以前|第二天早晨|"
        "正午时分|过节前夕|就在那天夜里|雾散开以后|那些年里|晚饭之后"
    ),
    "why": (
        "因为桥正在重修|因为别人都没有耐心|虽然屋顶还在漏雨|好让孩子们有事可做|任凭雨点敲打着窗板|"
        "这是镇上的规矩|没有对任何人说起|原因从来没有人知道|尽管这样做并不划算|因为早就答应过|"
        "好像时间并不要紧|也不管天气多冷|因为煤又涨价了|因为信来得太迟|大家都很惊讶|"
        "算是帮朋友一个忙|故事就是这样流传的"
    ),
    "idea": (
        "耐心多半是练出来的|好工具比主人活得久|争吵往往始于听错的一句话|大海教会人等待|"
        "老房子记得盖它的人|分着吃的面包更香|看一个镇子要看它的长椅|地图里满是客气的谎话|"
        "最近的路未必最干爽|每一行都有自己的沉默|人们相信自己修得好的东西|冬天让陌生人成为邻居|"
        "花园永远没有完工的一天|小债最压人|雨天里走过才算认得一条街"
    ),
    "how": "缓慢|细心|好奇|固执|快活|健忘|节俭|安静|不安|体贴|骄傲|温和|邋遢|准时|大方|多疑|想家"
    "|务实|健谈|疲倦",
    "change": (
        "电车线路修到了采石场|图书馆添了第二个火炉|低处的田地排干了水|售票窗口上挂了新钟|"
        "渡船星期天也开了|戏院换了主人|果园分给了几个后人|大街两旁种上了椴树|老井盖上了盖子|"
        "粮仓里办起了音乐学校|磨坊的轮子停了下来|港口整个结了冰|盐价又跌了"
    ),
}
_ZH_TEMPLATES = (
    "{when}，{who}{where}{did}{thing}，{why}。",
    "{when}，{who}{did}{thing}，{who}却{where}{did}{thing}。",
    "{who}常说，{idea}，{why}。",
    "镇上没有谁比{who}更{how}，他{where}{did}{thing}。",
    "{when}，{change}，{who}{did}{thing}，{why}。",
    "俗话说{idea}，{who}对此深信不疑，{why}。",
    "{who}{where}{did}{thing}，{who}却从未留意。",
    "{change}的那一年，{who}{where}{did}{thing}。",
    "如果{idea}，那么{who}这样{how}也就不奇怪了。",
    "{who}和{who}{where}遇见，一直谈{thing}谈到天黑。",
    "{when}，总能看见{who}{where}等着{thing}，又{how}又{how}。",
    "信里写到{thing}和{thing}，也写到一年比一年{how}的{who}。",
    "{change}以后，人们都说{idea}。",
    "{who}{did}{thing}，比从前更{how}的{who}{where}{did}{thing}。",
)
_SLOTS = {
    language: {name: tuple(words.split("|")) for name, words in slots.items()}
    for language, slots in (("en", _EN_SLOTS), ("zh", _ZH_SLOTS))
}


# each template as parts (text before, slot, whether it starts with a capital)
_TEMPLATES = {
    language: tuple(
        tuple(
            (text, (slot or "").lower(), (slot or "").istitle())
            for text, slot, _, _ in Formatter().parse(template)
        )
        for template in templates
    )
    for language, templates in (("en", _EN_TEMPLATES), ("zh", _ZH_TEMPLATES))
}


def sentence(rng: Random, language: str) -> str:
    slots, words = _SLOTS[language], list[str]()
    for text, slot, is_capital in rng.choice(_TEMPLATES[language]):
        words.append(text)
        if slot:
            word = rng.choice(slots[slot])
            words.append(word[0].upper() + word[1:] if is_capital else word)
    return "".join(words)


def paragraph(rng: Random, language: str) -> str:
    """One line of prose, ending with a newline."""
    space = "" if language == "zh" else " "
    return space.join(sentence(rng, language) for _ in range(SENTENCES)) + "\n"
