"""What judges are told, held against drift: a rubric or schema that changes makes runs
incomparable, so it changes on purpose.

To change one: change it, run this test, and put the new digest here in the same commit; runs store
the digests, too."""

from __future__ import annotations

import hashlib

from memray_eval.benchmarks.longmemeval.judge_prompts import KINDS
from memray_eval.metric import JudgedMetric, rubric_digest
from memray_eval.metrics import all_metrics
from memray_eval.metrics.long_context._question_types import CRITERIA

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
    "preference": "6f0b35cc21ea5daf",
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
    "beam_event_order/own words": "cafdbad6c779b6b0",
    "beam_rubric/own words": "ab0074179dbb47f9",
    "longmemeval_judge/own words": "d6e6395f810d0972",
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


def test_what_is_asked_of_a_type_of_question_has_not_drifted() -> None:
    told = repr(sorted((*CRITERIA.items(), *KINDS.items()), key=repr)).encode()
    assert hashlib.blake2b(told, digest_size=8).hexdigest() == "37ddf128c0ae0a0d"
