"""The metric of a sample's own criteria: its score against the published grader's formula, its
calls and verdicts, what cannot be scored, and the figures by tag."""

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from pydantic import BaseModel

from memray_eval.analysis.reduce import reduce_records
from memray_eval.config.sections import CriteriaOptions, MetricOptions
from memray_eval.errors import Malformed
from memray_eval.metric import JudgedMetric
from memray_eval.metrics.criteria import CriteriaJudgment, CriterionJudgment, join
from memray_eval.types import Response, Sample, Score
from tests.build import (
    build_dataset,
    build_folder,
    build_record,
    build_sample,
    judge_metrics,
    judged_metric,
    score_judgment,
)
from tests.fake_judges import FakeJudge

ANSWER = Response(text="Call an ambulance now, and chew an aspirin.")


def metric(per: str = "criterion") -> JudgedMetric:
    options = CriteriaOptions.model_validate({"per": per})
    return judged_metric("criteria", MetricOptions(criteria=options))


def criterion(points: float, text: str = "c", *tags: str) -> dict[str, Any]:
    return {"criterion": text, "points": points, "tags": [*tags]}


def sample(*criteria: Any, **metadata: Any) -> Sample:
    return build_sample(metadata={"criteria": [*criteria], **metadata})


def verdicts(*met: bool) -> CriteriaJudgment:
    return join([CriterionJudgment(evidence=[], reason="r", met=is_met) for is_met in met])


def published(
    rubrics: Sequence[Mapping[str, Any]], met: Sequence[bool], example_tags: Sequence[str]
) -> dict[str, float]:
    """The figures of one example as healthbench_eval.py's grade_sample makes them, by name."""

    def score(items: Sequence[tuple[Mapping[str, Any], bool]]) -> float | None:
        possible = sum(item["points"] for item, _ in items if item["points"] > 0)
        if possible == 0:
            return None
        return float(sum(item["points"] for item, is_met in items if is_met) / possible)

    pairs = list(zip(rubrics, met, strict=True))
    overall = score(pairs)
    assert overall is not None
    figures = {"overall": overall, **dict.fromkeys(example_tags, overall)}
    for tag in {tag for item, _ in pairs for tag in item["tags"]}:
        if (of_tag := score([pair for pair in pairs if tag in pair[0]["tags"]])) is not None:
            figures[tag] = of_tag
    return figures


def drawn(chance: random.Random) -> tuple[list[dict[str, Any]], list[bool], list[str]]:
    axes, themes = ["axis:accuracy", "axis:completeness", "level:cluster"], ["theme:a", "theme:b"]
    points = [-10, -7, -3, 2, 5, 8, 10]
    items = [
        criterion(chance.choice(points), "c", *chance.sample(axes, chance.randint(0, 2)))
        for _ in range(chance.randint(1, 40))
    ]
    items.append(criterion(chance.randint(1, 10)))
    return items, [chance.random() < 0.6 for _ in items], chance.sample(themes, 1)


def test_a_thousand_verdict_sets_have_the_published_figures(tmp_path: Path) -> None:
    """Each sample's score and tags, and the clipped means over all as the grader's aggregate."""
    chance, records, by_name = random.Random(38), [], dict[str, list[float]]()
    for number in range(1000):
        items, met, tags = drawn(chance)
        question = sample(*items, example_tags=tags).model_copy(update={"id": f"s{number}"})
        score = score_judgment(metric(), verdicts(*met), question, ANSWER.text)
        expected = published(items, met, tags)
        for name, value in expected.items():
            by_name.setdefault(name, []).append(value)
        assert score.value == pytest.approx(expected.pop("overall"), abs=1e-9)
        parts = {f"tag:{tag}": pytest.approx(value, abs=1e-9) for tag, value in expected.items()}
        assert score.parts == {"criteria": len(items), "met": sum(met), **parts}
        records.append(build_record(question, ANSWER, score))
    (summary,) = reduce_records(build_folder(tmp_path, records).records(), [metric()]).metrics
    means = {name: min(max(fmean(values), 0.0), 1.0) for name, values in by_name.items()}
    overall = means.pop("overall")
    assert (summary.mean, summary.figure.value) == pytest.approx((overall, overall), abs=1e-9)
    tags = {name: summary.extras[f"tag:{name}"] for name in means}
    assert tags == pytest.approx(means, abs=1e-9)
    (section,) = (part for part in summary.layout if part.heading == "By tag:")
    assert {line.label: line.note for line in section.lines} == {
        name: f"n {len(by_name[name]):,}" for name in sorted(means)
    }


