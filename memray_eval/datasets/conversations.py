"""One normal form of a conversation, whoever wrote it down: OpenAI's messages, Anthropic's blocks,
Gemini's contents, ShareGPT's and LangChain's turns, Gradio's pairs, transcripts."""

from __future__ import annotations

import ast
import json
import mimetypes
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias

from memray_eval.datasets.dotted import look_up
from memray_eval.datasets.parsing import InvalidSample, invalid

Role: TypeAlias = Literal["user", "assistant", "system", "call", "result", "thought"]

_WORDS: Mapping[Role, str] = {
    "user": "user human prompter customer client",
    "assistant": "assistant gpt model ai bot chatbot chatgpt bing bard claude gemini agent chatglm",
    "system": "system developer",
    "call": "function_call tool_call computer_call web_search_call file_search_call mcp_call",
    "result": "tool function observation ipython tool_result tool_response function_response "
    "function_call_output toolmessage environment",
    "thought": "reasoning",
}
ROLES: Mapping[str, Role] = MappingProxyType(
    {word: role for role, words in _WORDS.items() for word in words.split()}
)
# What may stand under `type`, where a part of a turn may have one as well
_TYPES = frozenset("human ai system tool function_call function_call_output reasoning".split())
# What a transcript calls them, in English, German, French, Spanish, Italian and Portuguese
_LABEL_WORDS: Mapping[Role, str] = {
    "user": "user human customer client you me q prompt nutzer nutzerin benutzer benutzerin "
    "mensch kunde kundin anwender anwenderin frage ich utilisateur utilisatrice humain humaine "
    "cliente moi usuario usuaria humano utente usuário",
    "assistant": "assistant ai bot chatbot chatgpt gpt claude gemini model agent a response "
    "companion assistent assistentin ki antwort assistante ia asistente assistente",
    "system": "system système systeme sistema",
}
_LABELS: Mapping[str, Role] = {
    label: role for role, labels in _LABEL_WORDS.items() for label in labels.split()
}
_LABEL = re.compile(
    r"(?:^[ \t]*(?:#{2,4} *|> *|\[[^\]\n]{1,30}\] *)?|### )(?:\*\*|__)?("
    + "|".join(sorted(_LABELS, key=len, reverse=True))
    + r")(?: *\([^)\n]{1,30}\))?(?:\*\*|__)? ?[:\uff1a](?:\*\*|__)?[ \t]*",
    re.IGNORECASE | re.MULTILINE,
)
_CHATML = re.compile(r"<\|im_start\|>(\w+)\n(.*?)(?:<\|im_end\|>|\Z)", re.DOTALL)
_ROLE_KEYS = ("role", "from", "speaker", "author", "sender", "type")
_TEXT_KEYS = (
    *("content", "value", "text", "message", "parts", "body", "data", "output"),
    *("summary",),  # of a reasoning
)
# Of an object, the key that holds its turns
TURNS_KEYS = tuple(
    "messages conversations conversation contents turns dialogue dialog chat items".split()
)
_ORDER_KEYS = tuple(
    "turn turn_id turn_index turn_number index position order timestamp created_at create_time "
    "time".split()
)
_MEDIA = ("image", "audio", "video")
_DATE = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:")
_NO_ANSWER = "ends with a call of a tool, and no answer"
_MOST_PRINTED = 1_000_000  # characters of a text that is looked at as JSON
Turns: TypeAlias = list[dict[str, str]]
# Which texts are looked at: none, those that are a conversation's JSON, transcripts too, or all
OfTexts: TypeAlias = Literal["", "json", "chats", "strict"]


class Conversation(NamedTuple):
    """The turns of the user and the assistant, their text alone; the system prompts; what calls
    tools, is their result, or is thought, as it was; how many turns of the assistant were joined to
    the one before them. One that `is_called` ends with a call, and nothing said after it."""

    turns: Turns
    system: str = ""
    tools: Sequence[Any] = ()
    thinking: Sequence[str] = ()
    n_joined: int = 0
    is_called: bool = False


class _Said(NamedTuple):
    """A turn as it was found: its role, text, and what is no text in it."""

    role: Role
    text: str
    calls: Sequence[Any] = ()
    results: Sequence[Any] = ()
    thinking: Sequence[str] = ()
    call_ids: Sequence[str] = ()


