"""What a candidate is asked, where a suite does more than fill in a wording."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memray_eval.benchmarks import check_prompts, get_suite
from memray_eval.benchmarks.needles.plan import plain_prompt
from memray_eval.benchmarks.templates import parse_braces, parse_dollars
from memray_eval.errors import ConfigError
from memray_eval.types import Candidate, Prompt, Sample
from tests.conftest import shipped_samples
from tests.unit.benchmarks.records import GRAPH, MESSAGES, PLAIN, adapted, sample_of, sent

TALK = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
SPOKEN = [("user", "Hi"), ("assistant", "Hello"), ("user", "And now?")]
AS_TEXT = {"trec", "triviaqa", "samsum", "lsht", "lcc", "repobench-p"}


def prompted(suite: str, task: str = "", how: str = "default", **fields: Any) -> Prompt:
    sample = {"id": "1", "suite": suite, "task": task, "query": "And now?", **fields}
    candidate = Candidate(name="a", model="m", prompt=how)
    return get_suite(suite).prompt(Sample.model_validate(sample), candidate)


def turns_of(prompt: Prompt) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in prompt.messages]


def test_a_chat_is_the_prompt_of_a_file_with_the_memory_then_its_history(tmp_path: Path) -> None:
    assert turns_of(prompted("chat", history=TALK)) == SPOKEN
    path = tmp_path / "system.txt"
    path.write_text("You answer for a shop.")
    (_, system), *_ = turns_of(prompted("chat", how=str(path), memory={"size": "42"}))
    assert system == "You answer for a shop.\n\nWhat you know of the user:\nsize: 42"


def test_a_question_is_asked_from_its_text_if_it_has_one() -> None:
    bare = prompted("qa")
    assert bare.messages[0].content.endswith("explanation.\n\nAnd now?")
    assert not bare.is_cut
    on_text = prompted("qa", how="explain", context="Ana did.")
    assert on_text.messages[0].content.endswith("alone.\n\nAna did.\n\nQuestion: And now?")
    assert on_text.is_cut


def test_memory_is_a_user_profile_with_traits_and_emotion_if_marked(sample: Sample) -> None:
    fields = sample.model_dump(exclude={"id", "suite", "task", "query"}) | {"history": TALK}
    (_, system), *turns = turns_of(prompted("memory", **fields))
    assert {"- name: Jason", "- sleep hours avg: 5.5"} <= set(system.splitlines())
    assert turns == SPOKEN
    assert "Personality" not in system
    assert "emotion" not in system
    traits = {"neuroticism": 0.9, "openness": 0.5}
    emotion = {"sadness": 0.7, "joy": 0.05, "fear": 0.25}
    felt = prompted("memory", **fields | {"traits": traits, "emotion": emotion})
    marked = felt.messages[0].content
    assert "neuroticism 0.90: worries easily" in marked
    assert "openness" not in marked
    assert "Detected emotion: sadness 70%, fear 25%." in marked


def test_the_lists_of_keys_are_in_no_prompt() -> None:
    for sample in shipped_samples():
        message = "\n".join(text for _, text in turns_of(get_suite("memory").prompt(sample, PLAIN)))
        assert "required" not in message.lower().replace("is required", "")
        absent = [key for key in sample.forbidden_keys if key not in sample.memory and len(key) > 8]
        assert not any(key.replace("_", " ") in message for key in absent)


def test_unknown_suites_and_prompts_are_named() -> None:
    with pytest.raises(ConfigError, match=r"no suite 'poetry'; there are: .*memory"):
        get_suite("poetry")
    terse = Candidate(name="a", model="m", prompt="terse")
    with pytest.raises(ConfigError, match="suite 'memory' has no prompt 'terse'; it has: default"):
        check_prompts(get_suite("memory"), (terse,))


@pytest.mark.parametrize(("suite", "max_tokens"), [("text", 512), ("instruction", 512)])
def test_a_bare_prompt_is_the_query_alone(suite: str, max_tokens: int) -> None:
    fields = {"memory": {"name": "Ana"}, "history": TALK, "prompt_type": "navigation"}
    prompt = prompted(suite, **fields)
    assert turns_of(prompt) == SPOKEN[-1:]
    assert (prompt.max_tokens, prompt.is_chat) == (max_tokens, True)


def test_a_graph_is_asked_as_it_was_published() -> None:
    prompt = get_suite("graphwalks").prompt(sample_of("graphwalks"), PLAIN)
    assert (turns_of(prompt), prompt.max_tokens) == ([("user", GRAPH)], 256 + 16)
    # as the card calls the answer, without an operation, and a row of our own
    assert adapted("graphwalks", answer_nodes=..., answer=["b2"])["answers"] == ["b2"]
    assert sample_of("graphwalks", prompt="Which nodes?").context is None
    own = prompted("graphwalks", "bfs", context="a -> b")
    assert own.messages[0].content == "a -> b\n\nAnd now?"


def test_mrcr_is_asked_as_messages_or_as_a_transcript() -> None:
    sample = sample_of("mrcr")
    prompt = get_suite("mrcr").prompt(sample, PLAIN)
    assert [message.model_dump() for message in prompt.messages] == MESSAGES
    assert (prompt.is_chat, prompt.max_tokens) == (True, 64 + len("aB3Second poem.") // 2)
    text = sent(sample, Candidate(name="a", model="m", prompt="transcript"))
    assert text.startswith("User: Write a poem about tapirs\n\nAssistant: First {poem}.")
    assert text.endswith("poem about tapirs.\n\nAssistant:")
    assert turns_of(prompted("mrcr", "4needle")) == SPOKEN[-1:]
    with pytest.raises(ValueError, match="context: must be JSON, a list of messages"):
        prompted("mrcr", context="User: hello")


@pytest.mark.parametrize("task", [*get_suite("needles").tasks, ""])
def test_a_needle_is_asked_in_the_text_whose_tokens_were_counted(task: str) -> None:
    text = plain_prompt("<{input}>", "And now?")
    assert turns_of(prompted("needles", task, context="<{input}>")) == [("user", text)]


def test_answers_get_the_room_they_need() -> None:
    tasks = get_suite("needles").tasks
    tokens = {task: prompted("needles", task).max_tokens or 0 for task in tasks}
    assert {tokens[task] for task in tokens if task.startswith("niah_")} == {128}
    least = {"vt": 30, "cwe": 120, "fwe": 50, "qa": 32, "passkey": 6, "kv_retrieval": 50}
    assert all(tokens[task] >= least[task] for task in least)
    for n, expected in ((50, 64 + 4 * 50), (29_999, 30_000)):
        label = {"label": list(range(n))}
        assert prompted("needles", "math_calc", metadata=label).max_tokens == expected
    least = {"longbook_sum_eng": 1200, "math_calc": 30_000, "kv_retrieval": 50, "number_string": 12}
    least |= dict.fromkeys(("longbook_qa_eng", "longdialogue_qa_eng", "longbook_qa_chn"), 40)
    for task, published in least.items():
        assert (prompted("infinitebench", task).max_tokens or 0) >= published
    assert prompted("helmet", "nq").max_tokens == 20


def test_a_choice_is_asked_for_at_once_or_after_thoughts() -> None:
    sample = sample_of("longbench2")
    thinking = Candidate(name="a", model="m", prompt="cot")
    first, second = sent(sample), sent(sample, thinking)
    before, after = first.split(sample.context or "")
    assert second.startswith(f"{before}{sample.context}")
    assert "Who won?\n\n(A) Ann\n(B) Ben $Q$\n(C) Cy {context}\n(D) Di" in after
    assert "The correct answer is (X)" in after
    assert ["step by step" in text for text in (first, second)] == [False, True]
    assert get_suite("longbench2").prompt(sample, PLAIN).max_tokens == 128
    assert get_suite("longbench2").prompt(sample, thinking).max_tokens == 1024


def test_few_shot_and_code_tasks_of_longbench_are_asked_as_plain_text() -> None:
    tasks = get_suite("longbench").tasks
    prompts = {task: prompted("longbench", task, context="c") for task in tasks}
    assert {task for task, prompt in prompts.items() if not prompt.is_chat} == AS_TEXT
    stops = {task: prompt.stop for task, prompt in prompts.items() if prompt.stop}
    assert stops == {"samsum": ("\n",)}
    # What these are to continue is the end of their input
    for task in AS_TEXT - {"lcc", "repobench-p"}:
        assert prompts[task].messages[0].content.endswith("And now?")


@given(context=st.text(), query=st.text(min_size=1))
def test_nothing_in_a_context_or_question_is_a_place(context: str, query: str) -> None:
    context = f"{{input}} {{0}} }}{{ {context} $Q$"
    template = parse_braces("{{literal}} {context} | {input}")
    assert template.fill({"context": context, "input": query}) == f"{{literal}} {context} | {query}"
    dollars = parse_dollars("$DOC$ costs $5, $Q$")
    assert dollars.fill({"DOC": context, "Q": query}) == f"{context} costs $5, {query}"