def fixed(judgment: CriteriaJudgment, fails: Sequence[int] = ()) -> FakeJudge:
    """A judge that gives the verdicts of one judgment in order, call by call."""

    def reply(text: str, asked: type[BaseModel]) -> BaseModel | Exception:
        number = len(judge.seen)
        if number in fails:
            return Malformed("no JSON")
        if asked is not CriterionJudgment:
            return CriteriaJudgment(verdicts=judgment.verdicts)
        return asked(**judgment.verdicts[number - 1].model_dump(exclude={"number"}))

    judge = FakeJudge(reply, cost_usd=0.01)
    return judge


def test_a_score_by_hand_is_not_clipped_and_its_mean_is(tmp_path: Path) -> None:
    """(5 - 8) / (5 + 5) and (10 - 8) / 10; the mean, -0.05, is 0."""
    items = criterion(5, "a", "x"), criterion(5, "b"), criterion(-8, "fault", "y")
    records = []
    for number, met in enumerate([(True, False, True), (True, True, True)]):
        record = build_record(sample(*items).model_copy(update={"id": f"s{number}"}), ANSWER)
        records.append(judge_metrics(record, [metric()], {"criteria": [fixed(verdicts(*met))]}))
    assert [record.scores[0].value for record in records] == pytest.approx([-0.3, 0.2])
    assert records[0].scores[0].parts == {"criteria": 3, "met": 2, "tag:x": 1.0}
    (summary,) = reduce_records(build_dataset(tmp_path / "d", records), [metric()]).metrics
    assert (summary.mean, summary.figure.value, summary.min) == (0.0, 0.0, pytest.approx(-0.3))
    assert summary.extras["tag:x"] == 1.0  # y has no positive points


def scored(judge: FakeJudge, per: str, *criteria: Any) -> Score:
    record = build_record(sample(*criteria), ANSWER)
    return judge_metrics(record, [metric(per)], {"criteria": [judge]}).scores[0]


@pytest.mark.parametrize(("per", "n_calls"), [("criterion", 45), ("sample", 3)])
def test_each_criterion_is_asked_once_and_points_are_not_shown(per: str, n_calls: int) -> None:
    assert metric(per).variant == ("" if per == "criterion" else "several criteria a call")
    items = [criterion(number + 777, f"criterion {number}") for number in range(45)]
    calls = metric(per).make_calls(sample(*items), ANSWER)
    texts = [call[1].content for call in calls]
    assert len(calls) == n_calls
    for number in range(45):
        assert sum(f"criterion {number}\n" in f"{text}\n" for text in texts) == 1
    again = metric(per).make_calls(sample(*(item | {"points": 1} for item in items)), ANSWER)
    assert [*calls] == [*again]


@pytest.mark.parametrize("per", ["criterion", "sample"])
def test_a_score_keeps_each_verdict_with_its_criterion_and_points(per: str) -> None:
    score = scored(fixed(verdicts(True, False)), per, criterion(5, "rest"), criterion(-3, "pry"))
    kept = json.loads(score.judgment or "")["verdicts"]
    fields = ("number", "criterion", "points", "met")
    expected = [(1, "rest", 5.0, True), (2, "pry", -3.0, False)]
    assert [tuple(verdict[name] for name in fields) for verdict in kept] == expected


