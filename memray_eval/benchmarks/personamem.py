"""PersonaMem: which of four replies fits what a user has said of themselves over many chats."""

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

from memray_eval.benchmarks import Answered, Rule, long_context_suite, mean_of
from memray_eval.benchmarks.conversations import (
    ConversationPrompt,
    Fault,
    Session,
    SpokenTurn,
    check_sessions,
    find_lacking,
    find_named,
    read_turn,
    require,
    to_context,
)
from memray_eval.benchmarks.templates.files import Published
from memray_eval.ports import PublishedFile, PublishedFiles, PublishedQuestion
from memray_eval.storage.paths import locate, open_reader
from memray_eval.types import Candidate, Prompt, Sample

LETTERS = "abcd"
QUESTIONS, CONTEXTS = "questions_", "shared_contexts_"
QUESTION_FIELDS = tuple(
    "question_id question_type user_question_or_message correct_answer all_options".split()
)
_NEEDED = (*QUESTION_FIELDS, "shared_context_id", "end_index_in_shared_context")
_KEPT = ("persona_id", "topic", "context_length_in_tokens", "distance_to_ref_in_blocks",
         "distance_to_ref_in_tokens")  # fmt: skip
_OPTION = re.compile(r"^\s*\(([a-d])\)\s*(.*)\Z", re.DOTALL)


def find(path: str) -> list[PublishedFile] | None:
    """The tables of questions at a path, each with its contexts beside it."""
    tables = find_named(path, lambda name: name.startswith(QUESTIONS) and name.endswith(".csv"))
    return [PublishedFile(table, "csv", (contexts_of(table),)) for table in tables] or None


def contexts_of(path: str) -> str:
    """The file of contexts that goes with a table of questions."""
    folder, slash, name = path.rpartition("/")
    stem = name.removeprefix(QUESTIONS).removesuffix(".csv")
    return f"{folder}{slash}{CONTEXTS}{stem}.jsonl"


def questions(raw: Any, path: str) -> Iterator[PublishedQuestion]:
    """The question of one row."""
    require(raw, "question of PersonaMem's", ("question_id", "all_options"))
    faults = find_lacking(raw, _NEEDED)
    name = str(raw["question_id"])
    options = read_options(raw["all_options"], faults)
    letter = letter_of(raw.get("correct_answer", ""))
    if options and letter not in options:
        faults.append(("correct_answer", f"{raw.get('correct_answer')!r} is not an option"))
    context = None if faults else _read_context(raw, path, faults)
    metadata: dict[str, Any] = {
        "conversation": str(raw.get("shared_context_id", "")),
        "label": f"({letter})",
        "choices": options,
        "bucket": path.rpartition(QUESTIONS)[2].removesuffix(".csv"),
        **{field: raw[field] for field in _KEPT if field in raw},
    }
    fields = {
        "id": name,
        "task": raw.get("question_type", ""),
        "query": raw.get("user_question_or_message"),
        "context": context,
        "answers": [f"({letter})", f"({letter}) {options.get(letter, '')}"],
        "metadata": metadata,
    }
    yield PublishedQuestion(f"question {name}", fields, tuple(faults))


def letter_of(answer: Any) -> str:
    return str(answer).strip("() ").lower()


def read_options(value: Any, faults: list[Fault]) -> dict[str, str]:
    """The options by their letters: of a list in Python or JSON, of texts after (a) to (d)."""
    try:
        listed = ast.literal_eval(value) if isinstance(value, str) else value
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        listed = None
    texts = listed if isinstance(listed, list) and all(isinstance(o, str) for o in listed) else []
    parsed = [match for text in texts if (match := _OPTION.match(text))]
    options = {match[1]: match[2].strip() for match in parsed}
    if not options or len(options) != len(texts) or list(options) != list(LETTERS[: len(options)]):
        faults.append(("all_options", f"must be a list of (a), (b), ... texts: {value!r:.80}"))
        return {}
    return options


def _read_context(raw: Mapping[str, Any], path: str, faults: list[Fault]) -> str | None:
    """The shared context up to the question's place in it."""
    file, wanted = contexts_of(path), str(raw["shared_context_id"])
    value, field = raw["end_index_in_shared_context"], "end_index_in_shared_context"
    try:
        end = int(str(value))
    except ValueError:
        end = 0
    try:
        if end < 1:
            faults.append((field, f"must be a whole number, not {value!r}"))
        elif (start := _places(file).get(wanted)) is None:
            faults.append(("shared_context_id", f"{file} has no context {wanted!r}"))
        elif end > (n := len(messages := _messages(file, start))):
            faults.append((field, f"is {end}, and the context has {n} messages"))
        else:
            return to_context(check_sessions(_sessions(messages[:end])))
    except (OSError, ValueError, RecursionError) as error:
        faults.append(("shared_context_id", f"{file}: {error}"))
    return None


@lru_cache(4)
def _places(path: str) -> dict[str, int]:
    """The offset of each context's line, in bytes; only its key is parsed."""
    filesystem, inner = locate(path)
    places, position, decoder = dict[str, int](), 0, json.JSONDecoder()
    with open_reader(filesystem, inner) as file:
        while line := file.readline():
            start, position = position, position + len(line)
            head = line[:4096].decode("utf-8", "ignore").lstrip("\ufeff \t{")
            if head.strip():
                places[str(decoder.raw_decode(head)[0])] = start
    return places


