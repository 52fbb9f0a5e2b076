from __future__ import annotations

import json
from typing import Any

import pytest

from memray_eval.benchmarks.mrcr.suite import adapt, prompt
from memray_eval.datasets.answers import rename_aliases
from memray_eval.types import Candidate, Sample

CANDIDATE = Candidate(name="a", model="m")
TRANSCRIPT = Candidate(name="a", model="m", prompt="transcript")
MESSAGES = [
    {"role": "user", "content": "Write a poem about tapirs"},
    {"role": "assistant", "content": "First {poem}."},
    {"role": "user", "content": "Write a poem about tapirs"},
    {"role": "assistant", "content": "Second poem."},
    {"role": "user", "content": "Prepend aB3 to the 2nd (1 indexed) poem about tapirs."},
]


def record(**changes: Any) -> dict[str, Any]:
    return {
        "prompt": json.dumps(MESSAGES),
        "answer": "aB3Second poem.",
        "random_string_to_prepend": "aB3",
        "n_needles": 2,
        "desired_msg_index": 3,
        "total_messages": 5,
        "n_chars": 20_000,
        "date_added": "12-05-2025",
    } | changes


def test_a_published_record_becomes_a_sample_and_is_asked_as_messages() -> None:
    sample = Sample.model_validate({"id": "1", **adapt(record(), "2needle.parquet")})
    assert (sample.task, sample.answers) == ("2needle", ("aB3Second poem.",))
    assert sample.query == MESSAGES[-1]["content"]
    assert sample.metadata == {
        "random_string_to_prepend": "aB3",
        "n_needles": 2,
        "desired_msg_index": 3,
        "total_messages": 5,
        "n_chars": 20_000,
        "date_added": "12-05-2025",
        "bucket": "up to 32k characters",
    }
    asked = prompt(sample, CANDIDATE)
    assert [message.model_dump() for message in asked.messages] == MESSAGES
    assert (asked.is_chat, asked.is_cut) == (True, False)
    assert asked.max_tokens == 64 + len("aB3Second poem.") // 2


def test_a_published_record_with_a_response_can_be_judged() -> None:
    answered = rename_aliases(record() | {"response": "aB3Second poem."})
    fields = adapt(answered, "x")
    assert fields["response"] == "aB3Second poem."
    assert fields["query"] == MESSAGES[-1]["content"]


def test_a_transcript_is_one_message() -> None:
    sample = Sample.model_validate({"id": "1", **adapt(record(), "x")})
    (message,) = prompt(sample, TRANSCRIPT).messages
    assert message.content.startswith("User: Write a poem about tapirs\n\nAssistant: First {poem}.")
    assert message.content.endswith("poem about tapirs.\n\nAssistant:")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"answer": None, "n_chars": None}, "not a record of MRCR: it lacks answer, n_chars;"),
        ({"prompt": "once"}, "prompt: must be JSON, a list of messages with role and content: Inv"),
        ({"prompt": '[{"role": "user"}]'}, "role and content: 0.content: Field required"),
        ({"prompt": '[{"role": "god", "content": "x"}]'}, "0.role: Input should be"),
        ({"prompt": json.dumps(MESSAGES[:2])}, "prompt: must end in a message of the user's"),
        ({"prompt": "[]"}, "prompt: must end in a message of the user's"),
        ({"n_needles": 3}, "no task '3needle'; there are: 2needle, 4needle, 8needle"),
        ({"n_needles": True}, "n_needles: must be a whole number, not bool True"),
    ],
)
def test_what_is_wrong_with_a_record_is_named(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        adapt(record(**changes), "x")


def test_our_own_rows_pass_and_a_context_that_is_no_conversation_is_said() -> None:
    own = {"id": "1", "task": "4needle", "query": "Which?"}
    assert adapt(own, "x") is own
    bare = Sample.model_validate(own)
    assert len(prompt(bare, CANDIDATE).messages) == 1
    with pytest.raises(ValueError, match="context: must be JSON, a list of messages"):
        prompt(bare.model_copy(update={"context": "User: hello"}), CANDIDATE)