def renumbered(*numbers: int) -> CriteriaJudgment:
    about = {"evidence": [], "reason": "r"}
    fields = [{"number": n, "met": at % 2 == 0, **about} for at, n in enumerate(numbers)]
    return CriteriaJudgment.model_validate({"verdicts": fields})


@pytest.mark.parametrize(
    ("judgment", "error"),
    [
        (renumbered(1, 3, 5), "no verdict on 3 of 6 criteria: 2, 4, 6"),
        (renumbered(), "no verdict on 6 of 6 criteria: 1, 2, 3, 4, 5, 6"),
        (renumbered(1, 2, 3, 4, 5, 6, 2, 2), "contradicting verdicts on 1 of 6 criteria: 2"),
        (renumbered(0, 2, 3, 4, 5, 6, 7), "no verdict on 1 of 6 criteria: 1"),
    ],
)
def test_a_verdict_that_misses_some_is_no_score(judgment: CriteriaJudgment, error: str) -> None:
    score = scored(fixed(judgment), "sample", *[criterion(1)] * 6)
    assert (score.status, score.value, score.cost_usd) == ("abstained", None, 0.01)
    assert score.error == f"Refused: the judge gave {error}"
    assert score.judgment == judgment.model_dump_json()


def test_a_call_without_a_verdict_leaves_the_response_without_a_score() -> None:
    items = [criterion(1, f"criterion {number}") for number in range(6)]
    score = scored(fixed(verdicts(*[True] * 6), fails=[2, 5]), "criterion", *items)
    assert (score.status, score.value, score.calls) == ("error", None, 4)
    assert score.error == "Malformed: 2 of 6 calls gave no verdict; the first: no JSON"


NO_POINTS = "none of the sample's 2 criteria has positive points to get"
NO_LIST = "criteria: must be a list of objects with criterion and points, not str"
NO_NUMBER = "criteria.1: points is missing; write a number such as 5, or -5 for a fault"
NO_TAGS = "example_tags: must be a list of texts, not [3]"


@pytest.mark.parametrize(
    ("metadata", "why"),
    [
        ({}, "the sample has no criteria"),
        ({"criteria": []}, "the sample has no criteria"),
        ({"criteria": [criterion(-5), criterion(0)]}, NO_POINTS),
        ({"criteria": "be kind"}, NO_LIST),
        ({"criteria": [{"criterion": "c"}]}, NO_NUMBER),
        ({"criteria": [criterion(1)], "example_tags": [3]}, NO_TAGS),
    ],
)
def test_a_sample_without_points_is_not_applicable(metadata: dict[str, Any], why: str) -> None:
    record = build_record(build_sample(metadata=metadata), ANSWER)
    judge = fixed(verdicts())
    (score,) = judge_metrics(record, [metric()], {"criteria": [judge]}).scores
    assert (score.status, score.value, score.error) == ("not_applicable", None, why)
    assert judge.seen == []


def test_criteria_of_the_same_words_are_asked_once() -> None:
    items = criterion(1, "a", "x"), criterion(2, "b"), criterion(3, "a", "y")
    judge = fixed(verdicts(True, False))
    score = scored(judge, "criterion", *items)
    assert (len(judge.seen), score.calls, score.cost_usd) == (2, 2, pytest.approx(0.02))
    assert score.value == pytest.approx(4 / 6)
    assert score.parts == {"criteria": 3, "met": 2, "tag:x": 1.0, "tag:y": 1.0}


def test_a_jury_votes_on_responses() -> None:
    items = criterion(1, "a"), criterion(1, "b")
    jury = [fixed(verdicts(*met)) for met in ((True, True), (True, False), (False, False))]
    record = build_record(sample(*items), ANSWER)
    score = judge_metrics(record, [metric()], {"criteria": jury}).scores[0]
    assert (score.value, score.parts["disagreement"], score.calls) == (0.5, 1.0, 6)
