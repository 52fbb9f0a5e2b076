"""vt: a chain of variables that are assigned to one another, scattered over noise; all that hold
the value are asked for."""

from __future__ import annotations

from random import Random

from memray_eval.benchmarks.generator.question_order import QuestionOrder, word_of
from memray_eval.benchmarks.generator.resources import Resources
from memray_eval.benchmarks.generator.sample_spec import SampleDraft, SampleSpec

HOPS = 4
CAPITALS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
WORDS = {
    "en": {
        "head": "Some lines of the text below assign values to variables. For example, "
        "after\n{example}"
        "the variables that hold the value {value} are {names}.\nThe text follows.\n",
        "closing": "This is the end of the text.",
        "query": "Which variables hold the value {value} in the text above? Name all {n} of them "
        "and nothing else.",
        "and": ", ",
    },
    "zh": {
        "head": "下面的文字中，有些行给变量赋值。例如，在\n{example}之后，值为{value}的变量是{name"
        "s}。\n文字从这里开始。\n",
        "closing": "文字到此结束。",
        "query": "在上面的文字中，哪些变量的值是{value}？请写出全部{n}个变量名，不要写别的内容。",
        "and": "、",
    },
}


def vt(order: QuestionOrder, resources: Resources, slack: int) -> SampleDraft:
    rng, words = order.rng(), WORDS[order.language]
    value, other = (str(number) for number in rng.sample(range(10_000, 100_000), 2))
    names = _names(rng, HOPS + 1, 5)
    shown = next(
        shown
        for shown in iter(lambda: _names(rng, 2, 3), None)
        if not any(s in n for s in shown for n in names)
    )
    example = "".join(_chain(shown, other))
    head = words["head"].format(example=example, value=other, names=words["and"].join(shown))
    query = words["query"].format(value=value, n=len(names))
    spec = SampleSpec(order, resources, slack, head, words["closing"], query)
    noise = resources.noise(order.language)
    lines, chain = noise.draw(rng, order.length), _chain(names, value)
    return spec.hide(
        chain,
        int(resources.counter.lines(chain).sum()),
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
