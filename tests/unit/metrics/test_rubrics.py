"""The versions of rubrics: a rubric or a judgment that changes makes runs incomparable, so it
changes on purpose, and with its version.

To change one: change it, raise its metric's `version`, run this test, and put the version and the
digest that it prints here in the same commit; runs store both."""

import hashlib

from memray_eval.benchmarks.longmemeval import KINDS
from memray_eval.metric import JudgedMetric, rubric_digest
from memray_eval.metrics import all_metrics
from memray_eval.metrics.companion import METRIC_OF, OVERALL
from memray_eval.metrics.long_context.semantic_correctness import CRITERIA

RUBRICS = {
    "coherence": (3, "2ad71b4d2f8056c3"),
    "conversational_continuity": (3, "ce5bc27cd1225be2"),
    "emotional_congruence": (2, "ea7fb3127a542176"),
    "empathy": (3, "94cfbb6adba5e7b0"),
    "groundedness": (3, "05b8c79308c2258f"),
    "helpfulness": (3, "3640f6c696e2f33b"),
    "judged_conduct": (1, "748d463d88994a22"),
    "logical_consistency": (3, "ed68ecc2480be167"),
    "memory_facts_used": (2, "c01cc000dabe3d45"),
    "memory_utilization": (2, "c01cc000dabe3d45"),
    "persona_consistency": (2, "1e69a4bb0bf29787"),
    "politeness": (3, "965008c231d7222f"),
    "safety": (4, "bfabfeb3e4526084"),
    **dict.fromkeys((OVERALL, *METRIC_OF.values()), (3, "b60307ef3406bce6")),
    "criteria": (1, "cd9d035bdb7e8470"),
    "beam_event_order/own words": (1, "cafdbad6c779b6b0"),
    "beam_rubric/own words": (2, "2e2fcae64328c540"),
    "longmemeval_judge/own words": (1, "d6e6395f810d0972"),
    "semantic_correctness/strict": (2, "d8f47d0ee913433f"),
    "semantic_correctness/lenient": (2, "87afa69f6b46b00f"),
    "preference": (2, "8f8ec6db3e1dfc75"),
    "boundary_drift": (1, "908526399468d7b6"),
    "dependence": (1, "d780275d1eb5bf33"),
    "forgotten_fact": (3, "e161773b12c79096"),
    "risk_escalation": (3, "30d3589cc2806327"),
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
    texts = repr(sorted((*CRITERIA.items(), *KINDS.items()), key=repr)).encode()
    assert hashlib.blake2b(texts, digest_size=8).hexdigest() == "37ddf128c0ae0a0d"
