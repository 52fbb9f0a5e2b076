"""The forms in which other tools write down questions and answers: by what a row is recognised, and
where its fields are. A row of the table is all that a tool's export needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memray_eval.datasets.answers import QUERY_FIELDS, is_missing
from memray_eval.datasets.conversations import TURNS_KEYS, OfTexts, is_conversation
from memray_eval.datasets.dotted import MISSING, find_at, look_up

Paths = tuple[str, ...]
_QUERIES = (*QUERY_FIELDS, "message", "user_input", "user_message", "input", "instruction")
_QUERY = (
    *("messages", "query", "question", "prompt", "input", "user_input", "user_message", "text"),
    *("instruction", "problem", "content", "message"),
)
_GOLD = (
    *("answers", "ground_truth", "expected", "expected_output", "expected_answer", "ideal"),
    *("reference_answer", "reference", "answer", "correct_label", "correct_answer"),
    *("target", "label", "gold_answer"),
)


@dataclass(frozen=True)
class Form:
    """A form of rows. A row has it if it has every path of `marks`, of which one may name several
    (`a|b`), none of what it `lacks`, and, in one of `chats`, a conversation (a strict one's query
    must be one in every row). `fields` are those of a sample (and response, model, error), each
    with the paths that may hold it, the likeliest first; a path is dotted, with numbers in lists,
    and `a+b` are two texts in one. What no field is taken from keeps its name; in an export it goes
    to the metadata, but what is in `left_out`, which is long and says nothing of the answer."""

    name: str
    marks: Paths
    fields: Mapping[str, Paths]
    chats: Paths = ()
    lacks: Paths = ()
    is_export: bool = True
    is_strict: bool = False
    left_out: frozenset[str] = frozenset()

    @property
    def of_texts(self) -> OfTexts:
        """Which of its texts may be conversations."""
        return "strict" if self.is_strict else "chats" if self.chats else "json"

    def marks_of(self, row: Mapping[str, Any]) -> bool:
        """Whether a row has the marks."""
        return all(
            mark in row or any(find_at(row, path) is not MISSING for path in mark.split("|"))
            for mark in self.marks
        ) and row.keys().isdisjoint(self.lacks)

    def fits(self, row: Mapping[str, Any]) -> bool:
        """Whether a row has the marks and a conversation, if that is one of them."""
        return self.marks_of(row) and (
            not self.chats or any(is_conversation(look_up(row, path)) for path in self.chats)
        )

    def read(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """A row's fields by our names."""
        fields: dict[str, Any] = {}
        used: set[str] = set()
        for name, paths in self.fields.items():
            for path in paths:
                value = look_up(row, path)
                if not is_missing(value) and value != "":
                    fields[name] = value
                    used |= {part.partition(".")[0] for part in path.split("+")}
                    break
        rest = {
            name: value
            for name, value in row.items()
            if name not in used and name not in self.left_out and name not in fields
        }
        if not self.is_export:
            return fields | rest
        if "id" in fields and row.get("epoch") not in (None, 0, 1):
            fields["id"] = f"{fields['id']}-{row['epoch']}"  # another answer to the same sample
        own = rest.pop("metadata", None)
        kept = {name: value for name, value in rest.items() if value is not None}
        fields["metadata"] = kept | (own if isinstance(own, dict) else {})
        return fields


def _each(name: str, keys: Paths) -> Paths:
    return tuple(f"{name}.{key}" for key in keys)


_CHOICE = "choices.0.message"