@dataclass
class _Builder:
    """Puts turns together: what the assistant says between two turns of the user is one turn, and
    what it says before it calls a tool is none, if it says something after it."""

    turns: Turns = field(default_factory=list)
    system: list[str] = field(default_factory=list)
    tools: list[Any] = field(default_factory=list)
    thinking: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    before_call: list[str] = field(default_factory=list)
    call_ids: set[str] = field(default_factory=set)
    n_joined: int = 0
    is_answering: bool = False
    is_called: bool = False

    def add(self, turn: _Said, raw: Any, place: str) -> None:
        self.thinking += turn.thinking
        if turn.role == "thought":
            return
        if turn.role == "system":
            self.system.append(turn.text)
        elif turn.role == "user" and not (turn.results and not turn.text.strip()):
            self._end_answer()
            self.tools += turn.results
            self.turns.append({"role": "user", "content": turn.text})
        elif turn.role == "assistant":
            self._answer(turn)
        elif turn.role == "call":
            self._call([raw], turn.call_ids)
        else:
            self._take_result(turn, raw, place)

    def _answer(self, turn: _Said) -> None:
        self.is_answering = True
        if turn.text.strip() or not turn.calls:
            self.said.append(turn.text)
        self.is_called = False
        if turn.calls:
            self._call(turn.calls, turn.call_ids)
        self.tools += turn.results

    def _call(self, calls: Sequence[Any], ids: Sequence[str]) -> None:
        self.is_answering = self.is_called = True
        self.before_call += self.said
        self.said = []
        self.tools += calls
        self.call_ids.update(ids)

    def _take_result(self, turn: _Said, raw: Any, place: str) -> None:
        unknown = [id_ for id_ in turn.call_ids if id_ not in self.call_ids]
        if not self.is_answering or (unknown and self.call_ids):
            which = f" ({unknown[0]})" if unknown else ""
            raise invalid(f"{place}: a tool's result{which} without a call before it")
        self._call(turn.results or [raw], ())

    def _end_answer(self) -> None:
        if self.is_answering:
            self.is_called = self.is_called and not self.said
            texts = [text for text in self.said or self.before_call if text.strip()]
            if texts or self.said:
                self.turns.append({"role": "assistant", "content": "\n\n".join(texts)})
            self.n_joined += max(0, len(texts) - 1)
        self.said, self.before_call, self.is_answering = [], [], False

    def finish(self) -> Conversation:
        self._end_answer()
        system = "\n\n".join(text for text in self.system if text)
        return Conversation(
            self.turns, system, self.tools, self.thinking, self.n_joined, self.is_called
        )


def conversation_of(raw: Any) -> Conversation:
    """The conversation that a value is: a list of turns or pairs, an object with one, their JSON,
    or a transcript. Raises InvalidSample that says which turn is wrong and why."""
    messages = find_messages(raw)
    if messages is None:
        raise invalid("holds no conversation: no list of turns, and no transcript")
    builder = _Builder()
    if isinstance(raw, Mapping):
        for name in ("system", "system_instruction", "systemInstruction", "instructions"):
            if raw.get(name):
                builder.system.append(_read_content(raw[name], "system").text)
    _check_order(messages)
    for number, message in enumerate(messages, 1):
        place = f"turn {number}"
        for turn in _read_turns(message, place):
            builder.add(turn, message, place)
    return builder.finish()


def split_plain(messages: list[Any], fields: dict[str, Any]) -> bool:
    """Puts system prompt, history, query and response among the fields, if the turns are as most
    are: objects of a role and a text, a system prompt at most, then user and assistant by turns.
    Returns False, and changes nothing, for any other."""
    system, wanted, other = "", "user", "assistant"
    for at, turn in enumerate(messages):
        if type(turn) is not dict or len(turn) != 2 or type(turn.get("content")) is not str:
            return False
        role = turn.get("role")
        if role == wanted:
            wanted, other = other, wanted
        elif at == 0 and role == "system":
            system = turn["content"]
        else:
            return False
    last = len(messages) - (2 if wanted == "user" else 1)
    begin = 1 if messages and messages[0]["role"] == "system" else 0
    metadata = fields.get("metadata")
    is_whole = last >= begin and messages[last]["content"].strip() and "response" not in fields
    if not is_whole or (system and not isinstance(metadata, dict | None)):
        return False
    fields["history"], fields["query"] = messages[begin:last], messages[last]["content"]
    if wanted == "user":
        fields["response"] = messages[last + 1]["content"]
    if system:
        fields["metadata"] = {"system": system, **(metadata or {})}
    return True


def find_messages(raw: Any) -> Sequence[Any] | None:
    """The turns that a value holds, if any; a text is looked at as JSON and as a transcript."""
    if isinstance(raw, str):
        return _messages_of_text(raw)
    if isinstance(raw, Mapping):
        if _role_of(raw) is not None:
            return [raw]
        key = next((name for name in (*TURNS_KEYS, "input") if name in raw), None)
        return None if key is None else find_messages(raw[key])
    if not isinstance(raw, list | tuple) or not raw:
        return None
    if len(raw) == 1 and isinstance(raw[0], str):
        return _messages_of_text(raw[0])
    return raw if all(map(_is_turn, raw)) else None


