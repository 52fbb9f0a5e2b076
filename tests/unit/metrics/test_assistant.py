"""Formulas of seed 000: memory utilization, groundedness, relevance, and the counts of others."""

import json
from collections.abc import Sequence
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memray_eval.errors import ConfigError
from memray_eval.metric import Columns
from memray_eval.metrics import pick
from memray_eval.metrics.assistant import empathy, groundedness, memory_utilization, relevance
from memray_eval.metrics.assistant.empathy import EmpathyJudgment
from memray_eval.metrics.assistant.groundedness import GroundednessJudgment
from memray_eval.metrics.assistant.memory_utilization import KeyCitation, MemoryUtilizationJudgment
from memray_eval.types import Response, Sample
from tests.build import build_sample, cited, empathy_verdict, judged_metric, score_judgment

ANSWER = Response(text="x")


def used(sample: Sample, *keys: str) -> dict[str, float]:
    measure = memory_utilization.measure(cited(*keys), sample, ANSWER)
    return {**measure.parts, "f1": round(measure.value, 4)}


@pytest.mark.parametrize(
    ("keys", "counts", "f1"),
    [
        ([], (0, 0, 2), 0.0),  # nothing cited: precision 1, recall 0
        (["sleep_hours_avg", "known_condition"], (2, 0, 0), 1.0),
        (["sleep_hours_avg", "age"], (1, 1, 1), 0.5),
        # neutral and unlisted keys count nowhere, and a key counts once
        (["sleep_hours_avg", "name", "invented_key", "sleep_hours_avg"], (1, 0, 1), 0.6667),
    ],
)
def test_citations(sample: Sample, keys: list[str], counts: tuple[int, ...], f1: float) -> None:
    assert used(sample, *keys) == dict(zip(("tp", "fp", "fn", "f1"), (*counts, f1), strict=True))
    assert used(build_sample(memory={"a": "1"}))["f1"] == 1.0  # nothing is required


def test_the_judge_is_shown_all_candidate_keys_and_not_their_roles(sample: Sample) -> None:
    prompt = memory_utilization.prompt(sample, ANSWER)
    keys = prompt[1].content.split("KEYS")[1].split(">")[1].split("<")[0].split()
    # Age is not in memory
    assert sorted(keys) == ["age", "caffeine_intake", "known_condition", "name", "sleep_hours_avg"]
    roles = {"required_keys": (), "forbidden_keys": ("age", "name"), "neutral_keys": ()}
    assert memory_utilization.prompt(sample.model_copy(update=roles), ANSWER) == prompt


def test_a_neutral_key_that_memory_lacks_counts_nowhere_and_is_not_invented(sample: Sample) -> None:
    neutral = sample.model_copy(update={"neutral_keys": ("name", "ferritin_level")})
    judgment = cited("sleep_hours_avg", "ferritin_level")
    assert memory_utilization.verify(judgment, neutral, ANSWER).parts == {"invented_keys": 0}
    assert used(neutral, "sleep_hours_avg", "ferritin_level") == used(neutral, "sleep_hours_avg")


@pytest.mark.parametrize("key", ["Sleep Hours Avg", "sleep-hours-avg", "SLEEPHOURS_avg"])
def test_a_key_is_known_whatever_its_case_and_separators(sample: Sample, key: str) -> None:
    evidence = [KeyCitation(key=key, quote=ANSWER.text[:20])]
    judgment = cited(key, "sleep_hours_avg", evidence=evidence)
    verified = memory_utilization.verify(judgment, sample, ANSWER)
    assert isinstance(verified.judgment, MemoryUtilizationJudgment)
    assert verified.judgment.cited_keys == ["sleep_hours_avg"]
    assert (verified.parts, verified.pieces, verified.unverified) == ({"invented_keys": 0}, 1, ())


def test_two_keys_that_differ_in_case_alone_are_told_apart_by_their_exact_names() -> None:
    two = build_sample(memory={"Job": "1", "job": "2"}, required_keys=["job"])
    verified = memory_utilization.verify(cited("job", "JOB"), two, ANSWER)
    assert isinstance(verified.judgment, MemoryUtilizationJudgment)
    assert (verified.judgment.cited_keys, verified.parts) == (["job"], {"invented_keys": 1})


def columns_of(tp: Sequence[float], fp: Sequence[float], fn: Sequence[float]) -> Columns:
    columns = {"tp": np.array(tp, float), "fp": np.array(fp, float), "fn": np.array(fn, float)}
    return columns | {"value": memory_utilization.f1_scores(columns)}


