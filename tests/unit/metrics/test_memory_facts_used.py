"""How much of the memory a response uses, without labels; and what metrics that lack theirs say."""

import json

import numpy as np
import pytest

from memray_eval.metric import MetricColumns, summarise, unscorable
from memray_eval.metrics import all_metrics
from memray_eval.metrics.assistant.memory_facts_used import METRIC
from memray_eval.metrics.assistant.memory_utilization import KeyCitation
from memray_eval.types import Response, Sample
from tests.build import cited, score_judgment

PROFILE = Sample(
    id="a", query="How do I sleep?", memory={"name": "Jo", "coffee": "high", "sleep": "5 h"}
)
SAID = Response(text="Jo, drink less coffee: yours is high.")
KEYS = "required_keys and no forbidden_keys"
LACKING = {
    "memory_utilization": KEYS,
    "memory_conduct": "metadata.expects",
    "judged_conduct": "metadata.expects",
    **dict.fromkeys(
        "abstention rouge qa_f1 code_sim retrieval count helmet_substring ruler_any ruler_recall "
        "personamem_letter longbench2_choice exact_match answer_f1 semantic_correctness".split(),
        "answers",
    ),
    "persona_consistency": "traits",
    "emotional_congruence": "emotion",
    "conversational_continuity": "history",
    "criteria": "criteria",
}


@pytest.mark.parametrize("name", LACKING)
def test_a_metric_without_its_field_is_not_applicable_before_a_call_and_names_it(name: str) -> None:
    metric = all_metrics()[name]
    score = unscorable(metric, PROFILE, SAID)
    assert score is not None
    assert (score.status, score.value, score.judge) == ("not_applicable", None, "")
    assert LACKING[name] in (score.error or "")
    summary = summarise(metric, MetricColumns("c", {"not_applicable": 2}, {}))
    assert (summary.figure.value, summary.mean, summary.coverage) == (None, None, None)
    assert not any({**summary.micro, **summary.macro}.values())


def test_it_counts_the_facts_that_are_used_and_names_them() -> None:
    quotes = {"coffee": "drink less coffee", "sleep": "you sleep five hours"}  # it does not say so
    evidence = [KeyCitation(key=key, quote=quote) for key, quote in quotes.items()]
    judgment = cited("coffee", "sleep", "shoe size", evidence=evidence)
    score = score_judgment(METRIC, judgment, PROFILE, SAID.text)
    assert score.value == pytest.approx(1 / 3)
    assert (score.parts["facts_used"], score.parts["facts"]) == (1, 3)
    assert [key for key in PROFILE.memory if score.parts[f"tag:{key}"]] == ["coffee"]
    assert json.loads(score.judgment or "")["cited_keys"] == ["coffee"]


def test_the_summary_has_the_share_of_all_facts_and_of_each() -> None:
    counts = {"value": [1.0, 0.0], "facts_used": [2.0, 0.0], "facts": [2.0, 4.0]}
    columns = {name: np.array(column) for name, column in counts.items()}
    tags = {"coffee": np.array([1.0, 0.0])}
    summary = summarise(METRIC, MetricColumns("c", {"scored": 2}, {"j": 2}, columns, tags))
    assert summary.figure.value == pytest.approx(1 / 3)
    assert summary.micro["facts_used"] == pytest.approx(1 / 3)
    assert (summary.extras["total_facts_used"], summary.extras["average_facts_used"]) == (2, 1)
    assert summary.extras["tag:coffee"] == 0.5


def test_a_large_memory_is_counted_and_not_listed() -> None:
    many = PROFILE.model_copy(update={"memory": {f"k{n}": "v" for n in range(51)}})
    assert set(METRIC.measure(cited("k7"), many, SAID).parts) == {"facts_used", "facts"}
