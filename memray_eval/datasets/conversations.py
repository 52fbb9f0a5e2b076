"""One normal form of a conversation, whoever wrote it down: OpenAI's messages, Anthropic's blocks,
Gemini's contents, ShareGPT's and LangChain's turns, Gradio's pairs, transcripts."""

from __future__ import annotations

import ast
import importlib.resources
import json
import mimetypes
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeAlias

import yaml

from memray_eval.datasets.dotted import look_up
from memray_eval.datasets.parsing import InvalidSample, invalid

Role: TypeAlias = Literal["user", "assistant", "system", "call", "result", "thought"]
_FILE = importlib.resources.files("memray_eval.datasets") / "forms.yaml"
TABLE: Mapping[str, Any] = yaml.safe_load(_FILE.read_text("utf-8"))


def _by_word(name: str) -> Mapping[str, Role]:
    return {word: role for role, words in TABLE[name].items() for word in words.split()}


ROLES, _LABELS = _by_word("roles"), _by_word("labels")
# What may stand under `type`, where a part of a turn may have one as well
_TYPES = frozenset("human ai system tool function_call function_call_output reasoning".split())
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
# Which texts may be conversations: none; a query in JSON; a response in JSON, too; both also as
# transcripts; each query is one
OfTexts: TypeAlias = Literal["", "query", "json", "chats", "strict"]


class _Said(NamedTuple):
    """A turn as it was found: its role, text, and what is no text in it."""

    role: Role
    text: str = ""
    calls: Sequence[Any] = ()
    results: Sequence[Any] = ()
    thinking: Sequence[str] = ()


@dataclass
class Conversation:
    """The turns of the user and the assistant, their text alone; the system prompts; what calls
    tools, is their result, or is thought, as it was; how many turns of the assistant were joined to
    the one before them. One that `is_called` ends with a call, and nothing said after it.

    What the assistant says between two turns of the user is one turn, and what it says before it
    calls a tool is none, if it says something after it."""

    turns: Turns = field(default_factory=list)
    system: list[str] = field(default_factory=list)
    tools: list[Any] = field(default_factory=list)
    thinking: list[str] = field(default_factory=list)
    n_joined: int = 0
    is_called: bool = False
    _said: list[str] = field(default_factory=list)
    _before_call: list[str] = field(default_factory=list)
    _is_answering: bool = False

    def add(self, turn: _Said, raw: Any) -> None:
        """Takes the next turn. Raises InvalidSample for a result without a call."""
        self.thinking += turn.thinking
        if turn.role == "system":
            self.system += [turn.text] if turn.text else []
        elif turn.role == "user" and (turn.text.strip() or not turn.results):
            self.end_answer()
            self.tools += turn.results
            self.turns.append({"role": "user", "content": turn.text})
        elif turn.role == "assistant":
            self._is_answering, self.is_called = True, False
            self._said += [turn.text] if turn.text.strip() or not turn.calls else []
            self.tools += turn.results
            if turn.calls:
                self._call(turn.calls)
        elif turn.role != "thought":
            if turn.role != "call" and not self._is_answering:
                raise invalid("a tool's result without a call before it")
            self._call(turn.results or [raw])

    def _call(self, messages: Sequence[Any]) -> None:
        self._is_answering = self.is_called = True
        self._before_call += self._said
        self._said = []
        self.tools += messages

    def end_answer(self) -> None:
        """Ends the assistant's turn, if it has begun one."""
        if self._is_answering:
            self.is_called = self.is_called and not self._said
            texts = [text for text in self._said or self._before_call if text.strip()]
            if texts or self._said:
                self.turns.append({"role": "assistant", "content": "\n\n".join(texts)})
            self.n_joined += max(0, len(texts) - 1)
        self._said, self._before_call, self._is_answering = [], [], False


def conversation_of(raw: Any) -> Conversation:
    """The conversation that a value is: a list of turns or pairs, an object with one, their JSON,
    or a transcript. Raises InvalidSample that says which turn is wrong and why."""
    messages = find_messages(raw)
    if messages is None:
        each = raw if isinstance(raw, list | tuple) else ()
        odd = next((number for number, turn in enumerate(each, 1) if not _is_turn(turn)), 0)
        which = f"; turn {odd} has no role that is known" if odd else ""
        raise invalid(f"holds no conversation: no list of turns, no transcript{which}")
    found = Conversation()
    if isinstance(raw, Mapping):
        for name in ("system", "system_instruction", "systemInstruction", "instructions"):
            if raw.get(name):
                found.system.append(_read_content(raw[name], "system").text)
    _check_order(messages)
    for number, message in enumerate(messages, 1):
        try:
            for turn in _read_turns(message):
                found.add(turn, message)
        except InvalidSample as error:
            raise invalid(f"turn {number}: {error}") from None
    found.end_answer()
    return found


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
    """Whether it is an object with a role, or a pair of question and answer."""
    if isinstance(turn, Mapping):
        return _role_of(turn) is not None
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


