from typing import Any

import pytest

from memray_eval.execution.stages.generate import engine_response, new_record
from memray_eval.execution.stages.prompt import TIMES
from memray_eval.types import Candidate, Prompt, Response, Sample, Sampling

ASKED = {"prompt_form": "chat", "truncated_tokens": 7}


def row(text: str = "text", **fields: Any) -> dict[str, Any]:
    metrics = dict(zip(TIMES, (1000.0, 0.5, 10.0, 12.0), strict=True))
    answer = {
        "generated_tokens": [1, 2, 3],
        "generated_text": text,
        "num_input_tokens": 30,
        "num_cached_tokens": 16,
        "finish_reason": "stop",
        "metrics": metrics,
        "__inference_error__": "",
    }
    return answer | ASKED | fields


def test_what_the_engine_tells_is_in_the_response() -> None:
    response = engine_response(row())
    assert (response.finish_reason, response.ttft_s, response.duration_s) == ("stop", 0.5, 2.5)
    assert response.ended_s == 1002.5
    assert (response.prompt_tokens, response.cached_tokens, response.output_tokens) == (30, 16, 3)
    assert (response.prompt_form, response.truncated_tokens) == ("chat", 7)


def test_a_unit_is_one_of_its_context_and_of_its_retry_if_it_has_one(
    sample: Sample, candidate: Candidate
) -> None:
    record = new_record(sample.model_copy(update={"context": "long" * 1000}), candidate)
    assert record.sample.context is None
    assert record.unit_id == new_record(sample, candidate).unit_id
    raised = candidate.model_copy(update={"retry_max_tokens": 512})
    assert new_record(sample, raised).unit_id != record.unit_id


def test_a_task_has_its_length_and_stops_unless_the_candidate_sets_its_own(
    candidate: Candidate,
) -> None:
    prompt = Prompt(messages=(), max_tokens=32, stop=("\n",))
    sampling = candidate.sampling.model_copy(update={"max_tokens": 9, "stop": ("END",)})
    own = candidate.model_copy(update={"sampling": sampling})
    sent, sent_by_own = prompt.sampling(candidate), prompt.sampling(own)
    assert (sent["max_tokens"], sent["stop"]) == (32, ["\n"])
    assert (sent_by_own["max_tokens"], sent_by_own["stop"]) == (9, ["END", "\n"])
    assert Prompt(messages=()).sampling(candidate)["max_tokens"] == 256


@pytest.mark.parametrize("name", list(Sampling.model_fields))
def test_what_is_null_is_not_sent(candidate: Candidate, name: str) -> None:
    prompt = Prompt(messages=(), max_tokens=32, stop=("\n",))
    sampling = candidate.sampling.model_copy(update={name: None})
    sent = prompt.sampling(candidate.model_copy(update={"sampling": sampling}))
    assert sent.keys() == Sampling.model_fields.keys() - {name}
    assert prompt.answer_tokens(candidate) == 32


@pytest.mark.parametrize(
    ("output", "fields", "cause"),
    [
        ("", {"finish_reason": "length"}, "limit"),
        ("<think>never ends", {"finish_reason": "length"}, "limit"),
        ("<think>never ends", {}, "thinking_only"),
        ("<think></think>\n", {}, "thinking_only"),
        (" \n", {}, "empty"),
        ("cut of", {"finish_reason": "length"}, None),
        ("", {"__inference_error__": "too long"}, None),
    ],
)
def test_why_an_engine_gave_no_answer(output: str, fields: Any, cause: str | None) -> None:
    assert engine_response(row(output, **fields)).no_answer == cause


@pytest.mark.parametrize(
    ("finish", "cause"),
    [
        ("MAX_TOKENS", "limit"),
        ("model_length", "limit"),
        ("SAFETY", "content_filter"),
        ("tool_use", "tool_call"),
        ("refusal", "refusal"),
        ("end_turn", "empty"),
        (None, "empty"),
    ],
)
def test_a_finish_reason_of_any_provider_names_the_cause(finish: str | None, cause: str) -> None:
    assert Response(finish_reason=finish).with_cause().no_answer == cause
    half = Response(text="said", finish_reason=finish).with_cause()
    is_cut = cause == "content_filter"  # what a filter cut off is no answer, and is kept
    assert (half.no_answer, half.text, half.raw) == (
        ("content_filter", "", "said") if is_cut else (None, "said", "")
    )
