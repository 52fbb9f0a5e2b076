"""A store as tools of the model: it searches, saves and forgets itself, in rounds."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from memray_eval.benchmarks.conversations import Session, SpokenTurn
from memray_eval.errors import StoreError, describe_error
from memray_eval.stores.memories import EVIDENCE_TEXTS, Partition, tells_piece
from memray_eval.stores.port import read_entries
from memray_eval.types import Candidate, Prompt, Response, Sample, ToolCall
from memray_eval.types.samples import MEMORY

SEARCH, SAVE, FORGET = "search_memory", "save_memory", "forget"
Ask = Callable[[Prompt, Candidate], Awaitable[Response]]


def _tool(name: str, about: str, argument: str, what: str) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": {argument: {"type": "string", "description": what}},
        "required": [argument],
        "additionalProperties": False,
    }
    return {
        "type": "function",
        "function": {"name": name, "description": about, "parameters": parameters},
    }


TOOLS = [
    _tool(SEARCH, "Search what you remember of earlier conversations.", "query", "What to find."),
    _tool(SAVE, "Remember something for later conversations.", "text", "What to remember."),
    _tool(FORGET, "Delete something that you remember.", "id", "The id that a search returned."),
]
_ARGUMENTS = {SEARCH: "query", SAVE: "text", FORGET: "id"}


async def ask_with_tools(
    prompt: Prompt, candidate: Candidate, sample: Sample, unit: str, partition: Partition, ask: Ask
) -> Response:
    """The answer after up to `memory.tools` rounds of calls, with the tokens and the time of all;
    in the last one none may be called. A call that the store fails is the answer's error."""
    assert candidate.memory is not None
    rounds, responses = candidate.memory.tools, list[Response]()
    for number in range(rounds + 1):
        extra = {**candidate.extra, "tools": TOOLS}
        extra |= {"tool_choice": "none"} if number == rounds else {}
        response = await ask(prompt, candidate.model_copy(update={"extra": extra}))
        responses.append(response)
        if response.error is not None or not response.tool_calls or number == rounds:
            break
        try:
            replies = [
                await asyncio.to_thread(_call, call, sample, unit, partition)
                for call in response.tool_calls
            ]
        except StoreError as error:
            response = Response(error=describe_error(error))
            break
        calls = [
            {"id": call.id, "type": "function",
             "function": {"name": call.name, "arguments": call.arguments}}
            for call in response.tool_calls
        ]  # fmt: skip
        turn = {"role": "assistant", "content": response.text, "tool_calls": calls}
        heard = [
            {"role": "tool", "tool_call_id": call.id, "content": reply}
            for call, reply in zip(response.tool_calls, replies, strict=True)
        ]
        prompt = prompt.model_copy(update={"tool_messages": (*prompt.tool_messages, turn, *heard)})
    return _together(response, responses)


def _together(last: Response, responses: list[Response]) -> Response:
    """The last response, with the tokens and the time of all."""
    spent: dict[str, Any] = {"tool_calls": ()}
    for name in ("prompt_tokens", "cached_tokens", "output_tokens", "duration_s"):
        parts = [value for of in responses if (value := getattr(of, name)) is not None]
        spent[name] = sum(parts) if parts else None
    return last.model_copy(update=spent)


def _call(call: ToolCall, sample: Sample, unit: str, partition: Partition) -> str:
    """The reply to a model's call; the fault of an odd one. Raises StoreError."""
    try:
        arguments = json.loads(call.arguments or "{}")
    except ValueError:
        arguments = None
    name = _ARGUMENTS.get(call.name)
    value = arguments.get(name) if isinstance(arguments, Mapping) and name else None
    if not isinstance(value, str) or not value.strip():
        return f"error: call {', '.join(_ARGUMENTS)}, each with its argument, a text"
    if call.name == SEARCH:
        return _search(value, sample, unit, partition)
    if call.name == SAVE:
        # servers repeat the ids of calls, and a lost actor's answer is begun again
        turn = SpokenTurn(f"saved {partition.n_changes + 1}", "user", value)
        session = Session(turn.id, "", (turn,))
        partition.call_tool(
            unit, SAVE, lambda store: store.ingest(partition.name, session), is_write=True
        )
        return "saved"
    if value not in {entry.id for entry in partition.entries()}:
        return f"error: nothing that you remember has the id {value[:80]!r}"
    partition.call_tool(
        unit, FORGET, lambda store: store.delete(partition.name, [value]), is_write=True
    )
    return "deleted"


def _search(query: str, sample: Sample, unit: str, partition: Partition) -> str:
    k = partition.memory.k
    notes = sample.metadata.get(MEMORY) or {}
    wanted: list[tuple[str, str, str]] = notes.get(EVIDENCE_TEXTS) or []
    entries = partition.call_tool(
        unit,
        SEARCH,
        lambda store: read_entries(store.search(partition.name, query, k))[:k],
        lambda entries: {"found": any(tells_piece(*piece, entries) for piece in wanted)},
    )
    return json.dumps([entry._asdict() for entry in entries], ensure_ascii=False)
