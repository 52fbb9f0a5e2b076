"""Judgments that are read from free text: one call for the metrics that share it, an abstention
where nothing can be read."""

import asyncio
import json
from typing import Any

import pytest
from pydantic import BaseModel

from memray_eval.errors import Malformed, Refused
from memray_eval.judges.adapter import InvalidVerdict, parse_judgment
from memray_eval.judges.structured_judge import REASKS
from memray_eval.metrics import pick
from memray_eval.metrics.assistant.empathy import EmpathyJudgment
from memray_eval.metrics.assistant.memory_utilization import MemoryUtilizationJudgment
from memray_eval.metrics.assistant.rubrics import HelpfulnessJudgment
from memray_eval.metrics.companion import METRIC_OF, OVERALL, WEIGHTS, CompanionJudgment
from memray_eval.metrics.long_context.beam import EventOrderJudgment
from memray_eval.metrics.long_context.longmemeval_judge import LongMemEvalJudgment
from memray_eval.types import Score
from tests.build import build_record, build_sample, judge_metrics
from tests.fake_judges import MESSAGES, MemoryStore, Rating, ScriptedAdapter, scripted_judge

FAMILY = (OVERALL, *METRIC_OF.values())
FORM = "Score: 0.8 | Reasoning: warm {and} honest"
SAID = {"evidence": [], "reasoning": "fine", **dict.fromkeys(WEIGHTS, 0.5), "overall": 0.6}
JSON = json.dumps(SAID)


def judgment_of(adapter: ScriptedAdapter, judgment: type[BaseModel] = CompanionJudgment) -> Any:
    return asyncio.run(scripted_judge(adapter).judge(MESSAGES, judgment)).judgment


def scores(adapter: ScriptedAdapter, calls: MemoryStore | None) -> dict[str, Score]:
    record = build_record(build_sample(query="I'm sad"), "That sounds hard.")
    judge = scripted_judge(adapter, {"calls": calls})
    judged = judge_metrics(record, pick(FAMILY), {name: [judge] for name in FAMILY})
    return {score.metric: score for score in judged.scores}


@pytest.mark.parametrize("why", ["warm {and} honest", "0.2 off for its length"])
def test_free_text_is_read_at_once(why: str) -> None:
    adapter = ScriptedAdapter(f"Score: 0.8 | Reasoning: {why}")
    verdict = judgment_of(adapter)
    assert (verdict.overall, verdict.reasoning, verdict.helpfulness) == (0.8, why, None)
    assert len(adapter.sent) == 1


@pytest.mark.parametrize(
    "reply", [JSON, f"```json\n{JSON}\n```", f"Score: 0.1 | Reasoning: see\n{JSON}"]
)
def test_json_goes_before_free_text(reply: str) -> None:
    assert (
        judgment_of(ScriptedAdapter(reply)).overall,
        judgment_of(ScriptedAdapter(reply)).helpfulness,
    ) == (0.6, 0.5)


@pytest.mark.parametrize(
    "broken",
    [
        *(JSON.replace("0.6", "6"), "I like it.", "Score: 8 | Reasoning: x", '{"overall": 0.5'),
        *("Score: 0.4, 0.9", "Score: 0.7 → 0.9", "Score: 0.4 | Overall: 0.9 | Reasoning: x"),
        *("Score: 1 of 5", "Score: 1 (out of 5)", "Score: 1 on a scale of 1-5", "Score: 1 star"),
        *("Score: 1½", "Score: 1e-1", "Score: 1 - poor (1 = worst, 5 = best)"),
    ],
)
def test_what_is_neither_is_asked_for_again(broken: str) -> None:
    adapter = ScriptedAdapter(broken, FORM)
    assert judgment_of(adapter).overall == 0.8
    assert len(adapter.sent) == 2


FOUND = {"useful_parts": ["a walk"], "missing_info": [], "suggested_followups": []}
WHOLE = json.dumps({**FOUND, "reasoning": "It helps.", "helpfulness_score": 4})


def saying(score: Any, **more: Any) -> str:
    return json.dumps({**json.loads(WHOLE), **more, "helpfulness_score": score})


@pytest.mark.parametrize(
    "reply",
    [
        *(saying(score) for score in ("4/5", "4 out of 5", "**4**", "4 (good)", {"score": 4}, [4])),
        saying(4, reasoning=["It", "helps."], useful_parts=[{"quote": "a walk"}]),
        WHOLE.replace("It helps.", 'It says "a walk", and helps.'),
        WHOLE.replace('"', "'").replace("It helps", "It's helpful"),
        WHOLE.replace("], ", "] "),
        WHOLE.replace('"', "").replace("[a walk]", "['a walk']"),
        WHOLE.replace(": ", "：").replace(", ", "，"),
        WHOLE.replace('"', "”"),
        WHOLE.replace("4}", "4 /* good */}"),
        WHOLE.replace("It helps", 'The "helpfulness" is: helpful'),
    ],
)
def test_a_verdict_with_a_slip_is_that_verdict(reply: str) -> None:
    read = parse_judgment(reply, HelpfulnessJudgment)
    assert read.helpfulness_score == 4  # type: ignore[attr-defined]
    assert read.useful_parts == ["a walk"]  # type: ignore[attr-defined]


# Prose of a reason that names the field which the verdict lacks
UNSAID = ('is", helpfulness_score: 2, at most"}', 'is" "helpfulness_score": 2, maybe"}')