# The most particular first
FORMS: tuple[Form, ...] = (
    Form(
        "OpenAI batch outputs",
        ("custom_id", "response|error", "response.body|error.message|response.status_code"),
        {
            "id": ("custom_id",),
            "response": (f"response.body.{_CHOICE}", "response.body.output"),
            "model": ("response.body.model",),
            "error": ("error.message", "response.body.error.message"),
        },
    ),
    Form(
        "OpenAI batch requests",
        ("custom_id", "body"),
        {
            "id": ("custom_id",),
            "query": ("body.messages", "body.input", "body.prompt"),
            "system": ("body.instructions",),
        },
    ),
    Form(
        "Anthropic batch results",
        ("custom_id", "result.type"),
        {
            "id": ("custom_id",),
            "response": ("result.message",),
            "model": ("result.message.model",),
            "error": ("result.error.error.message", "result.error.message", "result.error.type"),
        },
    ),
    Form(
        "Anthropic batch requests",
        ("custom_id", "params.messages"),
        {"id": ("custom_id",), "query": ("params.messages",), "system": ("params.system",)},
    ),
    Form(
        "Gemini batch outputs",
        ("request.contents",),
        {
            "id": ("key", "id"),
            "query": ("request.contents",),
            "system": ("request.systemInstruction", "request.system_instruction"),
            "response": ("response.candidates.0.content",),
            "model": ("response.modelVersion",),
            "error": ("error.message", "status"),
        },
    ),
    Form(
        "OpenAI Evals output items",
        ("sample", "datasource_item|item|datasource_item_id"),
        {
            "id": ("datasource_item_id", "id"),
            "query": ("sample.input", *_each("datasource_item", _QUERY), *_each("item", _QUERY)),
            "response": ("sample.output", "sample.output_text", f"sample.{_CHOICE}"),
            "answers": (*_each("datasource_item", _GOLD), *_each("item", _GOLD)),
            "model": ("sample.model",),
            "error": ("sample.error.message",),
        },
    ),
    Form(
        "OpenAI Evals data",
        ("|".join(_each("item", _QUERY)),),
        {
            "query": _each("item", _QUERY),
            "response": _each("item", ("response", "output", "completion", "model_output")),
            "answers": _each("item", _GOLD),
            "id": ("item.id",),
        },
    ),
    Form(
        "OpenAI Evals data",
        ("input", "ideal"),
        {"query": ("input",), "answers": ("ideal",)},
        chats=("input",),
        is_export=False,
    ),
    Form(
        "promptfoo results",
        ("prompt.raw", "vars|testCase|testIdx"),
        {
            "id": ("testIdx+promptIdx", "testIdx", "id"),
            "query": ("prompt.raw",),
            "response": ("response.output",),
            "model": ("provider.label", "provider.id", "provider"),
            "answers": _each("vars", _GOLD),
            "error": ("response.error", "error"),
        },
        left_out=frozenset({"gradingResult"}),
    ),
    Form(
        "lm-eval samples",
        ("doc", "resps"),
        {
            "query": ("arguments.gen_args_0.arg_0", "arguments.0.0", *_each("doc", _QUERY)),
            "response": ("resps.0.0", "resps.0"),
            "answers": ("target", *_each("doc", _GOLD)),
        },
        left_out=frozenset({"filtered_resps"}),
    ),
    Form(
        "Inspect samples",
        ("input", "target", "output.choices|output.completion|output.model"),
        {
            "id": ("id",),
            "query": ("messages", "input"),
            "response": (f"output.{_CHOICE}", "output.completion"),
            "answers": ("target",),
            "model": ("output.model",),
            "error": ("error.message",),
        },
        left_out=frozenset({"events", "attachments", "store", "uuid"}),
    ),
    Form(
        "Langfuse",
        ("input", "output", "traceId|trace_id|sessionId|session_id|observations|projectId"),
        {
            "id": ("id",),
            "query": ("input",),
            "response": ("output",),
            "model": ("model", "providedModelName"),
            "answers": ("expectedOutput", "expected_output"),
        },
        left_out=frozenset({"observations"}),
    ),
    Form(
        "LangSmith runs",
        ("inputs", "outputs"),
        {
            "id": ("id",),
            "query": ("inputs",),
            "response": ("outputs.generations.0.0.message", "outputs.messages", "outputs"),
            "answers": _each("reference_outputs", _GOLD),
        },
    ),
    Form(
        "deepeval test cases",
        ("input", "actualOutput|actual_output"),
        {
            "query": ("input",),
            "response": ("actualOutput", "actual_output"),
            "answers": ("expectedOutput", "expected_output"),
            "context": ("retrievalContext", "retrieval_context", "context"),
            "id": ("id",),
        },
    ),
    Form(
        "preference pairs, of which the chosen answer is read",
        ("chosen", "rejected|prompt|question"),
        {"query": ("prompt", "question", "input", "chosen"), "response": ("chosen",)},
        chats=("chosen", "prompt"),
        is_export=False,
    ),
    Form(
        "preference pairs, of which the chosen answer is read",
        ("prompt|question", "chosen", "rejected"),
        {"query": ("prompt", "question"), "response": ("chosen",)},
        is_export=False,
    ),
    Form(
        "a log of requests",
        ("request.messages|request.input", "response"),
        {
            "query": ("request.messages", "request.input"),
            "response": (f"response.{_CHOICE}", "response.output", "response.content", "response"),
            "model": ("response.model", "request.model"),
            "system": ("request.system", "request.instructions"),
            "id": ("id", "request_id"),
        },
    ),
    Form(
        "requests with their choices",
        ("messages|prompt", "choices"),
        {"query": ("messages", "prompt"), "response": (_CHOICE, "choices.0.text")},
        is_export=False,
    ),
    Form(
        "Responses of OpenAI's API",
        ("input", "output"),
        {"query": ("input",), "response": ("output",), "system": ("instructions",)},
        chats=("output",),
        is_export=False,
    ),
    Form(
        "Gradio chats",
        ("history", "message"),
        {"query": ("message",), "history": ("history",)},
        is_export=False,
    ),
    Form(
        "Alpaca instructions",
        ("instruction", "output"),
        {"query": ("instruction+input",), "response": ("output",)},
        is_export=False,
    ),
    *(
        Form(
            f"conversations in {column!r}",
            (column,),
            {"query": (column,)},
            chats=(column,),
            lacks=_QUERIES if column not in ("messages", "conversations", "contents") else (),
            is_export=False,
            is_strict=True,
        )
        for column in (*TURNS_KEYS, "chatbot", "chat_history", "transcript", "text", "history")
    ),
)


def form_of(rows: Sequence[Mapping[str, Any]]) -> Form | None:
    """The first of FORMS that at least half of the rows have, if there are rows."""
    if not rows:
        return None
    return next((form for form in FORMS if 2 * sum(map(form.fits, rows)) >= len(rows)), None)