def _read_turns(message: Any) -> Iterator[_Said]:
    if not isinstance(message, Mapping):  # a pair
        sides: tuple[Role, Role] = ("user", "assistant")
        for who, side in zip(sides, message, strict=True):
            if isinstance(side, list | tuple) and side and isinstance(side[0], str):
                yield _read_content({"path": side[0]}, who)  # Gradio's file and its name
            elif side is not None:
                yield _read_content(side, who)
        return
    role = _role_of(message)
    assert role is not None
    content = next((message[key] for key in _TEXT_KEYS if key in message), None)
    if not content:  # a refusal, or what was spoken
        content = look_up(message, "refusal") or look_up(message, "audio.transcript") or content
    if isinstance(content, Mapping) and "parts" not in content and "content" in content:
        content = content["content"]  # LangChain's {"type": ..., "data": {"content": ...}}
    if content is not None and not isinstance(content, str | list | tuple | Mapping):
        raise invalid(f"its content is {type(content).__name__}, not text or parts")
    said = _read_content(content, role)
    calls = message.get("tool_calls") or message.get("function_call") or []
    calls = calls if isinstance(calls, list) else [calls]
    thought = message.get("reasoning_content") or message.get("reasoning")
    thinking = [*said.thinking, *([thought] if isinstance(thought, str) else [])]
    yield said._replace(calls=[*said.calls, *calls], thinking=thinking)


def _read_content(content: Any, role: Role) -> _Said:
    """The text of a turn's content; pictures and the like are named."""
    if isinstance(content, str):
        return _Said(role, content)
    if isinstance(content, Mapping) and "parts" in content:
        content = content["parts"]
    parts = content if isinstance(content, list | tuple) else [] if content is None else [content]
    text, kept = "", dict[str, list[Any]](call=[], result=[], thinking=[])
    for part in parts:
        kind, said = _read_part(part)
        if kind in kept:
            kept[kind].append(said if kind == "thinking" else part)
            continue
        is_apart = kind == "name" or role == "user"
        touches = text and not text[-1].isspace() and not said[:1].isspace()
        text += f"\n{said}" if is_apart and touches else said
    return _Said(role, text, kept["call"], kept["result"], kept["thinking"])


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
    for what, keys in _GEMINI_PARTS.items():
        if not part.keys().isdisjoint(keys):
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
    "call": ("functionCall", "function_call", "executableCode"),
    "result": ("functionResponse", "function_response", "codeExecutionResult"),
}


def _media_of(part: Mapping[str, Any], kind: str) -> str:
    """Image, audio, video or file, by the part's type, keys, MIME type or the file's name."""
    inner = [value for value in part.values() if isinstance(value, Mapping)]
    values = [value for each in (part, *inner) for value in each.values() if isinstance(value, str)]
    guessed = (mimetypes.guess_type(value)[0] or value[:40] for value in values if len(value) < 999)
    hints = (kind, *map(str, part), *guessed)
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
    query, history, response = fields.get("query"), fields.get("history"), fields.get("response")
    if type(query) is list and not history and split_plain(query, fields):
        return
    of_response: OfTexts = of_texts if of_texts in ("json", "chats") else ""
    foreign = ["query"] if _is_foreign(query, of_texts) else []
    if history and is_foreign_history(history):
        foreign.append("history")
    if response is not None and _is_foreign(response, of_response):
        foreign.append("response")
    if not foreign:  # as most are
        return
    own = [(name, _read_field(fields[name], name)) for name in foreign]
    _keep_rest(fields, own)
    said = dict(own)
    if "history" not in said and not isinstance(history, list | tuple | None):
        raise invalid(f"must be a list of turns, not {type(history).__name__}", "history")
    turns = [*(said["history"].turns if "history" in said else history or ())]
    if "query" in said:
        turns += said["query"].turns
    elif isinstance(query, str):
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
    if of_texts != "chats" and value.lstrip()[:1] not in ("[", "{"):
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
    role: Role = "assistant" if name == "response" else "user"
    if name == "history" or isinstance(value, str) or find_messages(value) is not None:
        return None
    if isinstance(value, list | tuple):
        if any(map(_is_turn, value)):
            return None
        if len(value) > 1 and all(isinstance(text, str) for text in value):
            raise invalid(f"is a list of {len(value)} texts; give each a row")
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
    turns = [{"role": role, "content": said.text}]
    return Conversation(turns, tools=[*said.calls], thinking=[*said.thinking])


def _keep_rest(fields: dict[str, Any], own: Sequence[tuple[str, Conversation]]) -> None:
    """Keeps in the metadata what is no turn of the user or the assistant."""
    rest: dict[str, Any] = {
        "system": "\n\n".join(text for _, said in own for text in said.system),
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
