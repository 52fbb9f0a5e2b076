"""How far the offline estimates agree with a person's labels in tests/data/memory_labels.jsonl.

The 60 labelled responses were written and labelled blind to the estimators' code, by one labeller. Key citation is compared as
sets over all responses; a labelled claim counts as found when one of the estimate's overlaps its text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from memray_eval.metrics.claims import check_claims, claim_texts
from memray_eval.metrics.memory import cited, matching_texts
from memray_eval.ports import Vectors
from memray_eval.types import Response, Sample
from tests.conftest import REPOSITORY, shipped_samples

LABELS = REPOSITORY / "tests" / "data" / "memory_labels.jsonl"


@dataclass(frozen=True)
class Agreement:
    """Counts over all labelled responses."""

    key_tp: int
    key_fp: int
    key_fn: int
    claims: int
    claims_found: int
    grounding_agrees: int

    @cached_property
    def key_precision(self) -> float:
        return self.key_tp / (self.key_tp + self.key_fp)

    @cached_property
    def key_recall(self) -> float:
        return self.key_tp / (self.key_tp + self.key_fn)

    @property
    def key_f1(self) -> float:
        return 2 * self.key_precision * self.key_recall / (self.key_precision + self.key_recall)

    def __str__(self) -> str:
        return (
            f"keys: precision {self.key_precision:.3f}, recall {self.key_recall:.3f}, F1 {self.key_f1:.3f}; "
            f"claims found {self.claims_found} of {self.claims}, grounding agrees on {self.grounding_agrees} of those"
        )


def agreement(embed: Callable[[Sequence[str]], Vectors]) -> Agreement:
    """Runs both estimates over the labelled responses; `embed` gives the vectors of some texts (or none)."""
    samples = {sample.id: sample for sample in shipped_samples()}
    counts = dict.fromkeys(Agreement.__dataclass_fields__, 0)
    for line in LABELS.read_text("utf-8").splitlines():
        label = json.loads(line)
        for name, count in _compare(label, samples[label["sample_id"]], embed).items():
            counts[name] += count
    return Agreement(**counts)


def _compare(label: dict[str, Any], sample: Sample, embed: Callable[[Sequence[str]], Vectors]) -> dict[str, int]:
    response = Response(text=label["response"])
    vectors = embed([*matching_texts(sample, response), *claim_texts(sample, response)])
    found = {citation.key for citation in cited(sample, response, vectors)}
    wanted = set(label["cited_keys"])
    claims = check_claims(sample, response, vectors)
    counts = {"key_tp": len(found & wanted), "key_fp": len(found - wanted), "key_fn": len(wanted - found)}
    counts |= {"claims": len(label["claims"]), "claims_found": 0, "grounding_agrees": 0}
    for labelled in label["claims"]:
        quote = labelled["quote"].lower()
        overlapping = [claim for claim in claims if quote in claim.text.lower() or claim.text.lower() in quote]
        if overlapping:
            is_grounded = all(claim.source != "none" for claim in overlapping)
            counts["claims_found"] += 1
            counts["grounding_agrees"] += is_grounded == labelled["grounded"]
    return counts
