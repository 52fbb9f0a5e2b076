"""Replies of servers that give no answer, whole and streamed, by the cause that each stands for."""

import json
from collections.abc import Mapping
from typing import Any

from tests.servers.provider import Raw

CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
THOUGHTS = [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}]
USED_UP = {"prompt_tokens": 5, "completion_tokens": 7}
# cause -> the message, the finish reason and the usage of each server that means it
SERVERS: dict[str, tuple[Mapping[str, Any], str, Mapping[str, Any]]] = {
    "limit": ({"content": "", "reasoning_content": "Hm."}, "length", USED_UP),
    "thinking_only": ({"content": "<think>Hm.", "role": "assistant"}, "stop", {}),
    "null": ({"content": None}, "stop", {}),
    "content_filter": ({"content": ""}, "content_filter", {}),
    "refusal": ({"content": None, "refusal": "I cannot help with that."}, "stop", {}),
    "tool_call": ({"content": None, "tool_calls": [CALL]}, "tool_calls", {}),
}


def reply_with(
    message: Mapping[str, Any], finish: str, usage: Mapping[str, Any], *, streams: bool
) -> Raw:
    """The reply that holds a message, as one object or as a stream of events."""
    if not streams:
        choice = {"index": 0, "message": message, "finish_reason": finish}
        return Raw(json.dumps({"choices": [choice], "usage": usage or None}).encode())
    events = [{"choices": [{"index": 0, "delta": {name: part}, "finish_reason": None}]}
              for name, part in message.items()]  # fmt: skip
    events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    events.append({"choices": [], "usage": usage or None})
    lines = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
    return Raw(lines + b"data: [DONE]\n\n", content_type="text/event-stream")
