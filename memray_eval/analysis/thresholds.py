"""Gates on the differences of a comparison, such as "empathy drops", and what comes of them: PASS,
FAIL, or INCONCLUSIVE where the data show neither."""

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import product

from memray_eval.analysis.comparing import Compared, GateResult, MetricComparison, Outcome, Side
from memray_eval.analysis.statistics import TIE
from memray_eval.config.problems import Policy, Tier
from memray_eval.errors import ConfigError, suggest
from memray_eval.types import WITHOUT_CALL, Frozen

DROPS = "drops"
FIGURES = ("low", "high", "difference")


def _holds(sign: str, figure: float, bound: float) -> bool:
    """Compares a figure with a bound, which it equals within float error (as a mean of 0.7s)."""
    if math.isclose(figure, bound, rel_tol=TIE, abs_tol=0.0 if bound else TIE):
        return "=" in sign
    return (figure < bound) if sign[0] == "<" else (figure > bound) and sign[0] == ">"


SIGNS: Mapping[str, Callable[[float, float], bool]] = {
    sign: partial(_holds, sign) for sign in ("<", "<=", ">", ">=", "==")
}
LARGE = 0.1  # share of a scale: answers that show only larger drops are too few
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
    none. A side without the metric is INCONCLUSIVE. Raises ConfigError for a metric that was not
    compared with any side."""
    compared = list(dict.fromkeys(metric.metric for metric in comparison.metrics))
    if unknown := [gate for gate in gates if gate.metric not in compared]:
        raise ConfigError(
            f"gate {unknown[0].text!r}: no metric {unknown[0].metric!r} in common; "
            f"{suggest(unknown[0].metric, compared)}"
        )
    results = []
    rows = {(row.metric, row.other): row for row in comparison.metrics}
    for gate, other in product(gates, comparison.others):
        row, why = rows.get((gate.metric, other)), (unfit or {}).get((gate.metric, other), "")
        outcome: Outcome = "INCONCLUSIVE"
        text = f"{gate.text}: {other} has no {gate.metric} to compare"
        if row is not None:
            outcome, text = _judge(gate, row, comparison, why)
        results.append(
            GateResult(gate=gate.text, text=text, metric=gate.metric, other=other, outcome=outcome,
                       tier=gate.tier)
        )  # fmt: skip
    return results


def _judge(
    gate: Gate, row: MetricComparison, comparison: Compared, unfit: str
) -> tuple[Outcome, str]:
    """What comes of a gate, with a sentence on what was tested and what the data are."""
    paired, level = row.paired, comparison.settings.level
    if unfit or row.is_undecided:
        return "INCONCLUSIVE", f"{gate.text}: {unfit or row.left_out}"
    if paired.difference is None:
        return "INCONCLUSIVE", f"{gate.text}: {row.other} has no answer scored on both sides"
    # of equal differences there is no interval
    is_equal = paired.low is None and paired.stderr == 0
    low, high = (paired.difference if is_equal else end for end in (paired.low, paired.high))
    data = f"{row.other} differs by {paired.difference:+z.4f} on {paired.n:,} answers"
    if low is not None and high is not None:
        data += f", {level:.0%} interval {low:z.4f} to {high:z.4f}"
    data += f" ({row.remarks})" if row.remarks else ""
    if paired.n < gate.least_n:
        return "INCONCLUSIVE", f"{gate.text}: {data}, fewer than {gate.least_n:,}"
    if gate.figure == DROPS:
        n_rows = sum(of.paired.p_value is not None for of in comparison.metrics)
        least_p = n_rows * 2.0 ** (1 - (paired.n_clusters or paired.n))  # of sign flips and Holm
        if least_p > 1 - level:
            return "INCONCLUSIVE", f"{gate.text}: {data}, too few to show anything"
        if row.is_found(level) and paired.difference < 0:
            return "FAIL", f"a drop of {gate.metric} is shown: {data}"
        if least := paired.detectable:  # the smallest drop that so many answers show
            bottom, top = comparison.scales.get(row.metric, (0.0, 1.0))
            is_large, power = least > LARGE * (top - bottom), comparison.settings.power
            few = "too few to show a useful drop, only" if is_large else "so many answers show"
            data += f"; {few} one of {least:.2g} or more ({power:.0%} of the time)"
        return "PASS", f"no drop of {gate.metric} is shown: {data}"
    if low is None or high is None:
        return "INCONCLUSIVE", f"{gate.text}: {data}, which has no interval"
    holds, condition = SIGNS[gate.sign], f"{gate.sign} {gate.bound:g}"
    figures = {"low": low, "high": high, "difference": paired.difference}
    if gate.figure:
        is_so = holds(figures[gate.figure], gate.bound)
        text = f"{gate.metric}.{gate.figure} is {'' if is_so else 'not '}{condition}: {data}"
        return "FAIL" if is_so else "PASS", text
    near, far = (high, low) if gate.sign[0] == "<" else (low, high)
    part = f"of the interval of {gate.metric} is {condition}: {data}"
    if not holds(far, gate.bound):
        return "PASS", f"no part {part}"
    return ("FAIL", f"all {part}") if holds(near, gate.bound) else ("INCONCLUSIVE", f"some {part}")


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
