"""HealthBench: health conversations, each with criteria of its own for the answer, and points."""

from collections.abc import Mapping
from typing import Any

from memray_eval.benchmarks import Suite
from memray_eval.benchmarks.plain import CHAT_PROMPTS, ask_chat
from memray_eval.benchmarks.templates.files import Published
from memray_eval.text_processing.judge_prompts import read_criteria
from memray_eval.types import Candidate, Prompt, Sample
from memray_eval.types.samples import CRITERIA, EXAMPLE_TAGS

MAX_TOKENS = 2048  # of an answer, which may be a letter or a table
_THEME = "theme:"
_ABOUT = ("use_case", "type", "difficulty", "specialty")  # of a record of Professional


def _read(raw: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """A record of HealthBench: the theme among its tags is the task."""
    tags = [tag for tag in raw.get(EXAMPLE_TAGS) or () if isinstance(tag, str)]
    theme = next((tag for tag in tags if tag.startswith(_THEME)), "")
    return {
        "id": raw["prompt_id"],
        "task": theme.removeprefix(_THEME),
        **_read_turns(raw["prompt"], "prompt"),
        "metadata": {CRITERIA: raw["rubrics"], EXAMPLE_TAGS: tags},
    }


def _read_professional(raw: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """A record of HealthBench Professional, whose criteria have no tags."""
    conversation = raw.get("conversation")
    messages = conversation.get("messages") if isinstance(conversation, Mapping) else conversation
    turns = {} if "query" in raw else _read_turns(messages, "conversation")
    criteria = [
        {"criterion": item.get("criterion_text"), "points": item.get("points")}
        for item in raw["rubric_items"]
    ]
    about = {name: raw[name] for name in _ABOUT if raw.get(name) is not None}
    tags = [f"{name}:{value}" for name, value in about.items()]
    return {
        "id": raw["id"],
        "task": str(raw.get("use_case") or ""),
        **turns,
        "metadata": {CRITERIA: criteria, EXAMPLE_TAGS: tags, **about},
    }


def _read_turns(messages: Any, field: str) -> dict[str, Any]:
    """Query and history of a conversation that the user ends. Raises ValueError."""
    if not isinstance(messages, list | tuple) or not messages:
        raise ValueError(f"{field}: must be a list of messages with role and content")
    turns = []
    for number, message in enumerate(messages, 1):
        role = message.get("role") if isinstance(message, Mapping) else None
        if role not in ("user", "assistant") or not isinstance(message.get("content"), str):
            raise ValueError(
                f"{field}: message {number} must have a role (user or assistant) and a content "
                "(text)"
            )
        turns.append({"role": role, "content": message["content"]})
    if turns[-1]["role"] != "user":
        raise ValueError(f"{field}: must end with a message of the user")
    return {"query": turns[-1]["content"], "history": turns[:-1]}


_MAIN = Published(
    kind="HealthBench",
    fields={"prompt_id": str, "prompt": list, "rubrics": list},
    used=(EXAMPLE_TAGS, "ideal_completions_data", "canary"),
    aliases=[("prompt", ("prompt_id", "rubrics"))],
    read=_read,
)
_PROFESSIONAL = Published(
    kind="HealthBench Professional",
    fields={"id": str, "rubric_items": list},
    used=(*_ABOUT, "conversation", "physician_response", "canary_string"),
    is_published=lambda raw: "rubric_items" in raw,
    read=_read_professional,
)


def adapt(raw: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """The fields of a sample; rows of our own format stay as they are."""
    fields = (_PROFESSIONAL if "rubric_items" in raw else _MAIN)(raw, path)
    read_criteria(fields.get("metadata") or {})
    return fields


def prompt(sample: Sample, candidate: Candidate) -> Prompt:
    """The conversation, after the candidate's system prompt if it has one."""
    return ask_chat(sample, candidate).model_copy(update={"max_tokens": MAX_TOKENS})


SUITE = Suite(
    description="HealthBench: health conversations, each with criteria of its own for the answer",
    metrics=("criteria",),
    prompt=prompt,
    prompts=tuple(CHAT_PROMPTS),
    takes_prompt_files=True,
    adapt=adapt,
)
