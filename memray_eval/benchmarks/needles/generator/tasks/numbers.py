"""Arithmetic on long lists: math_find (a rank or the median) and math_calc (running values)."""

from __future__ import annotations

from functools import cache

import numpy as np

from memray_eval.benchmarks.generator.question_order import IntArray, QuestionOrder, integers
from memray_eval.benchmarks.generator.resources import Resources
from memray_eval.benchmarks.generator.sample_spec import SampleDraft, SampleSpec
from memray_eval.benchmarks.generator.token_counter import LINE

FIND = {
    "en": {
        "head": "Below is a long list of integers.\n",
        "closing": "This is the end of the list.",
        "query": "What is the {what} in the list above? Reply with the number only.",
        "largest": "largest number",
        "second_largest": "second largest number (equal numbers count once)",
        "third_largest": "third largest number (equal numbers count once)",
        "smallest": "smallest number",
        "second_smallest": "second smallest number (equal numbers count once)",
        "third_smallest": "third smallest number (equal numbers count once)",
        "median": "median of all the numbers",
    },
    "zh": {
        "head": "下面是一个很长的整数列表。\n",
        "closing": "列表到此结束。",
        "query": "上面列表中{what}是多少？请只回答数字。",
        "largest": "最大的数",
        "second_largest": "第二大的数（相同的数只算一次）",
        "third_largest": "第三大的数（相同的数只算一次）",
        "smallest": "最小的数",
        "second_smallest": "第二小的数（相同的数只算一次）",
        "third_smallest": "第三小的数（相同的数只算一次）",
        "median": "所有数的中位数",
    },
}
KINDS = tuple(FIND["en"])[3:]  # what follows head, closing and query
CALC = {
    "en": {
        "head": "Below is a long expression of additions and subtractions.\n",
        "closing": "This is the end of the expression.",
        "query": "Work out the expression above from left to right. After each addition or "
        "subtraction write the value "
        "reached so far, as a list such as [7, 3, 12], without the first number of the expression.",
    },
    "zh": {
        "head": "下面是一个很长的加减算式。\n",
        "closing": "算式到此结束。",
        "query": "请从左到右计算上面的算式。每做完一次加法或减法，就写出当前的结果，"
        "写成列表，例如[7, 3, 12]，不要写算式的第一个数。",
    },
}
LEAST_NUMBERS, LEAST_STEPS = 60, 20
NUMBERS = range(100)
TEXTS = tuple(str(number) for number in NUMBERS)
OPERATIONS = tuple(f" {sign} {number}" for sign in "+-" for number in NUMBERS)


def math_find(order: QuestionOrder, resources: Resources, slack: int) -> SampleDraft:
    """Sample i asks for kind i modulo 7. An even number's median is the middle two's mean."""
    rng, words, kind = order.rng(), FIND[order.language], KINDS[order.number % len(KINDS)]
    query = words["query"].format(what=words[kind])
    spec = SampleSpec(order, resources, slack, words["head"], words["closing"], query)
    table = resources.counter.table
    first, following = table("{}", NUMBERS, LINE), table(", {}", NUMBERS, "1")
    is_low = kind.endswith("smallest") or (kind == "median" and rng.random() < 0.5)
    low, high = (rng.randint(0, 19), 99) if is_low else (0, rng.randint(79, 99))
    drawn = low + integers(
        rng, LEAST_NUMBERS + order.length // int(following.min()), high - low + 1
    )
    costs = following[drawn]
    costs[0] = first[drawn[0]] + resources.counter.known("1", "\n")
    totals = np.cumsum(costs)
    numbers = drawn[: spec.most(totals, LEAST_NUMBERS)]
    body = ", ".join([TEXTS[number] for number in numbers.tolist()]) + "\n"
    label = _answer(numbers, kind)
    answers = (str(int(label)), str(label)) if label == int(label) else (str(label),)
    used = int(totals[len(numbers) - 1])
    return spec.finish(body, used, tuple(dict.fromkeys(answers)), label)


def _answer(numbers: IntArray, kind: str) -> int | float:
    if kind == "median":
        ordered, middle = np.sort(numbers), len(numbers) // 2
        if len(numbers) % 2:
            return int(ordered[middle])
        return float(ordered[middle - 1] + ordered[middle]) / 2
    distinct = np.unique(numbers)
    rank = 3 if kind.startswith("third") else 2 if kind.startswith("second") else 1
    return int(distinct[-rank] if kind.endswith("largest") else distinct[rank - 1])


def math_calc(order: QuestionOrder, resources: Resources, slack: int) -> SampleDraft:
    """All values stay within 0 to 99: operands are taken modulo what is left, plus one."""
    rng, words = order.rng(), CALC[order.language]
    spec = SampleSpec(order, resources, slack, words["head"], words["closing"], words["query"])
    table = resources.counter.table
    costs = np.concatenate([table(" + {}", NUMBERS, "1"), table(" - {}", NUMBERS, "1")])
    start = rng.randrange(100)
    drawn = integers(rng, LEAST_STEPS + order.length // int(costs.min()), len(OPERATIONS))
    value, after = start, _values_after()
    values = np.array([value := after[value][operation] for operation in drawn.tolist()], np.int64)
    operations = np.abs(np.diff(values, prepend=start)) + drawn // 100 * 100
    ends = resources.counter.known(LINE, str(start)) + resources.counter.known("1", "\n")
    totals = ends + np.cumsum(costs[operations])
    n = spec.most(totals, LEAST_STEPS)
    body = f"{start}{''.join([OPERATIONS[step] for step in operations[:n].tolist()])}\n"
    label = values[:n].tolist()
    listed = "[" + ", ".join([TEXTS[value] for value in label]) + "]"
    return spec.finish(body, int(totals[n - 1]), (listed,), label)


@cache
def _values_after() -> list[list[int]]:
    """The next value by the value (0 to 99) and the operation: 0-99 adds, 100-199 subtracts."""
    return [
        [value + operand % (100 - value) for operand in NUMBERS]
        + [value - operand % (value + 1) for operand in NUMBERS]
        for value in range(100)
    ]