@pytest.mark.parametrize(
    ("reply", "thoughts"),
    [
        *((saying(score), "") for score in ("8/10", "4 or 5", "3-4", "80%", True, [2, 5], "-4")),
        *((saying(score), "") for score in ("4 (out of ten)", "3, or four", "4 - ½", "4 (%)")),
        *((saying({"score": 4} | most), "") for most in ({"most": 5}, {"scale": "1-10"})),
        *((f"{WHOLE}\nFinal: {final}", "") for final in ('{"final_score": 2}', '{"有用性": 2}')),
        *((WHOLE.partition(', "helpf')[0] + f', so "it {end}', "") for end in UNSAID),
        (WHOLE.replace('["a walk"]', '["a walk" "b"]'), ""),
        (WHOLE.replace("], ", "]}\n{", 1), ""),
        (WHOLE.replace("4}", '4, "scale": "ten" or so}'), ""),
        (WHOLE.replace("It helps.", 'So "helpfulness_score": 2" it is'), ""),
        (f"{WHOLE}\n{saying('none')}", ""),
        (WHOLE.partition('"helpfulness')[0], ""),
        ("", f"Maybe {saying(1)}. But no, it helps."),  # a draft is no verdict
        ("Good.", f"Maybe {saying(1)}, or {saying(5)}"),
    ],
)
def test_a_figure_that_is_in_doubt_is_not_read(reply: str, thoughts: str) -> None:
    with pytest.raises(InvalidVerdict):
        parse_judgment(reply, HelpfulnessJudgment, thoughts)


LEVEL = {"evidence": list[str](), "reason": "r", "level": 2}
WARM = dict.fromkeys(("emotional_reaction", "interpretation", "exploration"), LEVEL)
WARM |= {"dismissive_words": [], "empathy_gaps": [], "explanation": "true"}
KEYS = '{"evidence": [], "reasoning": "say "x"", "cited_keys": %s}'


@pytest.mark.parametrize(
    ("reply", "judgment", "name", "value"),
    [
        (json.dumps(WARM), EmpathyJudgment, "empathy_score", 5),
        (json.dumps(WARM).replace("2", "true", 1), EmpathyJudgment, "empathy_score", None),
        (KEYS % '["a", "b"]', MemoryUtilizationJudgment, "cited_keys", ["a", "b"]),
        *(
            (KEYS % keys, MemoryUtilizationJudgment, "cited_keys", None)
            for keys in ('["a" "b"]', '["a", b]', "[a, b]", '["a"]} and {"x": ["b"]')
        ),
        (KEYS.replace('"x"', "x") % "['a' 'b']", MemoryUtilizationJudgment, "cited_keys", None),
        ('{"reply": yes}', LongMemEvalJudgment, "reply", "yes"),
        *(
            (reply, LongMemEvalJudgment, "reply", None)
            for reply in ('{"reply": true}', '{"reply": "no", why: "yes"}', '{"reply": "no" "yes"}')
        ),
        ('{"reason": "x", "order": 4}', EventOrderJudgment, "order", None),
        ('{"reason": "x", "order": [1, true]}', EventOrderJudgment, "order", None),
    ],
)
def test_no_slip_is_read_as_another_verdict(
    reply: str, judgment: type[BaseModel], name: str, value: Any
) -> None:
    try:
        assert getattr(parse_judgment(reply, judgment), name) == value
    except InvalidVerdict:
        assert value is None


def test_json_that_does_not_fit_is_not_read_as_text() -> None:
    with pytest.raises(Refused):
        judgment_of(ScriptedAdapter(f"Score: 0.8\n{JSON.replace('0.6', '6')}"))


def test_what_can_never_be_read_is_an_abstention_only_where_text_could_have_been() -> None:
    adapter = ScriptedAdapter("I like it.")
    with pytest.raises(Refused, match="could not be read in 3 attempts") as raised:
        judgment_of(adapter)
    assert len(adapter.sent) == REASKS + 1
    assert raised.value.input_tokens == 30
    with pytest.raises(Malformed):
        judgment_of(ScriptedAdapter("Score: 0.8"), Rating)


def test_seven_metrics_are_one_call() -> None:
    adapter, calls = ScriptedAdapter(JSON), MemoryStore()
    verdicts = scores(adapter, calls)
    assert {name: score.value for name, score in verdicts.items()} == dict.fromkeys(FAMILY, 0.5)
    assert len(adapter.sent) == len(calls.calls) == 1
    assert sorted(score.cached for score in verdicts.values()) == [False] + [True] * 6
    assert sum(score.usage.input_tokens for score in verdicts.values()) == 10


def test_free_text_is_one_call_too_and_gives_overall_quality_alone() -> None:
    adapter = ScriptedAdapter(FORM)
    verdicts = scores(adapter, MemoryStore())
    assert len(adapter.sent) == 1
    assert {name for name, score in verdicts.items() if score.value is not None} == {OVERALL}
    assert verdicts[OVERALL].value == 0.8


def test_an_unreadable_verdict_is_paid_once_and_abstains_for_all() -> None:
    adapter, calls = ScriptedAdapter("I like it."), MemoryStore()
    for _ in range(2):
        verdicts = scores(adapter, calls)
        assert {score.status for score in verdicts.values()} == {"abstained"}
        assert all("read" in (score.error or "") for score in verdicts.values())
    assert len(adapter.sent) == REASKS + 1
