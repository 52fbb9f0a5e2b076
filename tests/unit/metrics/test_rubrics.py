"""The versions of rubrics: a rubric or a judgment that changes makes runs incomparable, so it changes
on purpose, and with its version.

To change one: change it, raise its metric's `version`, run this test, and put the version and the
digest that it prints here in the same commit; runs store both."""

from __future__ import annotations

import hashlib

from memray_eval.benchmarks.longmemeval.judge_prompts import KINDS
from memray_eval.metric import JudgedMetric, rubric_digest
from memray_eval.metrics import all_metrics
from memray_eval.metrics.long_context._question_types import CRITERIA

RUBRICS = {
    "coherence": (0, "012eb210e00a84ef"),
    "conversational_continuity": (0, "b0b3acd81edc10ba"),
    "emotional_congruence": (0, "ab2743d1079c56cf"),
    "empathy": (0, "0ec424da1ddb5edd"),
    "groundedness": (0, "f068dc5817cce1a9"),
    "helpfulness": (0, "08a7748b7e6fcd4f"),
    "logical_consistency": (0, "86648d67b5c00ffe"),
    "memory_utilization": (0, "c951a279b7052916"),
    "persona_consistency": (0, "6034d259189af3f4"),
    "politeness": (0, "a28adf6e29f1b878"),
    "safety": (0, "256b7a7832141ffb"),
    "appropriateness": (2, "392ebbcca9c792cb"),
    "companion_helpfulness": (2, "392ebbcca9c792cb"),
    "conversational_quality": (2, "392ebbcca9c792cb"),
    "emotional_intelligence": (2, "392ebbcca9c792cb"),
    "overall_quality": (2, "392ebbcca9c792cb"),
    "personalization_continuity": (2, "392ebbcca9c792cb"),
    "trust_boundaries": (2, "392ebbcca9c792cb"),
    "beam_event_order/own words": (1, "cafdbad6c779b6b0"),
    "beam_rubric/own words": (2, "2e2fcae64328c540"),
    "longmemeval_judge/own words": (1, "d6e6395f810d0972"),
    "semantic_correctness/strict": (2, "2312cbd9e7770222"),
    "semantic_correctness/lenient": (2, "ec6a638474bf36b6"),
    "preference": (2, "b1a644a265dd0db6"),
}


def test_no_rubric_has_changed_without_its_version() -> None:
    now = {}
    for metric in all_metrics().values():
        if isinstance(metric, JudgedMetric):
            for name, text in (metric.rubrics or {"": None}).items():
                key = f"{metric.name}/{name}" if name else metric.name
                now[key] = (metric.version, rubric_digest(metric, text))
    assert now == RUBRICS


def test_what_is_asked_of_a_type_of_question_has_not_drifted() -> None:
    told = repr(sorted((*CRITERIA.items(), *KINDS.items()), key=repr)).encode()
    assert hashlib.blake2b(told, digest_size=8).hexdigest() == "37ddf128c0ae0a0d"