def test_micro_sums_before_dividing_and_macro_after() -> None:
    figures = memory_utilization.aggregate(columns_of([4, 0], [0, 2], [0, 2]))
    assert figures.micro["precision"] == pytest.approx(4 / 6)
    assert figures.micro["recall"] == pytest.approx(4 / 6)
    assert figures.macro == {"precision": 0.5, "recall": 0.5, "f1": 0.5}
    assert (figures.micro["tp"], figures.micro["fp"], figures.micro["fn"]) == (4, 2, 2)


def test_nothing_cited_has_no_precision_nothing_required_no_recall_and_no_key_no_f1() -> None:
    figures = memory_utilization.aggregate(columns_of([0, 0], [0, 0], [1, 2]))
    assert figures.micro["precision"] is figures.macro["precision"] is None
    assert figures.micro["recall"] == figures.macro["recall"] == 0.0
    figures = memory_utilization.aggregate(columns_of([0, 0], [1, 0], [0, 0]))
    assert figures.micro["recall"] is figures.macro["recall"] is None
    figures = memory_utilization.aggregate(columns_of([0, 0], [0, 0], [0, 0]))
    assert figures.micro["f1"] is figures.macro["f1"] is None


counts = st.lists(st.tuples(*[st.integers(0, 9)] * 3), min_size=1, max_size=20)


@given(counts.filter(lambda rows: any(map(any, rows))))
def test_figures_stay_in_their_scale(rows: list[tuple[int, int, int]]) -> None:
    figures = memory_utilization.aggregate(columns_of(*zip(*rows, strict=True)))
    micro = [figures.micro[name] for name in ("precision", "recall", "f1")]
    stated = [figure for figure in (*figures.macro.values(), *micro) if figure is not None]
    assert all(0.0 <= figure <= 1.0 for figure in stated)
    precision, recall, f1 = (figure or 0.0 for figure in micro)
    assert min(precision, recall) - 1e-9 <= f1 <= max(precision, recall) + 1e-9


def claims(
    *sources: str, passes_over_question: bool = False, **fields: Any
) -> GroundednessJudgment:
    listed = [{"claim": "c", "reason": "r", "source": source} for source in sources]
    fields |= {"claims": listed, "passes_over_question": passes_over_question}
    return GroundednessJudgment.model_validate(fields)


@pytest.mark.parametrize(
    ("sources", "value", "hallucinated"),
    [
        (("memory", "query", "history", "general"), 1.0, 0),
        (("memory", "none"), 0.5, 1),
        (("none",), 0.0, 1),
    ],
)
def test_claims(sample: Sample, sources: list[str], value: float, hallucinated: int) -> None:
    own_arithmetic = claims(*sources, groundedness_score=0.9)  # a judge's
    for judgment in (claims(*sources), own_arithmetic):
        measure = groundedness.measure(judgment, sample, ANSWER)
        assert (measure.value, measure.parts["hallucinated"]) == (value, hallucinated)


def test_an_answer_without_claims_has_no_groundedness_and_its_call_is_paid(sample: Sample) -> None:
    score = score_judgment("groundedness", claims(), sample, cost_usd=0.1)
    assert (score.status, score.value, score.error) == ("not_applicable", None, "no claims")
    expected = ("a/b", 0.1, {"claims": [], "passes_over_question": False})
    assert (score.judge, score.cost_usd, json.loads(score.judgment or "")) == expected
    score = score_judgment("groundedness", claims(passes_over_question=True), sample)
    assert score.error == "no claims, though the query asks for knowledge"


@pytest.mark.parametrize(
    ("fields", "reading", "value"),
    [
        ({}, "given_and_general", 1.0),
        ({"context": "The mill burned down in 1874."}, "given", 0.5),
        ({"memory": {"article": "word " * 40}}, "given", 0.5),
        ({"memory": {"fact": "word " * 39}}, "given_and_general", 1.0),
        ({"metadata": {"sources": "given"}}, "given", 0.5),
        ({"context": "c", "metadata": {"sources": "given_and_general"}}, "given_and_general", 1.0),
    ],
)
def test_sources_that_ground_a_claim(fields: dict[str, Any], reading: str, value: float) -> None:
    sample = build_sample(**fields)
    content = judged_metric("groundedness").messages(sample, ANSWER)[1].content
    assert f">\n{reading}\n</SOURCES" in content
    assert ("<CONTEXT" in content) == bool(sample.context)
    measured = groundedness.measure(claims("query", "general"), sample, ANSWER)
    assert (measured.value, measured.parts["given"]) == (value, reading == "given")


def test_groundedness_micro_weighs_by_claims() -> None:
    columns = {"claims": [9.0, 1.0], "grounded": [9.0, 0.0], "value": [1.0, 0.0]}
    figures = groundedness.aggregate({name: np.array(column) for name, column in columns.items()})
    assert figures.micro["groundedness_score"] == pytest.approx(0.9)
    assert figures.micro["hallucination_rate"] == pytest.approx(0.1)
    assert figures.macro == {"groundedness_score": 0.5, "hallucination_rate": 0.5}