def _messages_of_text(text: str) -> Sequence[Any] | None:
    if text.lstrip()[:1] in ("[", "{") and len(text) <= _MOST_PRINTED:
        try:
            return find_messages(json.loads(text))
        except (ValueError, RecursionError):
            try:
                return find_messages(ast.literal_eval(text.strip()))  # as pandas prints a list
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                pass
    return read_transcript(text)


def read_transcript(text: str) -> list[dict[str, str]] | None:
    """The turns of a text in which each begins with its speaker ("User: ..."), or ChatML; None
    if it does not begin so, or no user speaks."""
    if found := _CHATML.findall(text):
        turns = [{"role": role, "content": said.strip()} for role, said in found]
        return turns if all(role in ROLES for role, _ in found) else None
    text = text.strip()
    labels = list(_LABEL.finditer(text))
    if not labels or labels[0].start() != 0:
        return None
    ends = [*(label.start() for label in labels[1:]), len(text)]
    turns = [
        {"role": _LABELS[label[1].lower()], "content": text[label.end() : end].strip()}
        for label, end in zip(labels, ends, strict=True)
    ]
    return turns if any(turn["role"] == "user" for turn in turns) else None


def is_conversation(value: Any) -> bool:
    """Whether a value is a conversation; a text must have an answer, or be the turns' JSON."""
    messages = find_messages(value)
    if messages is None:
        return False
    if isinstance(value, str) and value.lstrip()[:1] not in ("[", "{"):
        return {"user", "assistant"} <= {turn["role"] for turn in messages}
    return True


def _is_turn(turn: Any) -> bool:
    if isinstance(turn, Mapping):
        return _role_of(turn) is not None
    return _is_pair(turn)


def _is_pair(turn: Any) -> bool:
    return (
        isinstance(turn, list | tuple)
        and len(turn) == 2
        and any(isinstance(side, str) for side in turn)
        and all(side is None or isinstance(side, str | list | tuple | dict) for side in turn)
    )


def _role_of(turn: Mapping[str, Any]) -> Role | None:
    for key in _ROLE_KEYS:
        word = turn.get(key)
        if isinstance(word, Mapping):  # {"author": {"role": ...}}
            word = word.get("role")
        if isinstance(word, str) and (role := ROLES.get(word.lower())):
            return role if key != "type" or word in _TYPES else None
    return "user" if turn.keys() == {"parts"} else None  # Gemini's need not say it


def _read_turns(message: Any, place: str) -> Iterator[_Said]:
    if not isinstance(message, Mapping):  # a pair
        sides: tuple[Role, Role] = ("user", "assistant")
        for role, side in zip(sides, message, strict=True):
            if isinstance(side, list | tuple) and side and isinstance(side[0], str):
                yield _read_content({"path": side[0]}, role)  # Gradio's file and its name
            elif side is not None:
                yield _read_content(side, role)
        return
    role = _role_of(message)
    assert role is not None
    content = next((message[key] for key in _TEXT_KEYS if key in message), None)
    if not content:  # a refusal, or what was spoken
        content = look_up(message, "refusal") or look_up(message, "audio.transcript") or content
    if isinstance(content, Mapping) and "parts" not in content and "content" in content:
        content = content["content"]  # LangChain's {"type": ..., "data": {"content": ...}}
    if content is not None and not isinstance(content, str | list | tuple | Mapping):
        raise invalid(f"{place}: its content is {type(content).__name__}, not text or parts")
    said = _read_content(content, role)
    calls = message.get("tool_calls") or message.get("function_call") or ()
    calls = [calls] if isinstance(calls, Mapping | str) else list(calls)
    thought = message.get("reasoning_content") or message.get("reasoning")
    ids = [*said.call_ids, *_ids_of(message), *(id_ for call in calls for id_ in _ids_of(call))]
    yield said._replace(
        calls=[*said.calls, *calls],
        thinking=[*said.thinking, *([thought] if isinstance(thought, str) else [])],
        call_ids=ids,
    )


