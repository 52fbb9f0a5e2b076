"""The family's metrics on samples: parts, aggregates, and what they don't apply to."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

from memray_eval.metric import MetricColumns, summarise
from memray_eval.metrics import all_metrics
from memray_eval.report.console import metric_lines
from memray_eval.types import Sample, Score
from tests.build import build_sample, score_text

FAMILY = {name: metric for name, metric in all_metrics().items() if metric.family == "instruction"}


def sample(**fields: Any) -> Sample:
    return build_sample(**{"query": "Say hello in 3 words", "prompt_type": "simple"} | fields)


def summary(metric: str, scores: list[Score]):  # type: ignore[no-untyped-def]
    columns = {
        part: np.array([score.parts.get(part, 0.0) for score in scores])
        for part in FAMILY[metric].columns
    }
    columns["value"] = np.array([score.value for score in scores])
    n = len(scores)
    outcomes = MetricColumns("m", Counter(scored=n), Counter(computed=n), columns)
    return summarise(FAMILY[metric], outcomes)


def test_instruction_quality_carries_its_subscores() -> None:
    scored = score_text("instruction_quality", sample(), "Hey what is up?")
    assert (scored.value, scored.parts["word_count"], scored.parts["word_count/n"]) == (70.0, 25, 1)
    cut = score_text("instruction_quality", sample(), "Hello there friend", finish_reason="length")
    assert cut.value == 80.0
    weighted = sample(metadata={"weights": {"word_count": 1.0}})
    assert score_text("instruction_quality", weighted, "Hey what is up?").value == 25.0
    other = score_text("instruction_quality", sample(prompt_type="poem"), "x")
    expected = ("not_applicable", "prompt_type 'poem' is none of: simple, navigation, reasoning")
    assert (other.status, other.error) == expected
    wrong = sample(metadata={"weights": {"word_count": 0.5}})
    assert score_text("instruction_quality", wrong, "x").status == "error"


def test_the_mean_of_a_check_leaves_out_responses_without_it() -> None:
    texts = {"Hello there friend": sample(), "Hey what is up?": sample()}
    texts["{}"] = sample(prompt_type="navigation")
    scores = [score_text("instruction_quality", prompted, text) for text, prompted in texts.items()]
    summed = summary("instruction_quality", scores)
    assert summed.macro["word_count"] == 62.5
    assert summed.macro["json_validity"] == 100
    assert summed.macro["answer_present"] is None
    assert summed.extras["excellent"] == pytest.approx(1 / 3)
    assert sum(summed.extras.values()) == pytest.approx(1)
    assert any("Production-ready" in line for line in metric_lines(summed))


def test_expected_answers() -> None:
    question = sample(query="Which? A) x B) y", answers=["B"])
    assert score_text("exact_match", question, "B, as I said").value == 1.0
    assert score_text("exact_match", question, "").value == 0.0
    f1 = score_text("answer_f1", sample(answers=["Lisbon"]), "in Lisbon").value
    assert f1 == pytest.approx(2 / 3)
    for name in ("exact_match", "answer_f1"):
        assert score_text(name, sample(), "x").status == "not_applicable"
