"""Gates: conditions under which a check fails, such as "empathy < -0.1"."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence

from memray_eval.analysis.comparing.models import Comparison, MetricComparison
from memray_eval.errors import ConfigError
from memray_eval.types import Frozen


class Gate(Frozen):
    """A condition on a metric's difference B - A that makes a check fail."""

    text: str
    metric: str
    sign: str
    bound: float


SIGNS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_GATE = re.compile(rf"\s*([A-Za-z_]\w*)\s*(<=|>=|<|>)\s*({NUMBER})\s*")


def parse_gate(text: str) -> Gate:
    """Parses a gate such as "empathy < -0.1". Raises ConfigError for anything else."""
    match = _GATE.fullmatch(text)
    if match is None:
        raise ConfigError(
            f'cannot read the gate {text!r}; write METRIC OP NUMBER with <, <=, > or >=: "empathy '
            f'< -0.1"'
        )
    return Gate(text=text.strip(), metric=match[1], sign=match[2], bound=float(match[3]))


def failures(comparison: Comparison, gates: Sequence[Gate]) -> list[str]:
    """Says which gates fail. A gate fails too if no unit was scored on both sides, because nothing
    shows that it passed. Raises ConfigError for a metric that was not compared."""
    compared = list(dict.fromkeys(metric.metric for metric in comparison.metrics))
    if unknown := [gate for gate in gates if gate.metric not in compared]:
        raise ConfigError(
            f"gate {unknown[0].text!r}: no metric {unknown[0].metric!r} in common; there are: "
            f"{', '.join(compared)}"
        )
    return [
        failure
        for gate in gates
        for metric in comparison.metrics
        if metric.metric == gate.metric and (failure := _describe_failure(gate, metric))
    ]


def _describe_failure(gate: Gate, metric: MetricComparison) -> str:
    difference = metric.paired.difference
    if difference is None:
        return f"{gate.text}: {metric.other} has no unit scored on both sides"
    if not SIGNS[gate.sign](difference, gate.bound):
        return ""
    mark = f" ({metric.mark})" if metric.mark else ""
    return f"{gate.text}: {metric.other} differs by {difference:+z.4f}{mark}"
