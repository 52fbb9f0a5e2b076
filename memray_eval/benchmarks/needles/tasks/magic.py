"""RULER's niah family: values of keys as sentences in noise, in prose, or among their kind."""

from collections.abc import Callable
from random import Random
from typing import Literal, NamedTuple

from memray_eval.benchmarks.needles.plan import SampleDraft, SampleSpec
from memray_eval.benchmarks.needles.prose import (
    QuestionOrder,
    TextUnit,
    UnitPool,
    insert_sentence,
    scatter,
    uuid4,
)
from memray_eval.benchmarks.needles.resources import Resources
from memray_eval.benchmarks.needles.tasks.words import ADJECTIVES, NOUNS

WORDS = {
    "head": "Secret {kind}s are hidden in the text below. Keep them in mind: a question about "
    "them follows the text.\n",
    "closing": "This is the end of the text.",
    "needle": "The secret {kind} of {key} is {value}.",
    "one": "What is the secret {kind} of {key} in the text above? Reply with the {kind} only.",
    "several": "What are all the secret {kind}s of {key} in the text above? Reply with all "
    "{n} {kind}s and nothing else.",
    "number": "number",
    "uuid": "code",
}
N_KEYS = len(ADJECTIVES) * len(NOUNS)
LOWEST, HIGHEST = 1_000_000, 9_999_999  # numbers of seven digits each: none is part of another
LEAST_LINES = 4


class Variant(NamedTuple):
    """A variant: `keys` keys with `values` values each; the question is about `queries` keys."""

    haystack: Literal["noise", "essay", "decoys"]
    key: Literal["word", "uuid"] = "word"
    value: Literal["number", "uuid"] = "number"
    keys: int = 1
    values: int = 1
    queries: int = 1

    @property
    def n_needed(self) -> int:
        return self.values * self.queries


VARIANTS = {
    "niah_single_1": Variant("noise"),
    "niah_single_2": Variant("essay"),
    "niah_single_3": Variant("essay", value="uuid"),
    "niah_multikey_1": Variant("essay", keys=4),
    "niah_multikey_2": Variant("decoys"),
    "niah_multikey_3": Variant("decoys", key="uuid", value="uuid"),
    "niah_multivalue": Variant("essay", values=4),
    "niah_multiquery": Variant("essay", keys=4, queries=4),
}


def in_text(
    variant: Variant, order: QuestionOrder, resources: Resources, slack: int
) -> SampleDraft:
    """The first needle is at the depth asked for, the others at lines drawn for each."""
    rng, words = order.rng(), WORDS
    keys = [_key(number) for number in rng.sample(range(N_KEYS), variant.keys)]
    values = _values(rng, variant, resources.haystack_text)
    facts = [
        (key, value)
        for i, key in enumerate(keys)
        for value in values[i * variant.values : (i + 1) * variant.values]
    ]
    answers = tuple(value for key, value in facts if key in keys[: variant.queries])
    spec = _make_spec(variant, order, resources, slack, keys[: variant.queries])
    pile = resources.noise() if variant.haystack == "noise" else resources.essay()
    drawn = pile.draw(rng, order.length, extra=len(facts))
    hosts, lines = drawn[: len(facts)], drawn[len(facts) :]
    kind = words[variant.value]
    needles = [words["needle"].format(kind=kind, key=key, value=value) for key, value in facts]
    if variant.haystack == "noise":
        needles = [f"{needle}\n" for needle in needles]
    else:
        needles = [
            insert_sentence(pile.unit(host).text, needle)
            for host, needle in zip(hosts, needles, strict=True)
        ]
    return spec.hide(
        needles,
        pile,
        lines,
        answers,
        depth=order.depth,
        draw_places=lambda n: rng.sample(range(n + 1), len(facts)),
        least=max(LEAST_LINES, len(facts)),
    )


def among_decoys(
    variant: Variant, order: QuestionOrder, resources: Resources, slack: int
) -> SampleDraft:
    """The asked needle is one of many of its kind, all with other keys and values."""
    rng = order.rng()
    pool = _decoys(variant, resources)
    target, *others = pool.draw(rng, order.length, extra=1)
    unit = pool.unit(target)
    spec = _make_spec(variant, order, resources, slack, [unit.key])
    depth = order.depth or 0
    return spec.hide([unit.text], pool, others, unit.values, depth=depth, least=LEAST_LINES)


def _make_spec(
    variant: Variant, order: QuestionOrder, resources: Resources, slack: int, keys: list[str]
) -> SampleSpec:
    words, kind = WORDS, WORDS[variant.value]
    form = "one" if variant.n_needed == 1 else "several"
    query = words[form].format(kind=kind, key=", ".join(keys), n=variant.n_needed)
    head = words["head"].format(kind=kind)
    return SampleSpec(order, resources, slack, head, words["closing"], query)


def _key(number: int) -> str:
    return f"{ADJECTIVES[number % len(ADJECTIVES)]}-{NOUNS[number // len(ADJECTIVES)]}"


def _values(rng: Random, variant: Variant, text: str) -> list[str]:
    """Different values that the user's text does not happen to hold."""
    values: list[str] = []
    while len(values) < variant.keys * variant.values:
        value = str(rng.randint(LOWEST, HIGHEST)) if variant.value == "number" else uuid4(rng)
        if value not in values and value not in text:
            values.append(value)
    return values


def _decoys(variant: Variant, resources: Resources) -> UnitPool:
    kind, word_number = WORDS[variant.value], scatter(N_KEYS, resources.seed, "en")
    taken: set[str] = set()
    draw_value: Callable[[Random], str] = (
        uuid4 if variant.value == "uuid" else lambda rng: str(rng.randint(LOWEST, HIGHEST))
    )

    def make(rng: Random, number: int) -> TextUnit:
        key = uuid4(rng) if variant.key == "uuid" else _key(word_number(number % N_KEYS))
        value = draw_value(rng)
        while value in taken:
            value = draw_value(rng)
        taken.add(value)
        text = WORDS["needle"].format(kind=kind, key=key, value=value) + "\n"
        return TextUnit(text, key, (value,))

    capacity = None if variant.key == "uuid" else N_KEYS
    return resources.pool(f"keys of {variant.key}s:en", make, capacity=capacity)
