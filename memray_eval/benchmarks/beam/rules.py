"""BEAM's judge prompt for one item of a rubric: that of the user's copy of
src/prompts.py (mohammadtavakoli78/BEAM b2a3ee8), else in our words; and its scores out of the
verdicts, as that code computes them and as its paper (arXiv 2510.27246) describes them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from memray_eval.benchmarks.templates.files import assigned_text, find_file, parse_python
from memray_eval.errors import ConfigError

VERSION = "BEAM b2a3ee8"
ORDERING = "event_ordering"
METRIC = "beam_rubric"
ITEM_PLACE, RESPONSE_PLACE = "<rubric_item>", "<llm_response>"
_FILE, _NAME = "prompts.py", "unified_llm_judge_base_prompt"

TASK = """
A user asked an assistant a QUESTION about their earlier chats. Decide how far the RESPONSE meets one CRITERION of a good answer.
- 1.0: it meets the criterion in full; where the criterion names several things, all of them.
- 0.5: it meets it in part, or with a slip.
- 0.0: it does not, or it does not answer the question at all.
A criterion may ask for something that must not be there: it is met where the response answers the question without it.
Judge what is meant, not the wording, the length or the style; numbers and dates count in any form.
In reason say in one or two sentences why; then give the score.
"""  # noqa: E501


def read_official(path: str) -> str:
    """The prompt in the user's copy, whose code is never run. Raises ConfigError without one."""
    file = find_file(path, (_FILE, f"src/{_FILE}"))
    text = assigned_text(parse_python(file), _NAME)
    if text is None:
        raise ConfigError(f"templates: {file} assigns no text to {_NAME}")
    for field in (ITEM_PLACE, RESPONSE_PLACE):
        if field not in text:
            raise ConfigError(f"templates: {file}: {_NAME} has no place {field}")
    return text


def fill_official(rubric: str, item: str, response: str) -> str | None:
    """The official prompt for an item, as the code fills it: the place of the question stays
    empty. None if the rubric is not the official one."""
    if RESPONSE_PLACE not in rubric:
        return None
    before, _, after = rubric.partition(RESPONSE_PLACE)
    filled = (part.replace(ITEM_PLACE, item) for part in (before, after))
    return response.join(filled)


def as_paper(scores: Sequence[float]) -> float:
    """The mean of the rubric items' scores, each 0, 0.5 or 1."""
    return sum(scores) / len(scores)


def as_code(scores: Sequence[float], ability: str) -> float:
    """The same with 0.5 cut to 0, as the code does in nine abilities; event ordering keeps it."""
    return as_paper(scores if ability == ORDERING else [int(score) for score in scores])


class Order(NamedTuple):
    """A comparison of a list of events with the right one. `tau` is Kendall's tau-b laid over 0-1,
    which the code reports as the ability's score; `f1` is that of the events listed; `final` is
    their product, which it computes and does not report."""

    tau: float
    f1: float

    @property
    def final(self) -> float:
        return self.tau * self.f1


def order_score(n_events: int, listed: Sequence[int]) -> Order:
    """Compares the events that a response lists with those of the reference, numbered 1 to n (0:
    none of them). Both lists rank the events of either; what a list lacks ties behind its last.
    Where all tie tau-b is not defined: 0.0 here, NaN in the code."""
    order: list[int] = []
    others = n_events
    for event in listed:
        if event in order or not 1 <= event <= n_events:
            others += 1  # what is listed twice is nothing of the reference the second time
            order.append(others)
        else:
            order.append(event)
    reference = list(range(1, n_events + 1))
    both = list(dict.fromkeys([*reference, *order]))
    last = len(both) + 1
    wanted = [reference.index(item) + 1 if item in reference else last for item in both]
    ranks = [order.index(item) + 1 if item in order else last for item in both]
    hits = len(set(reference) & set(order))
    f1 = 2 * hits / (n_events + len(order)) if hits else 0.0
    tau = kendall_tau_b(wanted, ranks)
    return Order(tau=0.0 if tau is None else (tau + 1) / 2, f1=f1)


def kendall_tau_b(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Kendall's tau-b; None if all of a list tie."""
    agree = ties_x = ties_y = total = 0
    for first in range(len(x)):
        for second in range(first):
            by_x = (x[first] > x[second]) - (x[first] < x[second])
            by_y = (y[first] > y[second]) - (y[first] < y[second])
            agree += by_x * by_y
            ties_x += by_x == 0
            ties_y += by_y == 0
            total += 1
    scale = math.sqrt((total - ties_x) * (total - ties_y))
    return agree / scale if scale else None
