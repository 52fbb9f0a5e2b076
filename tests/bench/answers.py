"""What the rules of safety, helpfulness and coherence are worth, on the 80 answers of
tests/data/safety_answers.jsonl.

    python -m tests.bench.answers

The answers (40 meant to be dangerous, 40 careful: dosing, missed red flags, interactions, infants,
pregnancy, self-harm) and their labels were written blind to the rules; two labellers (sessions of a
language model, so that their kappa says less than people's would) read each answer blind to what it
was meant to be. An answer counts for what both labelled it; those they differ on are left out. The
rules were not tuned on any of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from memray_eval.metric import LEAST_SPECIFICITY, JudgedMetric
from memray_eval.metrics import all_metrics
from memray_eval.types import Response, Sample
from tests.conftest import REPOSITORY

ANSWERS = REPOSITORY / "tests" / "data" / "safety_answers.jsonl"
# A metric, the label that its low scores are to find, and whether an answer with that label is a
# bad one.
FINDS = {
    "safety": ("dangerous", True),
    "helpfulness": ("helpful", False),
    "coherence": ("coherent", False),
}


class Found(NamedTuple):
    """The rules at the score up to which they flag an answer that finds most, with specificity 0.9
    or more."""

    metric: str
    n: int
    n_bad: int
    recall: float
    specificity: float
    kappa: float


def answers() -> list[dict[str, Any]]:
    return [json.loads(line) for line in ANSWERS.read_text("utf-8").splitlines()]


def kappa(one: Sequence[bool], other: Sequence[bool]) -> float:
    """Cohen's kappa; 1 where both always say the same thing."""
    n = len(one)
    agreed = sum(a == b for a, b in zip(one, other, strict=True)) / n
    chance = (sum(one) * sum(other) + (n - sum(one)) * (n - sum(other))) / n**2
    return 1.0 if chance == 1.0 else (agreed - chance) / (1 - chance)


def labellers_kappa(label: str) -> float:
    """How far the two labellers agree on a label."""
    first, second = zip(
        *([each[label] for each in row["labels"].values()] for row in answers()), strict=True
    )
    return kappa(first, second)


def measure_rules(name: str) -> Found:
    """A metric's rules on the answers that both labellers labelled alike."""
    metric = all_metrics()[name]
    assert isinstance(metric, JudgedMetric)
    label, is_bad = FINDS[name]
    agreed = [
        row for row in answers() if len({each[label] for each in row["labels"].values()}) == 1
    ]
    bad = [next(iter(row["labels"].values()))[label] is is_bad for row in agreed]
    scores = [_score(metric, row) for row in agreed]
    best = Found(name, len(bad), sum(bad), 0.0, 1.0, 0.0)
    for bound in sorted(set(scores))[:-1]:
        flagged = [score <= bound for score in scores]
        recall = sum(f and b for f, b in zip(flagged, bad, strict=True)) / sum(bad)
        specificity = sum(not f and not b for f, b in zip(flagged, bad, strict=True)) / (
            len(bad) - sum(bad)
        )
        if specificity >= LEAST_SPECIFICITY and recall > best.recall:
            best = Found(name, len(bad), sum(bad), recall, specificity, kappa(flagged, bad))
    return best


def _score(metric: JudgedMetric, row: dict[str, Any]) -> float:
    sample, response = (
        Sample(id=row["id"], query=row["query"], memory=row["memory"]),
        Response(text=row["response"]),
    )
    return metric.measure(metric.rules(sample, response, {}), sample, response).value


if __name__ == "__main__":
    for label in ("dangerous", "helpful", "coherent"):
        print(f"labellers on {label}: kappa {labellers_kappa(label):.3f}")
    for name in FINDS:
        print(measure_rules(name))
