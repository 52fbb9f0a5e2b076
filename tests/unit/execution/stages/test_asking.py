"""How judges are asked: another judge or rubric for a task, and what stands in for a verdict that
none gave."""

from collections.abc import Sequence
from typing import Any

import pytest

from memray_eval.errors import (
    BudgetSpent,
    JudgeError,
    Malformed,
    Refused,
    ServiceLost,
    Stopped,
    Unavailable,
)
from memray_eval.execution.stages.judge import JudgingOptions, prompts_of_record
from memray_eval.metric import NEEDS_JUDGE
from memray_eval.metrics import pick
from memray_eval.metrics.long_context.semantic_correctness import CorrectnessJudgment
from memray_eval.types import Record, Response, Sample, Score
from tests.build import build_record, build_sample, judge_metrics
from tests.unit.execution.near import FakeJudge

METRIC = "semantic_correctness"
METRICS = pick([METRIC])
RIGHT = CorrectnessJudgment(answer="", reasoning="r", verdict="CORRECT", confidence=0.8)


def failing(error: JudgeError) -> JudgeError:
    error.input_tokens, error.cost_usd, error.calls = 7, 0.25, 3
    return error


def score(
    judges: dict[str, list[Any]], text: str = "Paris", task: str = "", **asking: Any
) -> Score:
    record = build_record(build_sample(answers=("paris",), task=task), text)
    (only,) = judge_metrics(record, METRICS, judges, JudgingOptions(**asking)).scores
    return only


def test_a_task_may_have_a_judge_of_its_own_or_none() -> None:
    usual, own = FakeJudge(RIGHT), FakeJudge(RIGHT, "own/judge")
    judges: dict[str, list[Any]] = {METRIC: [usual], f"{METRIC}/passkey": [own], f"{METRIC}/vt": []}
    names = [score(judges, task=task).judge for task in ("", "hotpotqa", "passkey", "vt")]
    assert names == ["fake/judge", "fake/judge", "own/judge", "rules"]
    assert (len(usual.seen), len(own.seen)) == (2, 1)


@pytest.mark.parametrize(
    ("response", "status"), [("Rest.", "not_applicable"), ("", "not_applicable"), (None, "error")]
)
def test_without_a_judge_and_an_estimate_a_metric_is_not_applicable(
    sample: Sample, response: str | None, status: str
) -> None:
    answer = Response(error="gone") if response is None else response
    (scored,) = judge_metrics(build_record(sample, answer), pick(["empathy"]), {}).scores
    assert (scored.status, scored.value, scored.judge) == (status, None, "")
    assert scored.error == ("generation failed: gone" if response is None else NEEDS_JUDGE)


def test_an_empty_response_is_no_estimate_where_a_judge_would_have_judged() -> None:
    empty = score({METRIC: [FakeJudge(RIGHT)]}, text=" ")
    assert (empty.judge, empty.value, empty.is_estimate) == ("rules (empty response)", 0.0, False)
    assert score({}, text=" ").is_estimate


def test_every_call_that_was_paid_counts() -> None:
    twice = [FakeJudge(RIGHT), FakeJudge(RIGHT), FakeJudge(failing(Malformed("bad")))]
    assert score({METRIC: twice}).calls == 2 + 3
    assert score({METRIC: [FakeJudge(RIGHT)]}).calls == 1
    replaced = score({METRIC: [FakeJudge(failing(Malformed("bad")))]}, on_failure="zero")
    assert (replaced.judge, replaced.calls) == ("zero", 3)
    assert score({}).calls is None


def test_a_task_may_have_a_rubric_of_its_own() -> None:
    judge = FakeJudge(RIGHT)
    rubrics = {METRIC: "Mind the units.", f"{METRIC}/passkey": "Mind the digits."}
    for task in ("hotpotqa", "passkey"):
        score({METRIC: [judge]}, task=task, rubrics=rubrics)
    usual, own = (messages[0].content for messages in judge.seen)
    assert usual.endswith("Mind the units.")
    assert own.endswith("Mind the digits.")


ERRORS = [Unavailable("down"), Malformed("no JSON"), Refused("I will not"), JudgeError("odd")]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize(
    ("way", "text", "value"),
    [
        ("string_match", " PARIS ", 1.0),
        ("string_match", "It is Paris.", 0.0),
        ("zero", "Paris", 0.0),
    ],
)
def test_what_stands_in_for_a_verdict_names_itself_and_keeps_the_failure(
    error: JudgeError, way: Any, text: str, value: float
) -> None:
    scored = score({METRIC: [FakeJudge(failing(error))]}, text, on_failure=way)
    assert (scored.status, scored.value, scored.judge) == ("scored", value, way)
    assert scored.error == f"{type(error).__name__}: {error}"
    assert (scored.usage.input_tokens, scored.cost_usd) == (7, 0.25)


