"""The scripts of memory_writes, and what a store holds of them, by content."""

import pytest

from memray_eval.benchmarks.memory_writes import (
    TASKS,
    first_session,
    is_right,
    questions,
    scripts,
    tells,
)

NAME = "jetlag_melatonin"


def test_a_case_is_told_once_and_asked_by_task() -> None:
    published = list(questions(NAME, "cases.json"))
    assert [question.fields["task"] for question in published] == list(TASKS)
    assert len({question.fields["context"] for question in published}) == 1
    assert [question.fields["metadata"].get("asked_by") for question in published].count("B") == 1
    with pytest.raises(ValueError, match="no case 'nobody'"):
        list(questions("nobody", "cases.json"))


@pytest.mark.parametrize("name", [*scripts()])
def test_facts_of_a_script_are_told_apart(name: str) -> None:
    script = scripts()[name]
    facts = [script.repeated[1], script.forgotten[1], script.unclaimed[1]]
    for fact in facts:
        assert [tells(other, fact) for other in facts].count(True) == 1
    texts = [turn.text for turn in first_session(script).turns if turn.speaker == "user"]
    assert [tells(text, facts[0]) for text in texts].count(True) == 5
    assert any(tells(text, facts[1]) for text in texts)
    assert any(tells(text, facts[2]) for text in texts)


@pytest.mark.parametrize(
    ("task", "holds", "texts", "is_fine"),
    [
        ("claimed", ["takes fluvoxamine 100 mg"], [], True),
        ("claimed", ["takes sertraline"], [], False),
        ("superseded", [], ["sertraline in the evening"], False),
        ("superseded", [], ["fluvoxamine, no more sertraline"], True),
        ("secret", ["coffee with Ms Tanaka"], [], False),
        ("secret", ["has something private on Tuesday"], [], True),
        ("other_user", [], ["anything of A's"], False),
        ("other_user", [], [], True),
        ("duplicates", [], [], False),
    ],
)
def test_what_a_store_did_right(
    task: str, holds: list[str], texts: list[str], is_fine: bool
) -> None:
    assert is_right(task, scripts()[NAME], holds, texts) is is_fine
