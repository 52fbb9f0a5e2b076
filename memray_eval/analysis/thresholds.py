"""Gates on the differences of a comparison, such as "empathy drops", and what comes of them: PASS,
FAIL, or INCONCLUSIVE where the data show neither."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import product

from memray_eval.analysis.comparing import Compared, GateResult, MetricComparison, Outcome, Side
from memray_eval.config.problems import Policy, Tier
from memray_eval.errors import ConfigError, suggest
from memray_eval.types import WITHOUT_CALL, Frozen

DROPS = "drops"
FIGURES = ("low", "high", "difference")
SIGNS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_GATE = re.compile(rf"\s*([A-Za-z_]\w*)(?:\s+({DROPS})|(?:\.(\w+))?\s*(<=|>=|<|>)\s*({NUMBER}))\s*")
_DIGEST = re.compile(r"[0-9a-f]{16}")
Calibrated = Collection[tuple[str, str, str]]  # metric, judge, and the rubric's digest


class Gate(Frozen):
    """A condition on a metric's difference B - A that makes a check fail. `figure` is DROPS (shown
    to be lower), one of FIGURES, or "": the end of the interval that makes sure of it."""

    text: str
    metric: str
    figure: str = ""
    sign: str = "<"
    bound: float = 0.0
    tier: Tier = "must"
    least_n: int = 0


def parse_gate(text: str) -> Gate:
    """Parses a gate such as "empathy < -0.1". Raises ConfigError for anything else."""
    match = _GATE.fullmatch(text)
    if match is None or not math.isfinite(bound := float(match[5] or 0)):
        raise ConfigError(
            f'cannot read the gate {text!r}; write "METRIC drops", or METRIC.high, METRIC.low, '
            'METRIC.difference or METRIC, <, <=, > or >=, NUMBER: "empathy.high < 0"'
        )
    figure = match[2] or match[3] or ""
    if match[3] and figure not in FIGURES:
        raise ConfigError(f"gate {text!r}: no figure {figure!r}; {suggest(figure, FIGURES)}")
    sign = match[4] or "<"
    return Gate(text=text.strip(), metric=match[1], figure=figure, sign=sign, bound=bound)


def gates_of(policy: Policy) -> list[Gate]:
    """The gates of a policy: a metric that falls by more than its margin fails."""
    return [
        Gate(
            text=f"{gate.metric} may fall by {gate.margin:g}",
            metric=gate.metric,
            bound=-gate.margin,
            tier=gate.tier,
            least_n=gate.least_n,
        )
        for gate in policy.gates
    ]


def judge_gates(
    comparison: Compared, gates: Sequence[Gate], unfit: Mapping[tuple[str, str], str] | None = None
) -> list[GateResult]:
    """What comes of each gate for each side; `unfit` says by metric and side why its judge decides
    none. Raises ConfigError for a metric that was not compared."""
    compared = list(dict.fromkeys(metric.metric for metric in comparison.metrics))
    if unknown := [gate for gate in gates if gate.metric not in compared]:
        raise ConfigError(
            f"gate {unknown[0].text!r}: no metric {unknown[0].metric!r} in common; "
            f"{suggest(unknown[0].metric, compared)}"
        )
    results = []
    for gate in gates:
        for row in comparison.metrics:
            if row.metric == gate.metric:
                why = (unfit or {}).get((row.metric, row.other), "")
                outcome, reason = ("INCONCLUSIVE", why) if why else _judge(gate, row, comparison)
                end = "high" if gate.sign[0] == "<" else "low"  # what a gate without a figure means
                read = f"(the interval's end, {gate.metric}.{end} {gate.sign} {gate.bound:g})"
                text = f"{gate.text}{'' if gate.figure else f' {read}'}: {reason}"
                results.append(
                    GateResult(text=text, metric=row.metric, other=row.other, outcome=outcome,
                               tier=gate.tier)
                )  # fmt: skip
    return results


def _judge(gate: Gate, row: MetricComparison, comparison: Compared) -> tuple[Outcome, str]:
    paired, level = row.paired, comparison.settings.level
    if row.is_undecided:
        return "INCONCLUSIVE", row.left_out
    if paired.difference is None:
        return "INCONCLUSIVE", f"{row.other} has no answer scored on both sides"
    # of equal differences there is no interval
    is_equal = paired.low is None and paired.stderr == 0
    low, high = (paired.difference if is_equal else end for end in (paired.low, paired.high))
    between = "" if low is None or high is None else f" [{low:z.4f}, {high:z.4f}]"
    text = f"{row.other} differs by {paired.difference:+z.4f}{between} on {paired.n:,} answers"
    text += f" ({row.remarks})" if row.remarks else ""
    if paired.n < gate.least_n:
        return "INCONCLUSIVE", f"{text}, fewer than {gate.least_n:,}"
    if gate.figure == DROPS:
        n_rows = sum(of.paired.p_value is not None for of in comparison.metrics)
        least_p = n_rows * 2.0 ** (1 - (paired.n_clusters or paired.n))  # of sign flips and Holm
        if least_p > 1 - level:
            return "INCONCLUSIVE", f"{text}, too few to show anything"
        return "FAIL" if row.is_found(level) and paired.difference < 0 else "PASS", text
    if low is None or high is None:
        return "INCONCLUSIVE", f"{text}, which has no interval"
    figures = {"low": low, "high": high, "difference": paired.difference}
    near, far = (high, low) if gate.sign[0] == "<" else (low, high)
    holds = SIGNS[gate.sign]
    if holds(figures.get(gate.figure, near), gate.bound):
        return "FAIL", text
    if gate.figure or not holds(far, gate.bound):
        return "PASS", text
    return "INCONCLUSIVE", f"{text}, whose interval holds {gate.bound:g}"


def find_unfit(
    sides: Sequence[Side], metrics: Sequence[str], calibrated: Calibrated
) -> Iterator[tuple[tuple[str, str], str]]:
    """By metric and side, each judge that was not calibrated on its rubric, or the baseline's."""
    base, *others = sides
    for metric, other in product(metrics, others):
        for side in (base, other):
            if why := _why_unfit(side, metric, calibrated):
                yield (metric, other.name), why


def _why_unfit(side: Side, metric: str, calibrated: Calibrated) -> str:
    rubrics: Mapping[str, str] = side.manifest.get("rubrics") or {}
    of_metric = {key: text for key, text in rubrics.items() if key.partition("/")[0] == metric}
    digests = {text.partition(", ")[0] for text in of_metric.values()}
    judged_by = (side.manifest.get("judged_by") or {}).get(f"{metric}/{side.candidate}") or {}
    for digest in sorted(filter(_DIGEST.fullmatch, digests)):
        for judge in sorted(set(judged_by) - WITHOUT_CALL):
            if (metric, judge, digest) not in calibrated:
                version = (side.manifest.get("rubric_versions") or {}).get(metric)
                rubric = f"version {version}" if version else f"digest {digest}"
                return (
                    f"{judge} was not calibrated on {metric}'s rubric ({rubric}): add "
                    "--allow-uncalibrated to let it gate all the same, or name what `calibrate "
                    "LABELLED --json` printed under calibrations of a --policy"
                )
    return ""
