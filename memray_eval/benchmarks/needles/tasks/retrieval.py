"""Things to find: a number in noise (passkey: 5 digits, number_string: 10 digits in runs), a value
in a JSON object of random UUIDs (kv_retrieval), variables of a chain of assignments (vt)."""

from random import Random

from memray_eval.benchmarks.needles.plan import SampleDraft, SampleSpec
from memray_eval.benchmarks.needles.prose import QuestionOrder, TextUnit, uuid4, word_of
from memray_eval.benchmarks.needles.resources import LINE, Resources

NUMBER = {
    "head": "One thing worth knowing is hidden in the text below. Find it and keep it in mind.\n",
    "closing": "This is the end of the text.",
    "needle": "The {what} is {number}. Keep it in mind: {number} is the {what}.\n",
    "query": "What is the {what} in the text above? Reply with the number only.",
    "passkey": "pass key",
    "number_string": "long number",
}
PAIRS = {
    "head": "Below is a JSON object of keys and values.\n",
    "query": 'What value does the key "{key}" have in the JSON object above? Reply with the '
    "value only.",
}
LEAST_LINES, LEAST_PAIRS = 2, 2


def passkey(order: QuestionOrder, resources: Resources, slack: int) -> SampleDraft:
    rng = order.rng()
    return _hide_number(str(rng.randint(10_000, 99_999)), order, resources, slack, rng)


def number_string(order: QuestionOrder, resources: Resources, slack: int) -> SampleDraft:
    rng = order.rng()
    digits = [str(rng.randrange(10)) for _ in range(5)]
    for _ in range(5):
        position = rng.randrange(len(digits))
        digits.insert(position, digits[position])
    return _hide_number("".join(digits), order, resources, slack, rng)


def _hide_number(
    number: str, order: QuestionOrder, resources: Resources, slack: int, rng: Random
) -> SampleDraft:
    words, what = NUMBER, NUMBER[order.task]
    needle = words["needle"].format(what=what, number=number)
    query = words["query"].format(what=what)
    spec = SampleSpec(order, resources, slack, words["head"], words["closing"], query)
    noise = resources.noise()
    lines, depth = noise.draw(rng, order.length), order.depth or 0
    return spec.hide([needle], noise, lines, (number,), depth=depth, least=LEAST_LINES)


def kv_retrieval(order: QuestionOrder, resources: Resources, slack: int) -> SampleDraft:
    """The asked pair is at `depth` percent of all: at 100 the last, which has no comma."""
    rng, words = order.rng(), PAIRS
    pool = resources.pool("pairs:", _pair)
    target, last, *others = pool.draw(rng, order.length, extra=2)
    if order.depth == 100:
        last = target
    key, value = pool.unit(target).key, pool.unit(target).values[0]
    closing = pool.unit(last).text.rstrip(",\n") + "\n}"
    query = words["query"].format(key=key)
    spec = SampleSpec(order, resources, slack, words["head"], closing, query)
    own = [] if order.depth == 100 else [target]
    totals = (
        resources.counter.cached(LINE, "{\n") + int(pool.counts(own).sum()) + pool.totals(others)
    )
    n = spec.most(totals, LEAST_PAIRS)
    lines = pool.texts(others[:n])
    for number in own:
        lines.insert(min(n, round((order.depth or 0) / 100 * (n + 1))), pool.unit(number).text)
    return spec.finish("{\n" + "".join(lines), int(totals[n - 1]), (value,))


def _pair(rng: Random, _: int) -> TextUnit:
    key, value = uuid4(rng), uuid4(rng)
    return TextUnit(f'"{key}": "{value}",\n', key, (value,))


HOPS = 4
CAPITALS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
VARIABLES = {
    "head": "Some lines of the text below assign values to variables. For example, "
    "after\n{example}"
    "the variables that hold the value {value} are {names}.\nThe text follows.\n",
    "closing": "This is the end of the text.",
    "query": "Which variables hold the value {value} in the text above? Name all {n} of them "
    "and nothing else.",
}


def vt(order: QuestionOrder, resources: Resources, slack: int) -> SampleDraft:
    rng, words = order.rng(), VARIABLES
    value, other = (str(number) for number in rng.sample(range(10_000, 100_000), 2))
    names = _names(rng, HOPS + 1, 5)
    shown = next(
        shown
        for shown in iter(lambda: _names(rng, 2, 3), None)
        if not any(s in n for s in shown for n in names)
    )
    example = "".join(_chain(shown, other))
    head = words["head"].format(example=example, value=other, names=", ".join(shown))
    query = words["query"].format(value=value, n=len(names))
    spec = SampleSpec(order, resources, slack, head, words["closing"], query)
    noise = resources.noise()
    lines, chain = noise.draw(rng, order.length), _chain(names, value)
    return spec.hide(
        chain,
        noise,
        lines,
        tuple(names),
        draw_places=lambda n: sorted(rng.sample(range(n + 1), len(chain))),
        least=len(chain),
    )


def _names(rng: Random, n: int, letters: int) -> list[str]:
    names: dict[str, None] = {}
    while len(names) < n:
        names[word_of(rng, CAPITALS, letters)] = None
    return list(names)


def _chain(names: list[str], value: str) -> list[str]:
    pairs = zip(names, [value, *(f"VAR {name}" for name in names)], strict=False)
    return [f"VAR {name} = {source}\n" for name, source in pairs]
