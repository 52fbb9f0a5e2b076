"""Conditions under which a check fails: "empathy < -0.1"."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence

from memray_eval.errors import ConfigError
from memray_eval.report.comparing.models import Comparison, MetricComparison
from memray_eval.types import Frozen


class Gate(Frozen):
    """A condition on a metric's difference B - A under which a check fails."""

    text: str
    metric: str
    sign: str
    bound: float


_SIGNS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_GATE = re.compile(
    r"\s*([A-Za-z_]\w*)\s*(<=|>=|<|>)\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*"
)


def parse_gate(text: str) -> Gate:
    """ "empathy < -0.1" as a gate. Raises ConfigError for anything else."""
    found = _GATE.fullmatch(text)
    if found is None:
        raise ConfigError(
            f'cannot read the gate {text!r}; write METRIC OP NUMBER with <, <=, > or >=: "empathy '
            f'< -0.1"'
        )
    return Gate(text=text.strip(), metric=found[1], sign=found[2], bound=float(found[3]))


def failures(comparison: Comparison, gates: Sequence[Gate]) -> list[str]:
    """Which gates fail, in words. One whose metric has no difference, for want of common scored
    units, fails too: it was not passed. Raises ConfigError for a metric that was not compared."""
    known = list(dict.fromkeys(metric.metric for metric in comparison.metrics))
    if unknown := [gate for gate in gates if gate.metric not in known]:
        raise ConfigError(
            f"gate {unknown[0].text!r}: no metric {unknown[0].metric!r} in common; there are: "
            f"{', '.join(known)}"
        )
    return [
        told
        for gate in gates
        for metric in comparison.metrics
        if metric.metric == gate.metric and (told := _describe_failure(gate, metric))
    ]


def _describe_failure(gate: Gate, metric: MetricComparison) -> str:
    difference = metric.paired.difference
    if difference is None:
        return f"{gate.text}: {metric.other} has no unit scored on both sides"
    told = f" ({metric.mark})" if metric.mark else ""
    return (
        f"{gate.text}: {metric.other} differs by {difference:+.4f}{told}"
        if _SIGNS[gate.sign](difference, gate.bound)
        else ""
    )
