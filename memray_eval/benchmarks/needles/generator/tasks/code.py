"""code_run: what a call returns whose function calls others, level by level, in a long file."""

from __future__ import annotations

from random import Random

import numpy as np
from numpy.typing import NDArray

from memray_eval.benchmarks.generator.question_order import (
    IntArray,
    QuestionOrder,
    distinct,
    integers,
)
from memray_eval.benchmarks.generator.resources import Resources
from memray_eval.benchmarks.generator.sample_spec import SampleDraft, SampleSpec, TooShort
from memray_eval.benchmarks.generator.token_counter import LINE

WORDS = {
    "en": {
        "head": "Below is a Python file of many small functions.\n",
        "closing": "# This is the end of the file.",
        "query": "What does the call func_{number}({x}) return, given the functions above? Reply "
        "with the number only.",
    },
    "zh": {
        "head": "下面是一个由许多小函数组成的Python文件。\n",
        "closing": "# 文件到此结束。",
        "query": "根据上面的函数，调用func_{number}({x})的返回值是多少？请只回答数字。",
    },
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
    rng, words, levels = order.rng(), WORDS[order.language], LEVELS[order.number % len(LEVELS)]
    limit = max(400, order.length // NUMBERED * 2)
    numbers = np.array(distinct(rng, limit // 2, limit), np.int64) + 1
    added = integers(rng, len(numbers), HIGHEST - LOWEST + 1)
    x = rng.randint(-10, 10)
    query = words["query"].format(number=numbers[0], x=x)
    spec = SampleSpec(order, resources, slack, words["head"], words["closing"], query)
    table, pieces = resources.counter.table, resources.counter.pieces
    name = table("def func_{}", range(limit + 1), LINE)[numbers]
    call = table("(x):\n    return func_{}", range(limit + 1), "def func_1")[numbers]
    to_call, to_x = pieces(TO_CALL, "return func_1"), pieces(TO_X, "def func_1")
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
    """The level of each function and which one it calls: of the next level, drawn for each. Those
    beyond the even levels are of level 0, which nothing calls, so that their number is free."""
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
