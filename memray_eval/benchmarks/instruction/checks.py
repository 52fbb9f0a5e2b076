"""How well a response does what a prompt asks (seed 004): three types of prompt, each with checks
(simple.py, plans.py, reasoning.py) of 0 to 100 and their weights.

The overall score is the weighted mean, rounded to one decimal, of the checks that have occasion (a
target of words or steps, options). Of an empty response every check is 0."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from memray_eval.benchmarks.instruction.answers import compare
from memray_eval.benchmarks.instruction.plans import navigation
from memray_eval.benchmarks.instruction.reasoning import reasoning
from memray_eval.benchmarks.instruction.simple import (
    CheckResult,
    completeness,
    error_free,
    graded,
    simple,
)
from memray_eval.errors import ConfigError, cut
from memray_eval.types import Frozen

WEIGHTS: Mapping[str, Mapping[str, float]] = {
    "simple": {"word_count": 0.4, "completeness": 0.4, "error_free": 0.2},
    "navigation": {
        "json_validity": 0.3,
        "required_fields": 0.2,
        "structure": 0.1,
        "step_count": 0.2,
        "step_structure": 0.2,
    },
    "reasoning": {
        "answer_present": 0.3,
        "answer_position": 0.1,
        "explanation_present": 0.2,
        "concept_coverage": 0.2,
        "logical_structure": 0.2,
    },
}
PROMPT_TYPES = tuple(WEIGHTS)
# subscores of expected answers: in no weights but a caller's own
BESIDE = ("exact_match", "answer_f1")
CHECKS = (*(check for weights in WEIGHTS.values() for check in weights), *BESIDE)
_SUM_TOLERANCE = 1e-6

_SCORERS: Mapping[str, Callable[[str, str, bool], dict[str, CheckResult]]] = {
    "simple": simple,
    "navigation": navigation,
    "reasoning": reasoning,
}


class Band(NamedTuple):
    """What an overall score from `low` up to the next higher band means."""

    low: float
    name: str
    meaning: str


BANDS = (
    Band(90, "excellent", "Production-ready for this task type"),
    Band(75, "good", "Usable with minor issues"),
    Band(60, "fair", "Consider for non-critical tasks"),
    Band(40, "poor", "Significant issues, use with caution"),
    Band(0, "failed", "Not suitable for this task"),
)


def band(score: float) -> Band:
    """The band of an overall score: 89.9 is good, 90 excellent."""
    return next(band_ for band_ in BANDS if score >= band_.low)


class Result(Frozen):
    """Seed 004's output: the overall score, the subscores (0-100), and the checks' findings."""

    overall_score: float
    subscores: dict[str, int]
    issues: tuple[str, ...] = ()
    passed_checks: tuple[str, ...] = ()


def score_response(
    prompt_type: str,
    prompt: str,
    response: str,
    expected: Sequence[str] | str | None = None,
    *,
    is_cut: bool = False,
    weights: Mapping[str, float] | None = None,
) -> Result:
    """How well a response follows a prompt of one of PROMPT_TYPES. `is_cut`: it ran into its
    length. With `expected` answers the subscores exact_match and answer_f1 (times 100) join, which
    weigh nothing unless `weights`, in place of the type's, name them. Raises ConfigError."""
    if prompt_type not in WEIGHTS:
        raise ConfigError(f"no prompt type {prompt_type!r}; there are: {', '.join(PROMPT_TYPES)}")
    shares = WEIGHTS[prompt_type] if weights is None else check_weights(prompt_type, weights)
    answers = (expected,) if isinstance(expected, str) else tuple(expected or ())
    is_empty = not response.strip()
    checks = (
        {name: CheckResult(0) for name in WEIGHTS[prompt_type]}
        if is_empty
        else _SCORERS[prompt_type](prompt, response, is_cut)
    )
    if any(answer.strip() for answer in answers):
        checks |= _compare_with_answers(prompt, response, answers)
    issues = [issue for check in checks.values() for issue in check.issues]
    if is_empty:
        issues.append("Empty response")
    else:
        issues += (*completeness(response, is_cut).issues, *error_free(response).issues)
    weight = sum(shares.get(name, 0.0) for name in checks)
    total = sum(shares.get(name, 0.0) * check.score for name, check in checks.items())
    return Result(
        # 0 if no check that there is weighs anything
        overall_score=min(round(total / weight, 1), 100.0) if weight else 0.0,
        subscores={name: check.score for name, check in checks.items()},
        issues=tuple(dict.fromkeys(issues)),
        passed_checks=tuple(check.passed for check in checks.values() if check.passed),
    )


def check_weights(prompt_type: str, weights: Mapping[str, float]) -> Mapping[str, float]:
    """The weights as they are. Raises ConfigError for a check that the type lacks, a share that is
    no number from 0 to 1, and shares that don't sum to 1."""
    checks = (*WEIGHTS[prompt_type], *BESIDE)
    for name, share in weights.items():
        if name not in checks:
            raise ConfigError(
                f"weights: {prompt_type} has no check {name!r}; there are: {', '.join(checks)}"
            )
        if not isinstance(share, int | float) or isinstance(share, bool) or not 0 <= share <= 1:
            raise ConfigError(f"weights: {name} must be a number from 0 to 1, not {share!r}")
    if abs(sum(weights.values()) - 1) > _SUM_TOLERANCE:
        raise ConfigError(f"weights: they sum to {sum(weights.values()):g}, not 1")
    return weights


def _compare_with_answers(
    prompt: str, response: str, answers: Sequence[str]
) -> dict[str, CheckResult]:
    match = compare(prompt, response, answers)
    more = f" or {len(answers) - 1} more" if len(answers) > 1 else ""
    expected = f"(expected: {cut(answers[0], 80)}{more})"
    score, what = (100, "Exact match") if match.exact else (0, "No exact match")
    return {
        "exact_match": graded(score, f"{what} {expected}"),
        "answer_f1": CheckResult(round(100 * match.f1)),
    }