@lru_cache(2)
def _messages(path: str, start: int) -> tuple[SpokenTurn, ...]:
    """The messages of the context whose line begins there."""
    with open_reader(*locate(path), start) as file:
        context = json.loads(file.readline().decode("utf-8-sig"))
    messages = next(iter(context.values())) if isinstance(context, dict) and context else None
    if not isinstance(messages, list):
        raise ValueError("a context must be a list of messages")
    return tuple(read_turn(turn, f"message {at}") for at, turn in enumerate(messages, 1))


def _sessions(messages: tuple[SpokenTurn, ...]) -> list[Session]:
    """The blocks that the context is made of: one begins at each system message."""
    starts = [index for index, turn in enumerate(messages) if turn.speaker == "system" or not index]
    spans = enumerate(pairwise([*starts, len(messages)]), 1)
    return [Session(f"block {number}", "", messages[slice(*span)]) for number, span in spans]


VERSION = "PersonaMem 041d82a"
_MARK, _END = "<final_answer>", "</final_answer>"
_IN_BRACKETS = re.compile(r"\(([a-d])\)")
_ALONE = re.compile(r"\b([a-d])\b")
# The names of the seven types as the published tables have them: they differ by length.
TASKS = tuple(
    "recall_user_shared_facts recalling_facts_mentioned_by_the_user "
    "acknowledge_latest_user_preferences track_full_preference_evolution "
    "recalling_the_reasons_behind_previous_updates revisit_reasons_behind_preference_updates "
    "provide_preference_aligned_recommendations suggest_new_ideas generalizing_to_new_scenarios "
    "generalize_to_new_scenarios".split()
)
WORDING = ConversationPrompt(
    before="Below are a user's earlier chats with an assistant, oldest first.",
    after="{question}\n\n"
    "Exactly one of these replies fits what the user has told of themselves, as it stands by now. "
    "Say which: give its letter in brackets, such as (b), after <final_answer>.",
    max_tokens=64,
)


def _read(raw: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """A question with a response, which is model_response in the benchmark's own results."""
    faults: list[tuple[str, str]] = []
    options = read_options(raw["all_options"], faults) if "all_options" in raw else {}
    if faults:
        raise ValueError("; ".join(": ".join(fault) for fault in faults))
    letter = letter_of(raw.get("correct_answer", ""))
    fields = {
        "task": str(raw.get("question_type", "")),
        "query": raw.get("query") or raw.get("user_question_or_message"),
        "answers": [f"({letter})", *([f"({letter}) {options[letter]}"] if options else [])],
        "label": f"({letter})",
        "choices": options,
        "conversation": str(raw.get("shared_context_id") or raw.get("persona_id") or ""),
    }
    if raw.get("question_id") is not None:
        fields["id"] = str(raw["question_id"])
    if isinstance(raw.get("model_response"), str):
        fields["response"] = raw["model_response"]
    return fields


adapt = Published(
    kind="PersonaMem",
    used=(*QUESTION_FIELDS, "model_response"),
    is_published=lambda raw: "all_options" in raw or "correct_answer" in raw,
    lacks="all_options",
    read=_read,
)


def prompt(sample: Sample, candidate: Candidate) -> Prompt:
    """In our words, the same for every type. Raises ValueError for a sample without options."""
    choices = sample.metadata.get("choices")
    if not isinstance(choices, Mapping) or not choices:
        raise ValueError("metadata.choices: must give the text of each of a, b, c and d")
    listed = "\n\n".join(f"({letter}) {text}" for letter, text in choices.items())
    question = f"The user now says: {sample.query}\n\nReplies:\n\n{listed}"
    return WORDING.ask(sample, candidate, question)


def letter_score(prediction: str, letter: str) -> float:
    """PersonaMem's score, as bowen-upenn/PersonaMem 041d82a has it in
    inference_standalone_openai.py: 1.0 if what follows the last <final_answer>, or else the whole
    reply, names the right letter and no other. Letters in brackets count before letters alone,
    among which is every article "a"."""
    final = prediction.strip().rpartition(_MARK)[2].strip().removesuffix(_END)
    return float({letter} in (_named(final), _named(prediction)))


def _named(text: str) -> set[str]:
    lower = text.lower()
    return set(_IN_BRACKETS.findall(lower)) or set(_ALONE.findall(lower))


def _score(sample: Sample, text: str) -> float:
    offered = (sample.metadata.get("label", ""), *sample.answers)
    right = next((letter for letter in map(letter_of, offered) if letter in tuple(LETTERS)), None)
    if right is None:
        raise ValueError("none of the answers is a letter (a) to (d), which PersonaMem compares")
    return letter_score(text, right)


RULES = {
    "personamem_letter": Rule(
        title="PersonaMem letter",
        value_label="Accuracy",
        about="Whether the reply names the right option alone, as PersonaMem scores.",
        version=VERSION,
        score=_score,
        by=letter_score,
    )
}


def overall(answered: Sequence[Answered]) -> dict[str, float | None]:
    """The share of right letters over all questions."""
    return {"accuracy": mean_of(row.values.get("rule_score") for row in answered)}


SUITE = long_context_suite(
    description="PersonaMem: which of four replies fits what a user has said of themselves",
    metrics=("rule_score", "semantic_correctness", "evidence_recall"),
    prompt=prompt,
    adapt=adapt,
    tasks=TASKS,
    has_arms=True,
    files=PublishedFiles(find=find, questions=questions),
    overall=overall,
    rules=RULES,
    rule_of=lambda sample: "personamem_letter",
)
