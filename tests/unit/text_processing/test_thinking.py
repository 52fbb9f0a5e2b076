"""Thinking is split off in every dialect, and an answer that quotes a mark stays whole."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memray_eval.text_processing.thinking import ParsedOutput, split_thinking

PAIRS = [
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ('<think lang="en">', "</think>"),
    ("< THINK >", "</ Think >"),
    ("<thought>", "</thought>"),
    ("<thoughts>", "</thoughts>"),
    ("<reasoning>", "</reasoning>"),
    ("<seed:think>", "</seed:think>"),
    ("<mm:think>", "</mm:think>"),
    ("<longcat_think>", "</longcat_think>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|channel>thought\n", "<channel|>"),
    ("<unused94>thought\n", "<unused95>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|think:start|>", "<|think:end|>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
    (
        "<|start|>assistant<|channel|>commentary to=functions.find <|constrain|>json<|message|>",
        "<|call|><|start|>assistant<|channel|>final<|message|>",
    ),
    ("analysisThe ", "assistantfinal"),
    ("commentary\n", "assistant\nfinal\n"),
]
# Texts of any script, without what marks and quotes are made of
words = st.text(
    st.characters(exclude_characters='<>[]|◁▷`"', exclude_categories=["Cs"]), max_size=60
)


def of(output: str) -> tuple[str, str, int]:
    result = split_thinking(output)
    return result.text, result.thinking, result.thinking_blocks


@pytest.mark.parametrize(("opening", "closing"), PAIRS)
@pytest.mark.parametrize("space", ["", "\n", "\r\n\r\n"])
def test_thinking_of_every_dialect_is_split_off(opening: str, closing: str, space: str) -> None:
    output = f"{opening}Iron looks fine.{closing}{space}zinc"
    result = split_thinking(output)
    assert (result.text, result.thinking_blocks, result.raw) == ("zinc", 1, output)
    assert result.thinking.endswith("Iron looks fine.")


@pytest.mark.parametrize(("opening", "closing"), PAIRS)
def test_a_block_that_never_ends_leaves_no_answer(opening: str, closing: str) -> None:
    text = "Zinc, for the liver"
    output = opening + text
    result = split_thinking(output)
    if opening.startswith("commentary"):  # which is a plain word without its final channel
        assert result == ParsedOutput(output)
        return
    assert (result.text, result.thinking_blocks, result.raw) == ("", 1, output)
    assert result.thinking.endswith(text)


@given(st.sampled_from(PAIRS), words, words)
def test_any_known_mark_round_any_text_leaves_the_text(
    pair: tuple[str, str], thought: str, answer: str
) -> None:
    result = split_thinking(f"{pair[0]}{thought}{pair[1]}{answer}")
    assert result.text == answer.strip("\ufeff \t\r\n").strip()
    assert thought.strip() in result.thinking


@given(words, st.sampled_from([mark for pair in PAIRS[:18] for mark in pair]), words)
def test_no_word_is_lost(before: str, mark: str, after: str) -> None:
    output = f"{before} {mark} {after}"
    result = split_thinking(output)
    kept = f"{result.thinking} {result.text}".replace("\ufeff", "").split()
    words_in = output.replace("\ufeff", "").split()
    assert [word for word in words_in if word not in mark.split()] == [
        word for word in kept if word not in mark.split()
    ]
    if not result.thinking_blocks:
        assert (result.text, result.raw) == (output, "")


@given(words)
def test_an_answer_without_marks_is_what_it_was(text: str) -> None:
    result = split_thinking(text)
    assert result.text == text or result.raw == text  # analysisThe..., without its tokens
    assert split_thinking(result.text).text == result.text


@pytest.mark.parametrize(
    "answer",
    (
        "It writes `<think>` before its first thought.¦"
        'Thoughts stand between "<think>" and "</think>" in it.¦'
        "Thoughts stand between <think> and </think> in it.¦A thought ends with </think>, always.¦"
        "It ends with `</think>`.¦- </think> closes it¦"
        "Write '<think>' and '</think>' round it, or “</thought>”.¦Use <think>text</think> tags.¦"
        'parts = output.split("</think>")\nreturn parts[-1] if "<think>" in output else output¦'
        "if out.endswith('</think>'): pass¦print(\"a</think>\")¦"
        "```python\nx = '''\n<think>\na\n</think>\n'''\n```¦- <think> opens\n- </think> closes¦"
        "The marks:\n<think> opens a thought\n</think> closes it¦analysis of the sleep diary¦"
        "analysis¦analysis: the assistant was final¦final answer: 6.5¦"
        "commentary on the final, by the assistant¦The assistant says [THINK] before it thinks.¦"
        "[1, 2, 3]¦5 < 7 and <b>bold</b>¦zinc <thi¦<thi¦<think¦[/THI¦◁thi¦<|channel|¦"
    ).split("¦"),
)
def test_an_answer_that_quotes_a_mark_or_half_of_one_stays_whole(answer: str) -> None:
    assert split_thinking(answer) == ParsedOutput(answer)
    after = of(f"<think>So.</think>\n{answer}")
    assert after == (answer.strip(), "So.", 1)


@pytest.mark.parametrize(
    ("output", "text", "thinking", "blocks"),
    [
        ("Both were weighed.</think>zinc", "zinc", "Both were weighed.", 1),
        ("Both were weighed.\n</think>\n\nzinc", "zinc", "Both were weighed.", 1),
        ('It is "zinc"</think>"zinc"', '"zinc"', 'It is "zinc"', 1),
        ("Weighed.<|END_THINKING|>zinc", "zinc", "Weighed.", 1),
        ("</think>zinc", "zinc", "", 1),
        ("zinc</think>", "", "zinc", 1),
        ("<think>\n\n</think>\n\nzinc", "zinc", "", 1),
        ("\ufeff \r\n<think>a</think>\ufeffzinc", "zinc", "a", 1),
        ("<think>a<think>b</think>c</think>zinc", "zinc", "a<think>b</think>c", 1),
        ("<think> a <think> b </think> c </think> z", "z", "a <think> b </think> c", 1),
        ("<think>I write <think> now.</think>zinc", "zinc", "I write <think> now.", 1),
        ("<think>I quote `</think>` now.</think>zinc", "zinc", "I quote `</think>` now.", 1),
        ('<think>It is "zinc"</think>"zinc"', '"zinc"', 'It is "zinc"', 1),
        ("<think>```\nx\n</think>zinc ```y```", "zinc ```y```", "```\nx", 1),
        ("<think>a</think>\n<thinking>b</thinking> zinc", "zinc", "a\nb", 2),
        ("<think>a</think>One.<think>b</think> Two.", "One. Two.", "a\nb", 2),
        ("<think>a [THINK]b[/THINK]</think>zinc", "zinc", "a [THINK]b[/THINK]", 1),
        ("Sure.\n<think>\na\n</think>\nzinc", "Sure.\n\nzinc", "a", 1),
        ("Sure.\r\n<think>a</think>\r\nzinc", "Sure.\r\n\r\nzinc", "a", 1),
        ("zinc.\n<think>\nmore", "zinc.", "more", 1),
        ("analysisA.assistantcommentaryB.assistantfinalzinc", "zinc", "A.\nB.", 2),
        ("assistantfinal6.5", "6.5", "", 0),
        ("A.<|end|><|start|>assistant<|channel|>final<|message|>zinc", "zinc", "A.", 1),
        (
            "<|channel|>final<|message|>It writes `<|channel|>analysis<|message|>`.<|return|>",
            "It writes `<|channel|>analysis<|message|>`.",
            "",
            0,
        ),
        ("<|START_RESPONSE|>zinc<|END_RESPONSE|>", "zinc", "", 0),
        (
            "<|START_THINKING|>a<|END_THINKING|><|START_RESPONSE|>zinc<|END_RESPONSE|>",
            "zinc",
            "a",
            1,
        ),
        ("<|channel>thought\na<channel|>zinc<turn|>", "zinc", "a", 1),
        ("<think>a</think>\n<answer>\nB\n</answer>", "B", "a", 1),
    ],
)
def test_odd_forms(output: str, text: str, thinking: str, blocks: int) -> None:
    assert of(output) == (text, thinking, blocks)
    assert split_thinking(output).raw == output


@pytest.mark.parametrize(
    ("output", "mark"),
    [
        ("<xyz_think>a</xyz_think>zinc", "<xyz_think>"),
        ("[REASONING] zinc", "[REASONING]"),
        ("\n<|channel|>thoughts", "<|channel|>"),
        ("[think] zinc", "[think]"),
        ("<scratchpad>a</scratchpad>", "<scratchpad>"),
        ("<b>zinc</b>", None),
        ("[Analysis] of the diary", None),
        ("[1] zinc", None),
        ("It writes <xyz_think>.", None),
    ],
)
def test_an_unknown_mark_is_left_and_named(output: str, mark: str | None) -> None:
    assert split_thinking(output) == ParsedOutput(output, unknown_mark=mark)


def test_many_marks_take_no_long_time() -> None:
    for output in ("<think>" * 20_000, "<think>a</think>" * 3_000, "a `<think>` " * 3_000):
        assert json.dumps(split_thinking(output))
