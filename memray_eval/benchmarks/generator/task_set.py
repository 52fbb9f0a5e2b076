"""The kinds of task that a benchmark generates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from memray_eval.benchmarks.generator.question_order import QuestionOrder
from memray_eval.benchmarks.generator.resources import Resources
from memray_eval.benchmarks.generator.sample_spec import SampleDraft, plain_prompt
from memray_eval.benchmarks.generator.token_counter import TokenCounter


class Task(NamedTuple):
    """One kind of task, made by a function (order, resources, slack) -> SampleDraft of at most
    `order.length - slack` tokens. It `has_depth` where one needle can be placed. `needs_all`: every
    answer must be named, not any one."""

    make: Callable[[QuestionOrder, Resources, int], SampleDraft]
    has_depth: bool = True
    needs_all: bool = False


def count_plain_prompt(counter: TokenCounter, draft: SampleDraft) -> int:
    return counter.whole(plain_prompt(draft.context, draft.query))


@dataclass(frozen=True, kw_only=True)
class TaskSet:
    """The tasks of a benchmark by name, and the languages in which they are made. `count` counts
    the tokens of a draft in full. With `has_buckets` a sample's length is its bucket in the
    report's table too."""

    suite: str
    tasks: Mapping[str, Task]
    languages: tuple[str, ...] = ("en",)
    count: Callable[[TokenCounter, SampleDraft], int] = count_plain_prompt
    has_buckets: bool = True
