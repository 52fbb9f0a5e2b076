"""What judges are told, held against drift: a rubric or schema that changes makes runs
incomparable, so it changes on purpose.

To change one: change it, run this test, and put the new digest here in the same commit; runs store
the digests, too."""

from __future__ import annotations

from memray_eval.metric import JudgedMetric, rubric_digest
from memray_eval.metrics import all_metrics

DIGESTS = {
    "coherence": "012eb210e00a84ef",
    "conversational_continuity": "b0b3acd81edc10ba",
    "emotional_congruence": "ab2743d1079c56cf",
    "empathy": "0ec424da1ddb5edd",
    "groundedness": "f068dc5817cce1a9",
    "helpfulness": "08a7748b7e6fcd4f",
    "logical_consistency": "86648d67b5c00ffe",
    "memory_utilization": "c951a279b7052916",
    "persona_consistency": "6034d259189af3f4",
    "politeness": "a28adf6e29f1b878",
    "safety": "256b7a7832141ffb",
    "appropriateness": "602c7f51330244a6",
    "conversational_quality": "602c7f51330244a6",
    "companion_helpfulness": "602c7f51330244a6",
    "emotional_intelligence": "602c7f51330244a6",
    "personalization_continuity": "602c7f51330244a6",
    "trust_boundaries": "602c7f51330244a6",
    "overall_quality": "602c7f51330244a6",
    "semantic_correctness/strict": "6e4fa354f3278c0a",
    "semantic_correctness/lenient": "c261a20ec391a6ca",
}


def test_no_rubric_has_drifted() -> None:
    now = {}
    for metric in all_metrics().values():
        if isinstance(metric, JudgedMetric) and not metric.rubrics:
            now[metric.name] = rubric_digest(metric)
        elif isinstance(metric, JudgedMetric):
            now |= {
                f"{metric.name}/{name}": rubric_digest(metric, text)
                for name, text in metric.rubrics.items()
            }
    assert now == DIGESTS
