from typing import Any

import pytest

from memray_eval.metrics.assistant import judged_conduct
from memray_eval.metrics.assistant.memory_conduct import METRIC, measure
from memray_eval.metrics.catalogue import list_lines
from memray_eval.types import Response, Sample
from tests.bench.estimates import conduct_pairs, measure_conduct
from tests.build import build_sample


def sample(**expects: Any) -> Sample:
    return build_sample(metadata={"expects": expects} if expects else {})


@pytest.mark.parametrize(
    ("expects", "text", "value"),
    [
        ({"say": [["warfarin"]]}, "Warfarin's effect falls.", 1),
        ({"say": [["warfarin"], ["5 mg"]]}, "Your warfarin needs care.", 0),
        ({"say": [["8,000", "eight thousand"]]}, "You owe 8000 euros.", 1),
        ({"say": [["art"]]}, "That is a good start.", 0),
        ({"say": [["level 4"]]}, "Stay with level-4 food.", 1),
        ({"say": [["轻度贫血"]]}, "你有轻度贫血。", 1),
        ({"not": ["Dominic"]}, "You lent it to Dominic.", 0),
        ({"not": ["Dominic"]}, "I cannot speak of that.", 1),
        ({"say": [["new"]], "outdated": ["old"]}, "Not the old one, the new one.", 1),
        ({"say": [["new"]], "outdated": ["old"]}, "You have the old one.", 0),
        ({"outdated": ["old"]}, "Neither.", 1),
        ({"ask": ["tablets"]}, "Which tablets do you take?", 1),
        ({"ask": ["tablets"]}, "Tell me of your tablets. Is that all?", 0),
        ({"ask": ["Tabletten"]}, "Welche Tabletten nehmen Sie ein？", 1),
        ({"say": [["a1"], ["b2"]], "or_ask": ["dose"]}, "Which dose is right?", 1),
        ({"say": [["a1"], ["b2"]], "or_ask": ["dose"]}, "It is a1.", 0),
        ({"say": [["a1"]]}, "", 0),
    ],
)
def test_what_a_response_does(expects: dict[str, Any], text: str, value: float) -> None:
    assert measure(sample(**expects), Response(text=text)).value == value


@pytest.mark.parametrize(
    ("expects", "message"),
    [
        ({"tell": ["x"]}, "no 'tell'; there are: say, not"),
        ({"say": ["x"]}, "expects.say: a list of lists of texts"),
        ({"not": [""]}, "expects.not: a list of texts, none of them empty"),
        ({"ask": "dose"}, "expects.ask: a list of texts"),
    ],
)
def test_expectations_that_cannot_be_read(expects: dict[str, Any], message: str) -> None:
    for read in (measure, judged_conduct.prompt):
        with pytest.raises(ValueError, match=message):
            read(sample(**expects), Response(text="x"))


def test_without_expectations_it_does_not_apply() -> None:
    assert METRIC.applies(sample()) == "metadata.expects says nothing of this sample"
    assert METRIC.applies(sample(say=[["x"]])) is None


def test_its_worth_is_what_labelled_replies_say() -> None:
    assert str(METRIC.measured) == str(measure_conduct())
    assert measure_conduct(of_baselines=True).kappa == 1.0
    assert len({split for split, _, _ in conduct_pairs()}) == 10
    assert f"rules: {METRIC.measured}" in " ".join(" ".join(list_lines([METRIC])).split())


def test_a_judge_sees_what_bears_on_the_expectations_alone() -> None:
    question = sample(say=[["warfarin"]], **{"not": ["Dominic", "4,200"]}).model_copy(
        update={"memory": {"tablet": "Warfarin 5 mg", "loan": "to Dominic", "town": "Gdynia"}}
    )
    _, data = judged_conduct.prompt(question, Response(text="x"))
    assert "- uses: warfarin\n- keeps to itself: Dominic / 4,200\n" in data.content
    assert "tablet: Warfarin 5 mg" in data.content
    assert "loan: to Dominic" in data.content
    assert "Gdynia" not in data.content
