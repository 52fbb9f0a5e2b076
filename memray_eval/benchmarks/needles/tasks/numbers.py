"""Arithmetic on long lists: math_find (a rank or the median) and math_calc (running values)."""

from functools import cache
from random import Random

import numpy as np
from numpy.typing import NDArray

from memray_eval.benchmarks.needles.plan import SampleDraft, SampleSpec, TooShort
from memray_eval.benchmarks.needles.prose import IntArray, QuestionOrder, distinct, integers
from memray_eval.benchmarks.needles.resources import LINE, Resources

FIND = {
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
}
KINDS = tuple(FIND)[3:]  # what follows head, closing and query
CALC = {
    "head": "Below is a long expression of additions and subtractions.\n",
    "closing": "This is the end of the expression.",
    "query": "Work out the expression above from left to right. After each addition or "
    "subtraction write the value "
    "reached so far, as a list such as [7, 3, 12], without the first number of the expression.",
}
LEAST_NUMBERS, LEAST_STEPS = 60, 20
NUMBERS = range(100)
TEXTS = tuple(str(number) for number in NUMBERS)
OPERATIONS = tuple(f" {sign} {number}" for sign in "+-" for number in NUMBERS)


def math_find(order: QuestionOrder, resources: Resources, slack: int) -> SampleDraft:
    """Sample i asks for kind i modulo 7. An even number's median is the middle two's mean."""
    rng, words, kind = order.rng(), FIND, KINDS[order.number % len(KINDS)]
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
    costs[0] = first[drawn[0]] + resources.counter.cached("1", "\n")
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
    rng, words = order.rng(), CALC
    spec = SampleSpec(order, resources, slack, words["head"], words["closing"], words["query"])
    table = resources.counter.table
    costs = np.concatenate([table(" + {}", NUMBERS, "1"), table(" - {}", NUMBERS, "1")])
    start = rng.randrange(100)
    drawn = integers(rng, LEAST_STEPS + order.length // int(costs.min()), len(OPERATIONS))
    value, after = start, _values_after()
    values = np.array([value := after[value][operation] for operation in drawn.tolist()], np.int64)
    operations = np.abs(np.diff(values, prepend=start)) + drawn // 100 * 100
    ends = resources.counter.cached(LINE, str(start)) + resources.counter.cached("1", "\n")
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


WORDS = {
    "head": "Below is a Python file of many small functions.\n",
    "closing": "# This is the end of the file.",
    "query": "What does the call func_{number}({x}) return, given the functions above? Reply "
    "with the number only.",
}
LEVELS = (2, 4, 6, 8, 10)
LEAST_A_LEVEL = 2
LOWEST, HIGHEST = -12, 17  # of the constants that are added
ADDED = tuple(
    "" if c == 0 else f" {'-' if c < 0 else '+'} {abs(c)}" for c in range(LOWEST, HIGHEST + 1)
)
TO_CALL = tuple(f"(x){text}\n" for text in ADDED)
TO_X = tuple(f"(x):\n    return x{text}\n" for text in ADDED)
NUMBERED = 14  # tokens: fewer than any function takes, so that there are numbers enough
# share of the room for functions that fill all levels evenly; the rest are more of the first level
LEVELLED = 0.95


def code_run(order: QuestionOrder, resources: Resources, slack: int) -> SampleDraft:
    """Sample i has LEVELS[i modulo 5] levels. Functions are in the order of their numbers."""
    rng, words, levels = order.rng(), WORDS, LEVELS[order.number % len(LEVELS)]
    limit = max(400, order.length // NUMBERED * 2)
    numbers = np.array(distinct(rng, limit // 2, limit), np.int64) + 1
    added = integers(rng, len(numbers), HIGHEST - LOWEST + 1)
    x = rng.randint(-10, 10)
    query = words["query"].format(number=numbers[0], x=x)
    spec = SampleSpec(order, resources, slack, words["head"], words["closing"], query)
    table, cached = resources.counter.table, resources.counter.cached
    name = table("def func_{}", range(limit + 1), LINE)[numbers]
    call = table("(x):\n    return func_{}", range(limit + 1), "def func_1")[numbers]
    to_call = np.array([cached("return func_1", text) for text in TO_CALL])
    to_x = np.array([cached("def func_1", text) for text in TO_X])
    mean = float(name.mean() + call.mean() + to_call.mean())
    functions = min(int(LEVELLED * spec.room / mean), len(numbers))
    if functions < LEAST_A_LEVEL * max(LEVELS):
        raise TooShort(int(LEAST_A_LEVEL * max(LEVELS) * mean / LEVELLED) + 1 - spec.room)
    a_level = functions // levels
    level, called = _levels(rng, len(numbers), levels, a_level)
    is_last = level == levels - 1
    sums = np.cumsum(name + np.where(is_last, to_x[added], call[called] + to_call[added]))
    n = levels * a_level - 1 + spec.most(sums[levels * a_level - 1 :])
    answer, function = x, 0
    while not is_last[function]:
        answer, function = answer + LOWEST + int(added[function]), int(called[function])
    answer += LOWEST + int(added[function])
    body = _write_functions(numbers[:n], numbers[called[:n]], added[:n], is_last[:n])
    return spec.finish(body, int(sums[n - 1]), (str(answer),), answer)


def _levels(rng: Random, n: int, levels: int, a_level: int) -> tuple[IntArray, IntArray]:
    """The level of each function and the one of the next level that it calls."""
    level = np.zeros(n, np.int64)
    level[: levels * a_level] = np.repeat(np.arange(levels), a_level)
    called = np.minimum(level + 1, levels - 1) * a_level + integers(rng, n, a_level)
    return level, called


def _write_functions(
    numbers: IntArray, called: IntArray, added: IntArray, is_last: NDArray[np.bool_]
) -> str:
    order = np.argsort(numbers)
    columns = (column[order].tolist() for column in (numbers, called, added, is_last))
    return "".join(
        [
            f"def func_{number}(x):\n    return x{ADDED[plus]}\n"
            if last
            else f"def func_{number}(x):\n    return func_{callee}(x){ADDED[plus]}\n"
            for number, callee, plus, last in zip(*columns, strict=True)
        ]
    )
