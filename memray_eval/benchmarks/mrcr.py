"""MRCR: one of several answers to the same request, out of a long conversation."""

import json
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

from pydantic import TypeAdapter, ValidationError

from memray_eval.benchmarks import Rule, long_context_suite
from memray_eval.benchmarks.templates.files import Published, chars_bucket, known_task
from memray_eval.types import Candidate, Message, Prompt, Sample

VERSION = "openai/mrcr 204b0d4"
PREFIX = "random_string_to_prepend"  # the field with what a reply must begin with
TASKS = ("2needle", "4needle", "8needle")
_COUNTS = ("n_needles", "desired_msg_index", "total_messages", "n_chars")
_ABOUT = (PREFIX, *_COUNTS, "date_added")
_MESSAGES = TypeAdapter(tuple[Message, ...])
# Of the answer's characters, two a token at the least, and a sentence beside it
_CHARS_A_TOKEN, _SENTENCE_TOKENS, _TOKENS_MAX = 2, 64, 16_384
_SPEAKERS = {"user": "User", "assistant": "Assistant", "system": "System"}


def _read(raw: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """The query is a record's last message, the context the JSON of those before."""
    messages = read_messages(raw["prompt"], "prompt")
    if not messages or messages[-1].role != "user" or not messages[-1].content:
        raise ValueError("prompt: must end in a message of the user's")
    return {
        "task": known_task(f"{raw['n_needles']}needle", TASKS),
        "query": messages[-1].content,
        "context": to_json(messages[:-1]),
        "answers": [raw["answer"]],
        "metadata": {
            **{name: raw[name] for name in _ABOUT if raw.get(name) is not None},
            "bucket": chars_bucket(raw["n_chars"]),
        },
    }


adapt = Published(
    kind="MRCR",
    fields={"prompt": str, "answer": str, PREFIX: str, **dict.fromkeys(_COUNTS, int)},
    used=("task", "date_added"),
    aliases=[("prompt", (PREFIX, "n_needles"))],
    tasks=TASKS,
    read=_read,
)


def read_messages(text: str, field: str) -> tuple[Message, ...]:
    """The messages of a conversation in JSON. Raises ValueError that names the field."""
    try:
        return _MESSAGES.validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = ".".join(str(part) for part in first["loc"])
        raise ValueError(
            f"{field}: must be JSON, a list of messages with role and content: "
            f"{path + ': ' if path else ''}{first['msg']}"
        ) from None


def to_json(messages: Sequence[Message]) -> str:
    return json.dumps([message.model_dump() for message in messages], ensure_ascii=False)


def prompt(sample: Sample, candidate: Candidate) -> Prompt:
    """The conversation as messages, never cut: a conversation without its middle asks something
    else. As `transcript` it is one message, with a name before each turn, for models that have no
    chat template. Raises ValueError for a context that is not a conversation."""
    earlier = read_messages(sample.context, "context") if sample.context else ()
    messages = (*earlier, Message(role="user", content=sample.query))
    answer_chars = max(map(len, sample.answers), default=0)
    max_tokens = min(_TOKENS_MAX, _SENTENCE_TOKENS + answer_chars // _CHARS_A_TOKEN)
    if candidate.prompt == "transcript":
        turns = [f"{_SPEAKERS[turn.role]}: {turn.content}\n\n" for turn in messages]
        content = f"{''.join(turns)}{_SPEAKERS['assistant']}:"
        messages = (Message(role="user", content=content),)
    return Prompt(messages=messages, max_tokens=max_tokens)


def prefix_ratio(reply: str, answer: str, prefix: str) -> float:
    """MRCR's score, as the dataset's card has it (openai/mrcr 204b0d4, README.md): 0.0 unless the
    reply begins with the prefix, spaces and case counted; else difflib's ratio of reply and answer
    without it, 0-1. As in the original, difflib leaves out characters that are frequent in an
    answer of 200 and more when it looks for where a match begins."""
    if not reply.startswith(prefix):
        return 0.0
    rest, wanted = reply.removeprefix(prefix), answer.removeprefix(prefix)
    return SequenceMatcher(None, rest, wanted).ratio()


def _score(sample: Sample, text: str) -> float:
    if (why_not := _why_not(sample)) is not None:
        raise ValueError(why_not)
    if len(sample.answers) != 1:
        raise ValueError(f"MRCR compares one answer; the sample has {len(sample.answers)}")
    return prefix_ratio(text, sample.answers[0], sample.metadata[PREFIX])


def _why_not(sample: Sample) -> str | None:
    prefix = sample.metadata.get(PREFIX)
    return None if isinstance(prefix, str) else f"the sample's metadata has no {PREFIX}"


RULES = {
    "mrcr_ratio": Rule(
        title="MRCR ratio",
        value_label="Ratio",
        about="difflib's ratio of the reply to the answer, 0 unless it begins with the asked "
        "string, as MRCR scores.",
        version=VERSION,
        score=_score,
        by=prefix_ratio,
        why_not=_why_not,
    )
}
SUITE = long_context_suite(
    description="MRCR: one of 2, 4 or 8 answers to the same request, out of a long conversation",
    metrics=("rule_score",),
    prompt=prompt,
    prompts=("default", "transcript"),
    adapt=adapt,
    tasks=TASKS,
    rules=RULES,
    rule_of=lambda sample: "mrcr_ratio",
)