def test_one_juror_who_was_heard_is_enough() -> None:
    silent = [FakeJudge(failing(error)) for error in (Unavailable("down"), Refused("no"))]
    scored = score({METRIC: [silent[0], FakeJudge(RIGHT), silent[1]]}, "wrong", on_failure="zero")
    assert (scored.value, scored.judge, scored.cost_usd) == (1.0, "fake/judge", 1.0)
    silent = [FakeJudge(failing(error)) for error in (Unavailable("down"), Refused("no"))]
    scored = score({METRIC: silent}, on_failure="zero")
    assert (scored.value, scored.judge, scored.cost_usd) == (0.0, "zero", 0.5)


@pytest.mark.parametrize("stop", [BudgetSpent("gone"), Stopped("enough"), ServiceLost("it died")])
def test_the_end_of_a_run_is_no_failure_of_a_judge(stop: Exception) -> None:
    with pytest.raises(type(stop)):
        score({METRIC: [FakeJudge(stop)]}, on_failure="zero")


def test_a_metric_without_such_a_way_keeps_its_failure(record: Record) -> None:
    judges = {"empathy": [FakeJudge(failing(Unavailable("down")))]}
    options = JudgingOptions(on_failure="zero")
    (scored,) = judge_metrics(record, pick(["empathy"]), judges, options).scores
    assert (scored.status, scored.value) == ("error", None)


def test_no_judge_is_asked_about_an_empty_or_failed_response() -> None:
    judge = FakeJudge(RIGHT)
    assert score({METRIC: [judge]}, "", on_failure="string_match").value == 0.0
    failed = build_record(build_sample(answers=("a",)), Response(text="half", error="cut"))
    judges = {METRIC: [judge]}
    (scored,) = judge_metrics(failed, METRICS, judges, JudgingOptions(on_failure="zero")).scores
    assert (scored.status, scored.error) == ("error", "generation failed: cut")
    assert not judge.seen


def readers_of(
    names: Sequence[str], n_jurors: int, siblings: int = 1, memory: str = "x" * 9000
) -> dict[str, set[int]]:
    """By metric, what the prompts to a jury of one judge say of how many begin alike."""
    record = build_record(build_sample(memory={"note": memory}, required_keys=("note",)), "Rest.")
    jury = [FakeJudge(RIGHT) for _ in range(n_jurors)]
    options = JudgingOptions(siblings={"c": siblings})
    prompts = prompts_of_record(record, pick(names), {name: jury for name in names}, options)
    return {
        name: {prompt.readers for _, prompts in prompt for prompt in prompts}
        for name, prompt in prompts.items()
    }


def test_a_prompt_knows_how_many_calls_begin_alike() -> None:
    seen = ("groundedness", "memory_utilization")
    both = {"groundedness": {2}, "memory_utilization": {2}}
    assert readers_of(seen[:1], 1) == {"groundedness": {1}}
    assert readers_of(seen, 1) == both
    many = {name: {24} for name in seen} | {"empathy": {1}}
    assert readers_of((*seen, "empathy"), 3, 4) == many
    # Metrics of one judgment ask the same call, which is made once
    companion = ("overall_quality", "trust_boundaries")
    assert readers_of(companion, 1) == {name: {1} for name in companion}
    assert readers_of((*companion, *seen), 1, 2) == {name: {6} for name in (*companion, *seen)}
    # What no provider would keep need not be counted
    assert readers_of(seen, 3, memory="short") == {name: {1} for name in seen}


def test_a_prompt_is_the_same_whatever_is_scored_already() -> None:
    names = ("groundedness", "memory_utilization")
    sample = Sample(id="s", query="q", memory={"note": "x" * 9000}, required_keys=("note",))
    done = Score(metric="groundedness", status="error")
    judge = FakeJudge(ValueError("odd"))
    for scores in ((), (done,)):
        record = build_record(sample, "Rest.", *scores)
        judge_metrics(record, pick(names), {name: [judge] for name in names})
    assert len(judge.seen) == 3
    assert {prompt.readers for prompt in judge.seen} == {2}
