from __future__ import annotations

from typing import Any

import pytest

from memray_eval.benchmarks.generator.sample_spec import plain_prompt
from memray_eval.benchmarks.needles.suite import TASKS, adapt, prompt
from memray_eval.types import Candidate, Prompt, Sample

CANDIDATE = Candidate(name="a", model="m")


def asked(task: str, query: str = "One?", **metadata: Any) -> Prompt:
    return prompt(
        Sample(id="1", task=task, query=query, context="<{input}>", metadata=metadata), CANDIDATE
    )


def test_needles_are_in_our_own_format() -> None:
    own = {
        "id": "passkey-en-4k-d50-0",
        "task": "passkey",
        "query": "What is the pass key?",
        "answers": ["12345"],
    }
    assert adapt(own, "x") is own
    with pytest.raises(ValueError, match="not a record of needles: it lacks id, query;"):
        adapt({"input": "Who?", "context": "c"}, "passkey.jsonl")
    with pytest.raises(ValueError, match="no task 'pass_key'; there are: passkey, number_string"):
        adapt(own | {"task": "pass_key"}, "x")


@pytest.mark.parametrize("task", [*TASKS, ""])
def test_a_prompt_is_the_text_whose_tokens_were_counted(task: str) -> None:
    made = asked(task)
    assert [message.content for message in made.messages] == [plain_prompt("<{input}>", "One?")]
    assert made.is_chat
    assert made.is_cut


def test_answers_get_the_room_they_need() -> None:
    tokens = {task: asked(task).max_tokens or 0 for task in TASKS}
    assert {tokens[task] for task in TASKS if task.startswith("niah_")} == {128}
    assert tokens["cwe"] == 120
    assert all(
        tokens[task] >= least
        for task, least in {"vt": 30, "fwe": 50, "qa": 32, "passkey": 6, "kv_retrieval": 50}.items()
    )
    assert asked("math_calc", label=list(range(50))).max_tokens == 64 + 4 * 50
    assert asked("math_calc", label=list(range(29_999))).max_tokens == 30_000
