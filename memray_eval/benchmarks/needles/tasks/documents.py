"""qa: a question on one document among many, about invented people."""

from collections.abc import Callable, Sequence
from random import Random

from memray_eval.benchmarks.needles.plan import SampleDraft, SampleSpec
from memray_eval.benchmarks.needles.prose import QuestionOrder, TextUnit, scatter
from memray_eval.benchmarks.needles.resources import Resources
from memray_eval.benchmarks.needles.tasks.words import ADJECTIVES, NOUNS

WORDS = {
    "head": "Below are documents. A question about one of them follows.\n",
    "closing": "This is the end of the documents.",
    "query": "Answer from the documents above, in as few words as possible. Question: {question}",
}
FACTS = ("birthplace", "book", "year", "teacher", "home")
QUESTIONS = {
    "birthplace": "In which town was {name} born?",
    "book": "Which book did {name} write?",
    "year": "In which year did {name} found a school?",
    "teacher": "Who taught {name}?",
    "home": "In which town did {name} live in old age?",
}
LIVES = (
    "Document: {name} was born in {birthplace} as the child of a {trade}. {name} was taught "
    "by {teacher}, wrote the "
    'book "{book}", and founded a school in {year}. In old age {name} lived in {home}.\n',
    "Document: The {trade} {name} came from {birthplace}. Taught by {teacher}, {name} opened "
    "a school in {year}. "
    '"{book}" is the only book by {name}, who moved to {home} in old age.\n',
    'Document: Readers of "{book}" know {name} as its author, but few know that {name} was '
    "born in {birthplace} and was a {trade}. The teacher of {name} was {teacher}. The school "
    "of {name} was founded in {year}; the last years were spent in {home}.\n",
)
TRADES = (
    "baker carpenter weaver painter surveyor printer glassblower potter gardener bookbinder "
    "mason sailor".split()
)
_STARTS = (
    "Bal Cor Del Fen Gar Hal Jor Kel Lam Mar Nor Pel Quen Ras Sel Tor Ul Vel Wes Yar Zan "
    "Bri Dru Fal Gri Hul Ist"
).split()
_MIDDLES = "a e i o u ar en il or um".split()
_FIRST_ENDS = "da na ra lo mi nis ric sa tan vin".split()
_LAST_ENDS = "beck dahl ford gren holt kamp lund mark quist rath sten tov vik wick".split()
_TOWN_ENDS = "bridge bury cliff dale field gate haven mere mouth ness port stead wold worth".split()
LEAST_OTHERS = 2


def qa(order: QuestionOrder, resources: Resources, slack: int) -> SampleDraft:
    """The document that answers is at the depth; no other holds the answer."""
    rng, words = order.rng(), WORDS
    pool = resources.pool("lives:en", _lives(resources.seed))
    target, *others = pool.draw(rng, order.length, extra=1)
    fact = rng.randrange(len(FACTS))
    unit = pool.unit(target)
    answer = unit.values[fact]
    others = [
        number
        for number in others
        if answer not in pool.unit(number).text and unit.key not in pool.unit(number).text
    ]
    question = QUESTIONS[FACTS[fact]].format(name=unit.key)
    query = words["query"].format(question=question)
    spec = SampleSpec(order, resources, slack, words["head"], words["closing"], query)
    depth = order.depth or 0
    return spec.hide([unit.text], pool, others, (answer,), depth=depth, least=LEAST_OTHERS)


def _lives(seed: int) -> Callable[[Random, int], TextUnit]:
    """A maker of lives. No two have the same name; other facts may be shared."""
    names = (len(_STARTS) * len(_MIDDLES)) ** 2 * len(_FIRST_ENDS) * len(_LAST_ENDS)
    scattered = scatter(names, seed, "lives", "en")

    def make(rng: Random, number: int) -> TextUnit:
        book = (rng.choice(ADJECTIVES), rng.choice(NOUNS))
        values = (
            _town(rng),
            "The {} {}".format(*(word.capitalize() for word in book)),
            str(rng.randint(1601, 1999)),
            _name(rng.randrange(names)),
            _town(rng),
        )
        name = _name(scattered(number % names))
        facts = dict(zip(FACTS, values, strict=True))
        return TextUnit(
            rng.choice(LIVES).format(name=name, trade=rng.choice(TRADES), **facts), name, values
        )

    return make


def _name(number: int) -> str:
    parts = _digits(number, _STARTS, _MIDDLES, _FIRST_ENDS, _STARTS, _MIDDLES, _LAST_ENDS)
    return "".join(parts[:3]) + " " + "".join(parts[3:])


def _town(rng: Random) -> str:
    return rng.choice(_STARTS) + rng.choice(_MIDDLES) + rng.choice(_TOWN_ENDS)


def _digits(number: int, *places: Sequence[str]) -> list[str]:
    """A number written with other digits at each place, the lowest first."""
    written = []
    for digits in places:
        number, digit = divmod(number, len(digits))
        written.append(digits[digit])
    return written
