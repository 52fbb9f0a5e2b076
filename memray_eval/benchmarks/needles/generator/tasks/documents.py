"""qa: a question on one document among many, about invented people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from memray_eval.benchmarks.generator.plan import SampleDraft, SampleSpec
from memray_eval.benchmarks.generator.prose import (
    QuestionOrder,
    TextUnit,
    scatter,
    word_of,
)
from memray_eval.benchmarks.generator.resources import Resources
from memray_eval.benchmarks.needles.generator.words import ADJECTIVES, CHARACTERS, NOUNS

WORDS = {
    "en": {
        "head": "Below are documents. A question about one of them follows.\n",
        "closing": "This is the end of the documents.",
        "query": "Answer from the documents above, in as few words as possible. Question: "
        "{question}",
        "document": "Document: ",
    },
    "zh": {
        "head": "下面是若干文档，之后会就其中一篇提问。\n",
        "closing": "文档到此结束。",
        "query": "请根据上面的文档，用尽量少的字回答。问题：{question}",
        "document": "文档：",
    },
}
FACTS = ("birthplace", "book", "year", "teacher", "home")
QUESTIONS = {
    "en": {
        "birthplace": "In which town was {name} born?",
        "book": "Which book did {name} write?",
        "year": "In which year did {name} found a school?",
        "teacher": "Who taught {name}?",
        "home": "In which town did {name} live in old age?",
    },
    "zh": {
        "birthplace": "{name}出生在哪个镇？",
        "book": "{name}写过哪本书？",
        "year": "{name}在哪一年创办了学校？",
        "teacher": "{name}的老师是谁？",
        "home": "{name}晚年住在哪个镇？",
    },
}
LIVES = {
    "en": (
        "Document: {name} was born in {birthplace} as the child of a {trade}. {name} was taught "
        "by {teacher}, wrote the "
        'book "{book}", and founded a school in {year}. In old age {name} lived in {home}.\n',
        "Document: The {trade} {name} came from {birthplace}. Taught by {teacher}, {name} opened "
        "a school in {year}. "
        '"{book}" is the only book by {name}, who moved to {home} in old age.\n',
        'Document: Readers of "{book}" know {name} as its author, but few know that {name} was '
        "born in {birthplace} and was a {trade}. The teacher of {name} was {teacher}. The school "
        "of {name} was founded in {year}; the last years were spent in {home}.\n",
    ),
    "zh": (
        "文档：{name}出生在{birthplace}，父亲是{trade}。{name}师从{teacher}，著有《{book}》，并在"
        "{year}年创办了一所学校。{name}晚年住在{home}。\n",
        "文档：{trade}{name}来自{birthplace}。{name}的老师是{teacher}。{year}年，{name}办起了学"
        "校，至今仍在。《{book}》是{name}唯一的著作，晚年{name}搬到了{home}。\n",
        "文档：《{book}》的作者是{name}。很少有人知道，{name}生于{birthplace}，做过{trade}，老师是"
        "{teacher}。{name}创办的学校始于{year}年，{name}的晚年在{home}度过。\n",
    ),
}
TRADES = {
    "en": "baker carpenter weaver painter surveyor printer glassblower potter gardener bookbinder "
    "mason sailor".split(),
    "zh": "面包师 木匠 织工 画师 测量员 印刷工 玻璃匠 陶工 园丁 装订匠 石匠 水手".split(),
}
_STARTS = (
    "Bal Cor Del Fen Gar Hal Jor Kel Lam Mar Nor Pel Quen Ras Sel Tor Ul Vel Wes Yar Zan "
    "Bri Dru Fal Gri Hul Ist"
).split()
_MIDDLES = "a e i o u ar en il or um".split()
_FIRST_ENDS = "da na ra lo mi nis ric sa tan vin".split()
_LAST_ENDS = "beck dahl ford gren holt kamp lund mark quist rath sten tov vik wick".split()
_TOWN_ENDS = "bridge bury cliff dale field gate haven mere mouth ness port stead wold worth".split()
_SURNAMES = (
    "赵钱孙李周吴郑王冯陈褚卫蒋沈韩杨朱秦尤许何吕施张孔曹严华金魏陶姜戚谢邹喻柏水窦章云苏潘"
    "葛范彭郎鲁韦昌马苗"
)
LEAST_OTHERS = 2


def qa(order: QuestionOrder, resources: Resources, slack: int) -> SampleDraft:
    """The document that answers is at the depth; no other holds the answer."""
    rng, words = order.rng(), WORDS[order.language]
    pool = resources.pool("lives", order.language, _lives(order.language, resources.seed))
    target, *others = pool.draw(rng, order.length, extra=1)
    fact = rng.randrange(len(FACTS))
    unit = pool.unit(target)
    answer = unit.values[fact]
    others = [
        number
        for number in others
        if answer not in pool.unit(number).text and unit.key not in pool.unit(number).text
    ]
    question = QUESTIONS[order.language][FACTS[fact]].format(name=unit.key)
    query = words["query"].format(question=question)
    spec = SampleSpec(order, resources, slack, words["head"], words["closing"], query)
    depth = order.depth or 0
    return spec.hide([unit.text], pool, others, (answer,), depth=depth, least=LEAST_OTHERS)


def _lives(language: str, seed: int) -> Callable[[Random, int], TextUnit]:
    """A maker of lives. No two have the same name; other facts may be shared."""
    texts, adjectives, nouns = LIVES[language], ADJECTIVES[language], NOUNS[language]
    names = (
        len(_SURNAMES) * len(CHARACTERS) ** 2
        if language == "zh"
        else (len(_STARTS) * len(_MIDDLES)) ** 2 * len(_FIRST_ENDS) * len(_LAST_ENDS)
    )
    scattered = scatter(names, seed, "lives", language)

    def make(rng: Random, number: int) -> TextUnit:
        book = (rng.choice(adjectives), rng.choice(nouns))
        values = (
            _town(rng, language),
            "The {} {}".format(*(word.capitalize() for word in book))
            if language == "en"
            else "的".join(book),
            str(rng.randint(1601, 1999)),
            _name(rng.randrange(names), language),
            _town(rng, language),
        )
        name = _name(scattered(number % names), language)
        facts = dict(zip(FACTS, values, strict=True))
        return TextUnit(
            rng.choice(texts).format(name=name, trade=rng.choice(TRADES[language]), **facts),
            name,
            values,
        )

    return make


def _name(number: int, language: str) -> str:
    if language == "zh":
        return "".join(_digits(number, _SURNAMES, CHARACTERS, CHARACTERS))
    parts = _digits(number, _STARTS, _MIDDLES, _FIRST_ENDS, _STARTS, _MIDDLES, _LAST_ENDS)
    return "".join(parts[:3]) + " " + "".join(parts[3:])


def _town(rng: Random, language: str) -> str:
    if language == "zh":
        return word_of(rng, CHARACTERS, 2) + "镇"
    return rng.choice(_STARTS) + rng.choice(_MIDDLES) + rng.choice(_TOWN_ENDS)


def _digits(number: int, *places: Sequence[str]) -> list[str]:
    """A number written with other digits at each place, the lowest first."""
    written = []
    for digits in places:
        number, digit = divmod(number, len(digits))
        written.append(digits[digit])
    return written
