"""Enough of PromQL to check a dashboard: which metrics an expression reads, with which labels, and
whether it is closed."""

from __future__ import annotations

import re

from memray_eval.types import Frozen

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_SELECTOR = re.compile(r"\b(?P<name>(?:ray|memray)_\w+)(?:\{(?P<labels>[^{}]*)\})?")
_BY = re.compile(r"\bby \((?P<labels>[^()]*)\)")
_MATCHER = re.compile(r"(?P<label>\w+)\s*(?:=~|!~|!=|=)")
_PAIRS = {")": "(", "]": "[", "}": "{"}


class Read(Frozen):
    """A metric that an expression reads, and the labels that it selects and groups by."""

    name: str
    labels: frozenset[str]


def reads(expression: str) -> list[Read]:
    """The metrics of an expression. Raises ValueError where brackets are not closed or nothing is
    read."""
    bare = _STRING.sub('""', expression)
    open_ones: list[str] = []
    for sign in bare:
        if sign in "([{":
            open_ones.append(sign)
        elif sign in _PAIRS and (not open_ones or open_ones.pop() != _PAIRS[sign]):
            raise ValueError(f"{sign} closes nothing: {expression}")
    if open_ones or bare.count('"') % 2:
        raise ValueError(f"not closed: {expression}")
    grouped = {
        label.strip() for metrics in _BY.finditer(bare) for label in metrics["labels"].split(",")
    }
    metrics = [
        Read(
            name=selector["name"],
            labels=frozenset(
                grouped | {match["label"] for match in _MATCHER.finditer(selector["labels"] or "")}
            ),
        )
        for selector in _SELECTOR.finditer(bare)
    ]
    if not metrics:
        raise ValueError(f"reads no metric: {expression}")
    return metrics
