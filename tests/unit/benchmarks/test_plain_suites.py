"""The suites for data of one's own: chat and qa."""

from __future__ import annotations

from pathlib import Path

import pytest

from memray_eval.benchmarks import check_prompts, get_suite
from memray_eval.errors import ConfigError
from memray_eval.types import Candidate, Sample, Turn

PLAIN = Candidate(name="a", model="m")
CHAT = Sample(
    id="1",
    query="And now?",
    history=(Turn(role="user", content="Hi"), Turn(role="assistant", content="Hello")),
)


def test_a_chat_is_its_history_and_its_query() -> None:
    asked = get_suite("chat").prompt(CHAT, PLAIN)
    assert [(one.role, one.content) for one in asked.messages] == [
        ("user", "Hi"),
        ("assistant", "Hello"),
        ("user", "And now?"),
    ]


def test_a_chat_has_the_system_prompt_of_a_file_and_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "system.txt"
    path.write_text("You answer for a shop.")
    candidate = PLAIN.model_copy(update={"prompt": str(path)})
    check_prompts(get_suite("chat"), (candidate,))
    sample = CHAT.model_copy(update={"memory": {"size": "42"}})
    system = get_suite("chat").prompt(sample, candidate).messages[0]
    assert system.role == "system"
    assert system.content.startswith("You answer for a shop.\n\nWhat you know of the user:\n")
    assert "42" in system.content
    with pytest.raises(ConfigError, match="no prompt 'kind'"):
        check_prompts(get_suite("chat"), (PLAIN.model_copy(update={"prompt": "kind"}),))


def test_a_question_is_asked_from_its_text_if_it_has_one() -> None:
    suite = get_suite("qa")
    bare = suite.prompt(Sample(id="1", query="Who?", answers=("Ana",)), PLAIN)
    assert bare.messages[0].content.endswith("explanation.\n\nWho?")
    assert not bare.is_cut
    sample = Sample(id="1", query="Who?", answers=("Ana",), context="Ana did.")
    asked = suite.prompt(sample, PLAIN.model_copy(update={"prompt": "explain"}))
    assert asked.messages[0].content.endswith("text alone.\n\nAna did.\n\nQuestion: Who?")
    assert asked.is_cut