def _ids_of(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key in ("tool_call_id", "tool_use_id", "call_id", "id"):
            if isinstance(id_ := value.get(key), str) and (key != "id" or "role" not in value):
                yield id_
                return


def _read_content(content: Any, role: Role | str) -> _Said:
    """The text of a turn's content; pictures and the like are named."""
    if isinstance(content, str):
        return _Said(role, content)  # type: ignore[arg-type]
    if isinstance(content, Mapping) and "parts" in content:
        content = content["parts"]
    parts = content if isinstance(content, list | tuple) else [] if content is None else [content]
    pieces: list[str] = []
    calls: list[Any] = []
    results: list[Any] = []
    thinking: list[str] = []
    ids: list[str] = []
    for part in parts:
        kind, text = _read_part(part)
        if kind == "text":
            glue = "\n" if role == "user" and pieces and _touches(pieces[-1], text) else ""
            pieces.append(glue + text)
        elif kind == "name":
            pieces.append(f"\n{text}" if pieces and not pieces[-1].endswith("\n") else text)
        elif kind == "thinking":
            thinking.append(text)
        else:
            (calls if kind == "call" else results).append(part)
            ids += _ids_of(part)
    return _Said(role, "".join(pieces), calls, results, thinking, ids)  # type: ignore[arg-type]


def _touches(before: str, after: str) -> bool:
    return not before[-1:].isspace() and not after[:1].isspace()


def _read_part(part: Any) -> tuple[str, str]:
    """The kind of a part (text, name, thinking, call, result), and its text."""
    if isinstance(part, str):
        return "text", part
    if not isinstance(part, Mapping):
        raise invalid(f"holds {type(part).__name__}, not text")
    kind = str(part.get("type") or "")
    text = next((part[key] for key in ("text", "refusal") if isinstance(part.get(key), str)), None)
    if kind in _THOUGHTS or part.get("thought"):
        thought = part.get("thinking") or part.get("reasoning") or text or ""
        return "thinking", thought if isinstance(thought, str) else ""
    if kind.endswith(("_result", "_output")) and kind != "output_text":
        return "result", ""
    if kind.endswith(("tool_use", "tool_call", "function_call")):
        return "call", ""
    for key, what in _GEMINI_PARTS.items():
        if key in part:
            return what, ""
    if text is not None:
        return "text", text
    if kind == "text" or not part:
        return "text", ""
    if not kind and part.keys().isdisjoint(_FILE_KEYS):
        raise invalid("holds an object without a text")
    return "name", f"[{_media_of(part, kind)}]"


_THOUGHTS = ("thinking", "redacted_thinking", "reasoning", "summary_text")
_FILE_KEYS = tuple(
    "path url file file_id image inlineData inline_data fileData file_data component".split()
)
_GEMINI_PARTS = {
    name: what
    for what, names in {
        "call": ("functionCall", "function_call", "executableCode"),
        "result": ("functionResponse", "function_response", "codeExecutionResult"),
    }.items()
    for name in names
}


def _media_of(part: Mapping[str, Any], kind: str) -> str:
    """Image, audio, video or file, by the part's type, MIME type or the file's name."""
    inner = [value for value in part.values() if isinstance(value, Mapping)]
    hints = [kind, *(str(key) for key in part)]
    for value in (part, *inner):
        for key in ("mime_type", "mimeType", "media_type"):
            hints.append(str(value.get(key) or ""))
        for key in ("path", "url", "fileUri", "file_uri"):
            hints.append(mimetypes.guess_type(str(value.get(key) or ""))[0] or "")
    return next((media for hint in hints for media in _MEDIA if media in hint), "file")


def _check_order(messages: Sequence[Any]) -> None:
    """Raises InvalidSample if the turns have numbers or times, and those go back."""
    first = messages[0]
    if not isinstance(first, Mapping) or len(first) <= 2:
        return
    for key in _ORDER_KEYS:
        values: list[Any] = [turn.get(key) for turn in messages if isinstance(turn, Mapping)]
        are_numbers = all(isinstance(value, int | float) for value in values)
        if not are_numbers and not all(isinstance(v, str) and _DATE.match(v) for v in values):
            continue
        for number, (before, after) in enumerate(pairwise(values), 2):
            if after < before:
                raise invalid(
                    f"turn {number}: out of order, its {key} is {after!r} after {before!r}; "
                    "sort the turns"
                )


def add_conversation(fields: dict[str, Any], of_texts: OfTexts = "") -> None:
    """Puts the conversations among a row's fields (a query, history or response that is no text)
    into our form: the query is the user's last turn, the history what came before, the response
    what came after. `of_texts` says which texts may be one, too. Raises InvalidSample."""
    query, response = fields.get("query"), fields.get("response")
    if type(query) is list and not fields.get("history") and split_plain(query, fields):
        return
    own: list[tuple[str, Conversation]] = []
    if _is_foreign(query, of_texts):
        own.append(("query", _read_field(query, "query")))
    if is_foreign_history(history := fields.get("history")):
        own.append(("history", _read_field(history, "history")))
    if _is_foreign(response, "chats" if of_texts == "strict" else of_texts):
        own.append(("response", _read_field(response, "response")))
    if not own:
        return
    _keep_rest(fields, own)
    said = dict(own)
    turns = [*_history_turns(fields, said), *(said["query"].turns if "query" in said else ())]
    if "query" not in said and isinstance(query, str):
        turns.append({"role": "user", "content": query})
    if answer := said.get("response"):
        if any(turn["role"] == "user" for turn in answer.turns):  # all of it, as in `chosen`
            turns = [*answer.turns]
            del fields["response"]
        elif answer.is_called:
            raise invalid(_NO_ANSWER, "response")
        else:
            fields["response"] = "\n\n".join(turn["content"] for turn in answer.turns)
    if turns:
        _split_turns(fields, turns, own[0][1].is_called)


def _is_foreign(value: Any, of_texts: OfTexts) -> bool:
    if not isinstance(value, str):
        return isinstance(value, list | tuple | Mapping)
    if of_texts in ("", "strict"):
        return of_texts == "strict"
    if of_texts == "json" and value.lstrip()[:1] not in ("[", "{"):
        return False
    return find_messages(value) is not None


def is_foreign_history(history: Any) -> bool:
    """Whether it is no list of our own turns; what is nothing like turns is left to the sample's
    own check."""
    if not history or not isinstance(history, list | tuple | str):
        return False
    return isinstance(history, str) or any(
        type(turn) is not dict
        or turn.keys() != {"role", "content"}
        or turn["role"] not in ("user", "assistant")
        or type(turn["content"]) is not str
        for turn in history
    )


def _read_field(value: Any, name: str) -> Conversation:
    try:
        if (plain := _plain_text(value, name)) is not None:
            return plain
        return conversation_of(value)
    except InvalidSample as error:
        raise invalid(error.faults[0].message, name) from None


def _plain_text(value: Any, name: str) -> Conversation | None:
    """A field's text where it holds one in parts or in an object, and no turns."""
    role = "assistant" if name == "response" else "user"
    if name == "history" or isinstance(value, str) or find_messages(value) is not None:
        return None
    if isinstance(value, Mapping):
        keys = ("content", "text", "answer", "output", "response", "completion", "question",
                "query", "prompt", "input", "message")  # fmt: skip
        inner = next((value[key] for key in keys if value.get(key) is not None), None)
        if isinstance(inner, str) and isinstance(files := value.get("files"), list):  # Gradio's
            inner = [inner, *(file if isinstance(file, dict) else {"path": file} for file in files)]
        if inner is None and not value.keys() & {"parts", "type"}:
            raise invalid("is an object that holds no text and no turns")
        value = value if inner is None else inner
    said = _read_content(value, role)
    return Conversation([{"role": role, "content": said.text}], "", said.calls, said.thinking)


def _history_turns(fields: Mapping[str, Any], said: Mapping[str, Conversation]) -> Turns:
    if "history" in said:
        return said["history"].turns
    return list(fields.get("history") or ())


def _keep_rest(fields: dict[str, Any], own: Sequence[tuple[str, Conversation]]) -> None:
    """Keeps in the metadata what is no turn of the user or the assistant."""
    rest: dict[str, Any] = {
        "system": "\n\n".join(said.system for _, said in own if said.system),
        "tool_messages": [item for _, said in own for item in said.tools],
        "thinking": [text for _, said in own for text in said.thinking],
        "joined_turns": sum(said.n_joined for _, said in own),
    }
    kept = {name: value for name, value in rest.items() if value}
    metadata = fields.get("metadata")
    if kept and isinstance(metadata, dict | None):
        fields["metadata"] = {**kept, **(metadata or {})}


def _split_turns(fields: dict[str, Any], turns: Turns, is_called: bool) -> None:
    last = next((at for at in reversed(range(len(turns))) if turns[at]["role"] == "user"), None)
    if last is None:
        raise invalid("no turn of the user", "query")
    if not turns[last]["content"].strip():
        raise invalid(f"the user's last turn (turn {last + 1}) is empty", "query")
    fields["query"], fields["history"] = turns[last]["content"], turns[:last]
    if not (answers := turns[last + 1 :]):
        if is_called and "response" not in fields:
            raise invalid(_NO_ANSWER, "response")
        return
    text = "\n\n".join(turn["content"] for turn in answers)
    if isinstance(fields.get("response"), str):  # of a column of its own, which counts
        if text != fields["response"]:
            own = fields.get("metadata")
            fields["metadata"] = {**(own or {}), "answer_in_conversation": text}
    else:
        fields["response"] = text
