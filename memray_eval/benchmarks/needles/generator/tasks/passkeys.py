"""A number in a text of nothing but noise: passkey (5 digits) and number_string (10 digits in
runs)."""

from __future__ import annotations

from random import Random

from memray_eval.benchmarks.generator.pools import insert_needles, nearest_cut
from memray_eval.benchmarks.generator.question_order import QuestionOrder
from memray_eval.benchmarks.generator.resources import Resources
from memray_eval.benchmarks.generator.sample_spec import SampleDraft, SampleSpec

WORDS = {
    "en": {
        "head": "One thing worth knowing is hidden in the text below. Find it and keep it in "
        "mind.\n",
        "closing": "This is the end of the text.",
        "needle": "The {what} is {number}. Keep it in mind: {number} is the {what}.\n",
        "query": "What is the {what} in the text above? Reply with the number only.",
        "passkey": "pass key",
        "number_string": "long number",
    },
    "zh": {
        "head": "下面的文字里藏着一条有用的信息，请找到并记住它。\n",
        "closing": "文字到此结束。",
        "needle": "{what}是{number}。请记住，{number}就是{what}。\n",
        "query": "上文中的{what}是什么？请只回答数字。",
        "passkey": "通行密码",
        "number_string": "长数字",
    },
}
LEAST_LINES = 2


def passkey(order: QuestionOrder, resources: Resources, slack: int) -> SampleDraft:
    rng = order.rng()
    return _hide_number(str(rng.randint(10_000, 99_999)), order, resources, slack, rng)


def number_string(order: QuestionOrder, resources: Resources, slack: int) -> SampleDraft:
    rng = order.rng()
    digits = [str(rng.randrange(10)) for _ in range(5)]
    for _ in range(5):
        place = rng.randrange(len(digits))
        digits.insert(place, digits[place])
    return _hide_number("".join(digits), order, resources, slack, rng)


def _hide_number(
    number: str, order: QuestionOrder, resources: Resources, slack: int, rng: Random
) -> SampleDraft:
    words = WORDS[order.language]
    what = words[order.task]
    needle = words["needle"].format(what=what, number=number)
    query = words["query"].format(what=what)
    spec = SampleSpec(order, resources, slack, words["head"], words["closing"], query)
    noise = resources.noise(order.language)
    lines = noise.draw(rng, order.length)
    totals, own = noise.totals(lines), resources.counter.line(needle)
    n = spec.most(totals + own, LEAST_LINES)
    texts = noise.texts(lines[:n])
    body = insert_needles(texts, [(nearest_cut(totals[:n], order.depth or 0), needle)])
    return spec.finish(body, int(totals[n - 1]) + own, (number,))
