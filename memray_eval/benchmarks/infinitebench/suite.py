"""InfiniteBench: 12 tasks beyond 100k tokens: books, dialogues, code, sums, things to find."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from memray_eval.benchmarks import long_context_suite
from memray_eval.benchmarks.infinitebench.rules import CHOICE_TASKS, LETTERS, RULES, rule_of
from memray_eval.benchmarks.templates import PromptByTask, Wording, own_values, own_wording
from memray_eval.benchmarks.templates.files import Published, query_of, task_of
from memray_eval.errors import cut
from memray_eval.types import Sample

_STATEMENTS = {  # what records ask whose input is empty
    "longbook_sum_eng": "Summarize the book.",
    "longdialogue_qa_eng": 'Which character is "$$MASK$$"?',
    "math_calc": "What are the intermediate values of the expression?",
    "code_debug": "Which function has the deliberate error?",
    "code_run": "What does the function return?",
}

# Of the answer, where the benchmark's templates end in its first words ("The pass key is"), which a
# chat model, asked in our words, says itself
_SENTENCE_TOKENS = 32
_KEY_TOKENS = 128  # a sentence with two UUIDs

_OPTIONS = (
    "{input}\n\n{options}\n\nReply with the letter of the right option (A, B, C or D) and nothing "
    "else.\nAnswer:"
)
WORDINGS: dict[str, Wording] = {
    "longbook_sum_eng": own_wording("Below is a book.", "{input}\n\nSummary:", 1200),
    "longbook_qa_eng": own_wording(
        "Below is a book. Read it; a question about it follows.",
        "Question: {input}\n\nAnswer from the book, in as few words as possible.\nAnswer:",
        40,
    ),
    "longbook_choice_eng": own_wording(
        "Below is a book. Read it; a question about it with four options follows.",
        f"Question: {_OPTIONS}",
        40,
    ),
    "longdialogue_qa_eng": own_wording(
        'Below is the script of a dialogue. One character\'s name was replaced with "$$MASK$$" in '
        "one place.",
        "{input}\n\nReply with that character's name as the script writes it before a colon, and "
        "nothing else.\nAnswer:",
        40,
    ),
    "longbook_qa_chn": own_wording(
        "下面是一本书。请阅读，之后回答关于它的一个问题。",
        "问题：{input}\n\n请根据书中内容回答，尽量简短。\n答案：",
        40,
    ),
    "code_debug": own_wording(
        "Below is the code of a project. In exactly one of its functions somebody put an obvious "
        "error that makes it fail.",
        _OPTIONS,
        _SENTENCE_TOKENS,
    ),
    "code_run": own_wording(
        "Below are Python functions that call one another.",
        "{input}\n\nFollow the calls to the end. Reply with the returned number alone.\nAnswer:",
        _SENTENCE_TOKENS,
    ),
    "math_calc": own_wording(
        "Below is a long sum of additions and subtractions.",
        "{input}\n\nGive the value after each operation, from left to right, as one list of "
        "numbers; leave out the number that the sum begins with. For 1 + 3 - 2 that is [4, 2]. "
        "Write the whole list and nothing else.\nValues:",
        30000,
    ),
    "math_find": own_wording(
        "Below is a long list of numbers.",
        "{input}\n\nReply with that number alone.\nAnswer:",
        _SENTENCE_TOKENS,
    ),
    "passkey": own_wording(
        "A pass key is hidden somewhere in the text below. Find it and keep it in mind.",
        "{input}\n\nReply with the number alone.\nAnswer:",
        _SENTENCE_TOKENS,
    ),
    "number_string": own_wording(
        "A sequence of digits is hidden somewhere in the text below. Find it and keep it in mind.",
        "{input}\n\nReply with the digits alone, each repetition included.\nAnswer:",
        _SENTENCE_TOKENS,
    ),
    "kv_retrieval": own_wording(
        "Below is a JSON object of keys and values.",
        "{input}\n\nReply with that key's value alone.\nAnswer:",
        _KEY_TOKENS,
    ),
}
TASKS = tuple(WORDINGS)
_WITHOUT_TASK = own_wording("Read the text below; a question about it follows.", "{input}", 128)


def _read(raw: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """`answers` are texts that a judge can accept, `metadata.label` the published answer."""
    task = task_of(raw, path, TASKS)
    query, noted = query_of(raw, task, _STATEMENTS)
    is_choice, options = task in CHOICE_TASKS, raw.get("options")
    options = _options(options) if is_choice else tuple(options or ())
    return {
        "id": f"{task}:{raw['id']}",
        "task": task,
        "query": query,
        "answers": _right_option(raw["answer"], options)
        if is_choice
        else _texts(task, raw["answer"]),
        "language": "zh" if task == "longbook_qa_chn" else "en",
        "metadata": {
            "label": raw["answer"],
            **({"options": list(options)} if options else {}),
            **noted,
        },
    }


def _check_own(raw: Mapping[str, Any]) -> None:
    metadata = raw.get("metadata")
    if raw.get("task") in CHOICE_TASKS:
        _options(metadata.get("options") if isinstance(metadata, Mapping) else None)


adapt = Published(
    kind="InfiniteBench",
    fields={"id": None, "context": str, "input": str, "answer": None},
    used=("options", "dataset", "task"),
    tasks=TASKS,
    check_own=_check_own,
    read=_read,
)


def _options(value: Any) -> tuple[str, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != len(LETTERS):
        message = f"options: must be a list of {len(LETTERS)} texts, not {value!r}"
        raise ValueError(cut(message, 200))
    return tuple(str(option) for option in value)


def _right_option(answer: Any, options: tuple[str, ...]) -> list[str]:
    """The right option as letter, with text, as text; from the text, [text] or [text, letter]."""
    text = answer[0] if isinstance(answer, list) and answer else answer
    if text not in options:
        message = f"answer: {text!r} is not one of the options {list(options)}"
        raise ValueError(cut(message, 200))
    letter = LETTERS[options.index(text)]
    return [letter, f"{letter}. {text}", text]


def _texts(task: str, answer: Any) -> list[str]:
    """A published answer: a text, a number, or a list of alternatives (math_calc: one answer)."""
    if isinstance(answer, list) and not answer:
        raise ValueError("answer: empty")
    if task == "math_calc":
        return [json.dumps(answer)]
    return [str(text) for text in (answer if isinstance(answer, list) else [answer])]


def _own_values(sample: Sample) -> dict[str, str]:
    options = zip(LETTERS, sample.metadata.get("options", ()), strict=False)
    listed = "\n".join(f"{letter}. {option}" for letter, option in options)
    return {**own_values(sample), "options": listed}


prompt = PromptByTask(wordings={**WORDINGS, "": _WITHOUT_TASK}, values=_own_values)


SUITE = long_context_suite(
    description="InfiniteBench: 12 tasks beyond 100k tokens: books, dialogues, code, arithmetic, "
    "retrieval",
    prompt=prompt,
    adapt=adapt,
    tasks=TASKS,
    rules=RULES,
    rule_of=rule_of,
)