@pytest.mark.parametrize(("cosine", "value"), [(1.0, 1.0), (0.3, 0.3), (-0.4, 0.0)])
def test_relevance_has_no_negatives(sample: Sample, cosine: float, value: float) -> None:
    vectors = {sample.query: np.array([1.0, 0.0]), "x": np.array([cosine, np.sqrt(1 - cosine**2)])}
    measure = relevance.measure(sample, ANSWER, vectors)
    assert measure.value == pytest.approx(value)
    assert measure.parts["cosine"] == pytest.approx(cosine)


def test_counts_are_summed_and_averaged_over_samples() -> None:
    counts = {"contradicted": [0.0, 1.0], "forgotten": [1.0, 2.0], "invented": [0.0, 1.0]}
    columns = {name: np.array(column) for name, column in counts.items()}
    totals = {f"total_{name}": sum(column) for name, column in counts.items()}
    averages = {f"average_{name}": fmean(column) for name, column in counts.items()}
    extras = judged_metric("conversational_continuity").aggregate(columns).extras
    assert extras == totals | averages


def judge_empathy(*levels: int, **fields: Any) -> EmpathyJudgment:
    return EmpathyJudgment.model_validate(empathy_verdict(*levels, **fields))


@pytest.mark.parametrize(
    ("levels", "score"),
    [
        *(((0, 0, 0), 2), ((1, 0, 0), 3), ((0, 2, 0), 3), ((1, 1, 1), 4), ((2, 2, 0), 4)),
        *(((2, 2, 1), 5), ((2, 2, 2), 5)),
    ],
)
def test_empathy_counts_its_parts(sample: Sample, levels: tuple[int, ...], score: int) -> None:
    judgment = judge_empathy(*levels, quotes=["a", "a"], empathy_score=1)
    assert (judgment.empathy_score, judgment.supportive_elements) == (score, ["a"])
    assert judgment.validation_present == (levels[1] > 0)
    assert judgment.warmth_level == ("low", "moderate", "high")[levels[0]]
    assert empathy.measure(judgment, sample, ANSWER).value == score
    harsh = judge_empathy(*levels, dismissive_words=["grow up"])
    assert (harsh.empathy_score, harsh.warmth_level) == (1, "cold")


def test_the_aggregates_of_empathy_are_rates_counts_and_averages(sample: Sample) -> None:
    judgments = [
        judge_empathy(2, 1, 1, quotes=["a", "b", "c"]),
        judge_empathy(2, 2, 0, quotes=["a", "b"]),
        judge_empathy(1, 1, 0, quotes=["a"], empathy_gaps=["gap"]),
        judge_empathy(0, 0, 0, dismissive_words=["grow up"], empathy_gaps=["gap", "another"]),
    ]
    parts = [empathy.measure(judgment, sample, ANSWER).parts for judgment in judgments]
    assert set(parts[0]) == set(empathy.METRIC.parts)
    columns = {name: np.array([part[name] for part in parts]) for name in empathy.METRIC.parts}
    extras = empathy.aggregate(columns).extras
    warmth = {"high": 2, "moderate": 1, "low": 0, "cold": 1}
    assert extras == {
        "validation_rate": 0.75,
        **{f"warmth_{level}": n for level, n in warmth.items()},
        **{f"warmth_{level}_share": n / 4 for level, n in warmth.items()},
        **{"total_supportive_elements": 6, "avg_supportive_elements": 1.5},
        **{"total_empathy_gaps": 3, "avg_empathy_gaps": 0.75, "avg_emotional_reaction": 1.25},
        **{"avg_interpretation": 1.0, "avg_exploration": 0.25},
    }
    fields = [line.field for block in empathy.METRIC.layout[1:] for line in block.lines]
    # A bar prints count and share
    assert {*fields} == {f"extras.{name}" for name in extras if not name.endswith("_share")}


def test_an_unknown_metric_is_named_with_the_known() -> None:
    with pytest.raises(ConfigError, match="no metric 'sparkle'; there are: "):
        pick(["relevance", "sparkle"])


@pytest.mark.parametrize("name", ["coherence", "empathy", "helpfulness", "safety"])
def test_a_history_is_shown_where_there_is_one(name: str) -> None:
    talk = build_sample(history=[{"role": "user", "content": "Tea or milk?"}])
    metric = judged_metric(name)
    shown = [metric.messages(sample, ANSWER)[1].content for sample in (build_sample(), talk)]
    assert ["Tea or milk?" in text for text in shown] == [False, True]
    assert ["<HISTORY" in text for text in shown] == [False, True]
