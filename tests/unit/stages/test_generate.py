from __future__ import annotations

import asyncio
from typing import Any

import pytest

from memray_eval.stages.generate import engine_response, generate, new_record
from memray_eval.types import Candidate, Message, Prompt, Response, Sample

ASKED = {"prompt_form": "chat", "truncated_tokens": 7}


def row(text: str = "text", **fields: Any) -> dict[str, Any]:
    metrics = {
        "arrival_time": 1000.0,
        "first_token_latency": 0.5,
        "first_token_ts": 10.0,
        "last_token_ts": 12.0,
    }
    answer = {
        "generated_tokens": [1, 2, 3],
        "generated_text": text,
        "num_input_tokens": 30,
        "num_cached_tokens": 16,
    }
    return (
        answer
        | ASKED
        | {"finish_reason": "stop", "metrics": metrics, "__inference_error__": ""}
        | fields
    )


def test_what_the_engine_tells_is_in_the_response() -> None:
    response = engine_response(row())
    assert (response.finish_reason, response.ttft_s, response.duration_s) == ("stop", 0.5, 2.5)
    assert response.ended_s == 1002.5
    assert (response.prompt_tokens, response.cached_tokens, response.output_tokens) == (30, 16, 3)
    assert (response.prompt_form, response.truncated_tokens) == ("chat", 7)


@pytest.mark.parametrize(
    ("output", "text", "thinking", "blocks"),
    [
        ("Paris.", "Paris.", "", 0),
        ("<think>Is it Lyon? No.</think>\n\nParis.", "Paris.", "Is it Lyon? No.", 1),
        (
            "Is it Lyon? No.\n</think>\nParis.",
            "Paris.",
            "Is it Lyon? No.",
            1,
        ),  # the chat template opened the block
        ("<think>a</think>One.<thinking>b</thinking> Two.", "One. Two.", "a\nb", 2),
        ("<think>never ends", "", "never ends", 1),
        ("5 < 7 and <b>bold</b>", "5 < 7 and <b>bold</b>", "", 0),
    ],
)
def test_thinking_is_taken_out_of_the_text(
    output: str, text: str, thinking: str, blocks: int
) -> None:
    response = engine_response(row(output))
    assert (response.text, response.thinking, response.thinking_blocks) == (text, thinking, blocks)


def test_a_prompt_that_the_engine_refuses_is_a_response_with_an_error() -> None:
    response = engine_response({"__inference_error__": "ValueError: too long"} | ASKED)
    assert (response.text, response.error) == (
        "",
        "the engine refused the prompt: ValueError: too long",
    )


def test_a_new_record_has_left_its_context_behind(sample: Sample, candidate: Candidate) -> None:
    record = new_record(sample.model_copy(update={"context": "long" * 1000}), candidate)
    assert record.sample.context is None
    assert record.unit_id == new_record(sample, candidate).unit_id


def test_generate_asks_with_the_candidate(candidate: Candidate) -> None:
    class Echo:
        async def generate(self, prompt: Prompt, candidate: Candidate) -> Response:
            return Response(text=f"{candidate.name}: {prompt.messages[0].content}")

    prompt = Prompt(messages=(Message(role="user", content="hi"),))
    response = asyncio.run(generate(prompt, candidate, 12, Echo()))
    assert (response.text, response.truncated_tokens) == ("small: hi", 12)


def test_a_task_has_its_length_and_stops_unless_the_candidate_sets_its_own(
    candidate: Candidate,
) -> None:
    prompt = Prompt(messages=(), max_tokens=32, stop=("\n",))
    own = candidate.model_copy(
        update={
            "sampling": candidate.sampling.model_copy(update={"max_tokens": 9, "stop": ("END",)})
        }
    )
    assert (prompt.sampling(candidate).max_tokens, prompt.sampling(candidate).stop) == (32, ("\n",))
    assert (prompt.sampling(own).max_tokens, prompt.sampling(own).stop) == (9, ("END", "\n"))
    assert Prompt(messages=()).sampling(candidate).max_tokens == 256
