"""One normal form of a conversation, whoever wrote it down: OpenAI's messages, Anthropic's blocks,
Gemini's contents, ShareGPT's and LangChain's turns, Gradio's pairs, transcripts."""

import mimetypes
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeAlias

from memray_eval.datasets.fields import NAMES, TABLE, likely_columns, words_of
from memray_eval.datasets.parsing import (
    MISSING,
    Answers,
    InvalidSample,
    find_at,
    invalid,
    look_up,
    parse_printed,
)
from memray_eval.types.samples import NOT_SHOWN, is_plain_turn

Role: TypeAlias = Literal["user", "assistant", "system", "call", "result", "thought"]


def _by_word(name: str) -> Mapping[str, Role]:
    return {word: role for role, words in TABLE[name].items() for word in words.split()}


ROLES, _LABELS = _by_word("roles"), _by_word("labels")
_LABEL = re.compile(
    r"(?:^[ \t]*(?:#{2,4} *|> *|\[[^\]\n]{1,30}\] *)?|### )(?:\*\*|__)?("
    + "|".join(sorted(_LABELS, key=len, reverse=True))
    + r")(?: *\([^)\n]{1,30}\))?(?:\*\*|__)? ?[:\uff1a](?:\*\*|__)?[ \t]*",
    re.IGNORECASE | re.MULTILINE,
)
_CHATML = re.compile(r"<\|im_start\|>(\w+)\r?\n(.*?)(?:<\|im_end\|>|\Z)", re.DOTALL)
_VERSION = re.compile(r"[-_ .]?\d.*")  # of gpt-4, in a role
_ROLE_KEYS, _ROLE_TYPES = words_of("role_keys"), words_of("role_types")
_TEXT_KEYS, _SYSTEM_KEYS = words_of("text_keys"), words_of("system_keys")
TURNS_KEYS = words_of("turns_keys")
_ORDER_KEYS, _CALL_IDS, _RESULT_IDS = map(words_of, ("order_keys", "call_ids", "result_ids"))
_THOUGHTS, _FILE_KEYS = words_of("thoughts"), words_of("file_keys")
_CALL_PARTS, _RESULT_PARTS = words_of("call_parts"), words_of("result_parts")
_REPLIES = words_of("reply")
_IS_FILE = re.compile("|".join(words_of("file_types")))
_DATE = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:")
_NO_ANSWER = "ends with a call of a tool, and no answer"
Turns: TypeAlias = list[dict[str, str]]
# Which texts may be conversations: none; a query in JSON; or as a transcript, too; a query and a
# response in JSON; both also as transcripts; each query is one
OfTexts: TypeAlias = Literal["", "query", "transcript", "json", "chats", "strict"]
_MEDIA = {"image": "pictures", "audio": "recordings", "video": "videos"}
# How lists of what is no turn become the metadata's value, where it is no list
_MERGED: Mapping[str, Callable[[list[Any]], Any]] = {"system": "\n\n".join, "joined_turns": sum}


class _Turn(NamedTuple):
    """A turn as it was written: its role, text, and what is no text in it."""

    role: Role
    text: str = ""
    calls: Sequence[Any] = ()
    results: Sequence[Any] = ()
    thinking: Sequence[str] = ()
    files: Sequence[str] = ()


@dataclass
class Conversation:
    """The turns of the user and the assistant, their text alone, and the `rest`, for the metadata.
    What the assistant writes between two turns of the user is one turn, without what comes before a
    call of a tool, if there is text after it; else it `is_called`."""

    turns: Turns = field(default_factory=list)
    rest: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))
    is_called: bool = False
    _call_ids: set[str] = field(default_factory=set)
    _texts: list[str] = field(default_factory=list)
    _before_call: list[str] = field(default_factory=list)
    _is_answering: bool = False

    def add(self, turn: _Turn, raw: Any) -> None:
        """Takes the next turn. Raises InvalidSample for a result without its call."""
        self.rest["thinking"] += turn.thinking
        self.rest[NOT_SHOWN] += turn.files
        if turn.role == "system":
            self.rest["system"] += [turn.text] if turn.text else []
        elif turn.role == "user" and (turn.text.strip() or not turn.results):
            self._add_results(turn.results)
            self.end_answer()
            self.turns.append({"role": "user", "content": turn.text})
        elif turn.role == "assistant":
            self._is_answering, self.is_called = True, False
            self._texts += [turn.text] if turn.text.strip() or not turn.calls else []
            if turn.calls:
                self._add_calls(turn.calls)
            self._add_results(turn.results)
        elif turn.role == "call":
            self._add_calls([raw])
        elif turn.role != "thought":
            self._add_results(turn.results or [raw])
            self._add_calls(())

    def _add_calls(self, calls: Sequence[Any]) -> None:
        self._is_answering = self.is_called = True
        self._before_call += self._texts
        self._texts = []
        self._call_ids.update(*(_ids_in(call, _CALL_IDS) for call in calls))
        self.rest["tool_messages"] += calls

    def _add_results(self, results: Sequence[Any]) -> None:
        if results and not self._is_answering:
            raise invalid("a tool's result without a call before it")
        for result in results:
            name = next(iter(_ids_in(result, _RESULT_IDS)), "")
            if name and self._call_ids and name not in self._call_ids:
                raise invalid(f"a tool's result for the call {name!r}, and no call has that id")
        self.rest["tool_messages"] += results

    def end_answer(self) -> None:
        """Ends the assistant's turn, if it has begun one."""
        if self._is_answering:
            self.is_called = self.is_called and not self._texts
            before = [text for text in self._before_call if text.strip()]
            texts = [text for text in self._texts if text.strip()] or before
            if texts or self._texts:
                self.turns.append({"role": "assistant", "content": "\n\n".join(texts)})
            self.rest["before_tools"] += before if texts is not before else []
            self.rest["joined_turns"].append(max(0, len(texts) - 1))
        self._texts, self._before_call, self._is_answering = [], [], False


def _ids_in(item: Any, keys: Sequence[str]) -> list[str]:
    values = (item.get(key) for key in keys if isinstance(item, Mapping))
    return [value for value in values if isinstance(value, str)]


def _conversation_of(raw: Any, messages: Sequence[Any] | None) -> Conversation:
    """The conversation that a value is. Raises InvalidSample that says which turn is wrong."""
    if messages is None:
        items = raw if isinstance(raw, list | tuple) else ()
        odd = next((number for number, turn in enumerate(items, 1) if not _is_turn(turn)), 0)
        which = f"; turn {odd} has no role that is known" if odd else ""
        raise invalid(f"holds no conversation: no list of turns, no transcript{which}")
    conversation = Conversation()
    if isinstance(raw, Mapping):
        systems = (raw[name] for name in _SYSTEM_KEYS if raw.get(name))
        conversation.rest["system"] += [_read_content(text, "system").text for text in systems]
    _check_order(messages)
    for number, message in enumerate(map(_unwrapped, messages), 1):
        try:
            for turn in _read_turns(message):
                conversation.add(turn, message)
        except InvalidSample as error:
            raise invalid(f"turn {number}: {error}") from None
    conversation.end_answer()
    return conversation


def _split_plain(messages: list[Any], fields: dict[str, Any]) -> bool:
    """Puts a conversation among the fields if it is plain, as most are; else it returns False."""
    first: Any = messages[0] if messages else None
    begin = 1 if type(first) is dict and first.get("role") == "system" else 0
    for at, turn in enumerate(messages, -begin):
        role = ("user", "assistant")[at % 2] if at >= 0 else "system"
        if type(turn) is not dict or len(turn) != 2 or turn.get("role") != role:
            return False
        if type(turn.get("content")) is not str:
            return False
    last = len(messages) - 2 + (len(messages) - begin) % 2
    if last < begin or not messages[last]["content"].strip() or "response" in fields:
        return False
    if begin and first["content"]:
        if not isinstance(metadata := fields.get("metadata"), dict | None):
            return False
        fields["metadata"] = {"system": first["content"], **(metadata or {})}
    fields["history"], fields["query"] = messages[begin:last], messages[last]["content"]
    if last + 1 < len(messages):
        fields["response"] = messages[last + 1]["content"]
    return True


def find_messages(raw: Any) -> Sequence[Any] | None:
    """The turns that a value holds, if any; a text is looked at as JSON and as a transcript."""
    if isinstance(raw, list | tuple) and len(raw) == 1 and isinstance(raw[0], str):
        raw = raw[0]
    raw = _unwrapped(raw)
    if isinstance(raw, str):
        try:
            return find_messages(parse_printed(raw)[0])
        except ValueError:
            return read_transcript(raw)
    if isinstance(raw, Mapping):
        if role_of(raw) is not None:
            return [raw]
        key = next((name for name in (*TURNS_KEYS, "input") if name in raw), "")
        inner: Any = raw.get(key)
        is_batch = isinstance(inner, list) and len(inner) == 1 and isinstance(inner[0], list)
        return find_messages(inner) or (find_messages(inner[0]) if is_batch else None)
    is_list = isinstance(raw, list | tuple) and len(raw) > 0 and all(map(_is_turn, raw))
    return raw if is_list else None


def _unwrapped(value: Any) -> Any:
    """What `dumpd` of langchain_core keeps of an object; any other value as it is."""
    if not isinstance(value, Mapping) or value.get("lc") != 1:
        return value
    kept, names = value.get("kwargs"), value.get("id")
    if not isinstance(kept, Mapping) or not isinstance(names, list) or not names:
        return value
    kind, is_message, _ = str(names[-1]).partition("Message")  # AIMessageChunk, too
    return {**kept, "type": kind.lower()} if is_message else kept


def read_transcript(text: str) -> list[dict[str, str]] | None:
    """The turns of ChatML, or of a text in which each begins with its speaker, if any."""
    if blocks := _CHATML.findall(text):
        turns = [
            {"role": role, "content": content.strip()}
            for role, content in blocks
            if content.strip() or role != "assistant"  # a prompt's last line
        ]
        return turns if all(role in ROLES for role, _ in blocks) else None
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


def is_transcript(value: Any, is_answered: bool) -> bool:
    """Whether a text is a transcript to its end, that of the user if its answer is elsewhere; one
    that ends with a label is a prompt."""
    if not isinstance(value, str) or not is_conversation(value):
        return False
    last = (read_transcript(value) or [{}])[-1]
    return bool(last.get("content")) and (last["role"] == "user" or not is_answered)


def _is_turn(turn: Any) -> bool:
    return (isinstance(turn, Mapping) and role_of(turn) is not None) or _pair_of(turn) is not None


def _pair_of(turn: Any) -> Sequence[tuple[Role, Any]] | None:
    """The sides of a question and its answer: two in a list, or two texts under their roles."""
    if isinstance(turn, Mapping):
        if len(turn) > 3:
            return None
        sides = [(ROLES.get(str(key).lower(), "thought"), side) for key, side in turn.items()]
        roles = {role for role, _ in sides}
        is_pair = {"user", "assistant"} <= roles <= {"user", "assistant", "system"}
        return sides if is_pair and all(isinstance(side, str) for _, side in sides) else None
    if not isinstance(turn, list | tuple) or len(turn) != 2:
        return None
    are_sides = all(isinstance(side, str | list | tuple | dict | None) for side in turn)
    has_text = any(isinstance(side, str) for side in turn) or (None in turn and any(turn))
    return [("user", turn[0]), ("assistant", turn[1])] if are_sides and has_text else None


def role_of(turn: Mapping[str, Any]) -> Role | None:
    """Who speaks in an object of one turn; None if it is none."""
    turn = _unwrapped(turn)
    for key in _ROLE_KEYS:
        word = turn.get(key)
        if isinstance(word, Mapping):  # {"author": {"role": ...}}
            word = word.get("role")
        if isinstance(word, str) and (role := ROLES.get(_VERSION.sub("", word.lower()))):
            return role if key != "type" or word in _ROLE_TYPES else None
    return "user" if turn.keys() == {"parts"} else None  # Gemini's need not say it


def _read_turns(message: Any) -> Iterator[_Turn]:
    role = role_of(message) if isinstance(message, Mapping) else None
    if role is None:
        for who, side in _pair_of(message) or ():
            if isinstance(side, list | tuple) and side and isinstance(side[0], str):
                yield _read_content({"path": side[0]}, who)  # Gradio's file and its name
            elif side is not None:
                yield _read_content(side, who)
        return
    content = next((message[key] for key in _TEXT_KEYS if key in message), None)
    if not content:  # a refusal, or what was spoken
        content = look_up(message, "refusal") or look_up(message, "audio.transcript") or content
    if isinstance(content, Mapping) and "parts" not in content:
        # LangChain's {"type": ..., "data": {"content": ...}}, Arena-Hard's {"answer": ...}
        content = content.get("content", content.get("answer", content))
    if content is not None and not isinstance(content, str | list | tuple | Mapping):
        raise invalid(f"its content is {type(content).__name__}, not text or parts")
    turn = _read_content(content, role)
    calls = message.get("tool_calls") or message.get("function_call") or []
    calls = calls if isinstance(calls, list) else [calls]
    thought = message.get("reasoning_content") or message.get("reasoning")
    thinking = [*turn.thinking, *([thought] if isinstance(thought, str) else [])]
    yield turn._replace(calls=[*turn.calls, *calls], thinking=thinking)


def _read_content(content: Any, role: Role) -> _Turn:
    """The text of a turn's content; pictures and the like are named."""
    if isinstance(content, str):
        return _Turn(role, content)
    if isinstance(content, Mapping) and "parts" in content:
        content = content["parts"]
    parts = content if isinstance(content, list | tuple) else [] if content is None else [content]
    text, kept = "", dict[str, list[Any]](call=[], result=[], thinking=[], name=[])
    for part in parts:
        kind, part_text = _read_part(part, role)
        if kind == "name":
            kept[kind].append(_MEDIA.get(part_text.strip("[]"), "files"))
        elif kind in kept:
            kept[kind].append(part_text if kind == "thinking" else part)
            continue
        is_apart = kind == "name" or role == "user"
        touches = text and not text[-1].isspace() and not part_text[:1].isspace()
        text += f"\n{part_text}" if is_apart and touches else part_text
    return _Turn(role, text, *kept.values())


def text_of(content: Any) -> str:
    """The text of a system prompt, also in parts."""
    try:
        return _read_content(content, "system").text
    except InvalidSample:
        return ""


def _read_part(part: Any, role: Role) -> tuple[str, str]:
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
    is_result = kind.endswith(("_result", "_output")) and kind != "output_text"
    if is_result or not part.keys().isdisjoint(_RESULT_PARTS):
        return "result", ""
    is_call = kind.endswith(("tool_use", "tool_call", "function_call"))
    if is_call or not part.keys().isdisjoint(_CALL_PARTS):
        return "call", ""
    is_asked = role == "user" and kind != ""
    is_file = is_asked or _IS_FILE.search(kind) or not part.keys().isdisjoint(_FILE_KEYS)
    is_bare = not is_file and part.keys() <= {"type"}  # a step's start
    if text is not None or kind == "text" or is_bare:
        return "text", text or ""
    if not is_file:
        raise invalid("holds an object without a text")
    return "name", f"[{_media_of(part, kind)}]"


def _media_of(part: Mapping[str, Any], kind: str) -> str:
    """Image, audio, video or file, by the part's type, keys, MIME type or the file's name."""
    objects = [part, *(value for value in part.values() if isinstance(value, Mapping))]
    texts = [text for item in objects for text in item.values() if isinstance(text, str)]
    guessed = (mimetypes.guess_type(text)[0] or text[:40] for text in texts if len(text) < 999)
    hints, media = (kind, *map(str, part), *guessed), ("image", "audio", "video")
    return next((name for hint in hints for name in media if name in hint), "file")


def _check_order(messages: Sequence[Any]) -> None:
    """Raises InvalidSample if the turns have numbers or times, and those go back."""
    first = messages[0]
    for key in _ORDER_KEYS if isinstance(first, Mapping) and len(first) > 2 else ():
        values: list[Any] = [turn.get(key) for turn in messages if isinstance(turn, Mapping)]
        are_dates = all(isinstance(value, str) and _DATE.match(value) for value in values)
        if not are_dates and not all(isinstance(value, int | float) for value in values):
            continue
        for number, (before, after) in enumerate(pairwise(values), 2):
            if after < before:
                how = f"its {key} is {after!r} after {before!r}; sort the turns"
                raise invalid(f"turn {number}: out of order, {how}")


def add_conversation(
    fields: dict[str, Any], of_texts: OfTexts = "", has_column: bool = False
) -> None:
    """Puts the conversations among a row's fields into our form: the query is the user's last turn,
    history and response what is before and after; several responses are a list of texts. `of_texts`
    says which texts may be conversations, too. If the response `has_column`, a conversation's own
    answer is none. Raises InvalidSample."""
    query, history, response = (fields.get(name) for name in ("query", "history", "response"))
    if type(query) is list and not (history or has_column) and _split_plain(query, fields):
        return
    if error := _failure_in(response):
        fields["response"] = response = None
        fields["error"] = error
    if answers := _answers_of(response):
        fields["response"] = answers
    of_response: OfTexts = of_texts if of_texts in ("json", "chats") else ""
    is_answer = response is not None and not answers and _is_foreign(response, of_response)
    foreign = [
        *(["query"] if _is_foreign(query, of_texts) else ()),
        *(["history"] if history and is_foreign_history(history) else ()),
        *(["response"] if is_answer else ()),
    ]
    if not foreign:  # as most are
        return
    parts = {name: _read_field(fields[name], name) for name in foreign}
    _keep_rest(fields, parts.values())
    if "history" not in parts and not isinstance(history, list | tuple | None):
        raise invalid(f"must be a list of turns, not {type(history).__name__}", "history")
    turns = [*(parts["history"].turns if "history" in parts else history or ())]
    if "query" in parts:
        turns += parts["query"].turns
    elif isinstance(query, str):
        turns.append({"role": "user", "content": query})
    if answer := parts.get("response"):
        if any(turn["role"] == "user" for turn in answer.turns):  # all of it, as in `chosen`
            turns, has_column = [*answer.turns], False
            del fields["response"]
        elif answer.is_called:
            raise invalid(_NO_ANSWER, "response")
        else:
            fields["response"] = _join_turns(answer.turns)
    if turns:
        _split_turns(fields, turns, next(iter(parts.values())).is_called, has_column)


def _failure_in(response: Any) -> Any:
    """The error of an API's reply that is nothing else."""
    if not isinstance(response, Mapping):
        return None
    if "error" in (response.get("type"), response.get("object")):  # Anthropic's, vLLM's
        return response.get("error") or response.get("message")
    error = response.get("error") or look_up(response, "body.error")
    return None if said_in(response) or find_messages(response) else error


def _answers_of(response: Any) -> list[str]:
    """The texts of several answers; none if it is one answer."""
    if not isinstance(response, list) or len(response) < 2:
        return []
    if type(response) is Answers or all(look_up(item, "message") for item in response):
        read = (_read_field(item, "response") for item in response)
        return [_join_turns(answer.turns) for answer in read]
    return response if all(isinstance(text, str) for text in response) else []


def _join_turns(turns: Turns) -> str:
    return "\n\n".join(turn["content"] for turn in turns)


def _is_foreign(value: Any, of_texts: OfTexts) -> bool:
    if not isinstance(value, str):
        return isinstance(value, list | tuple | Mapping)
    if of_texts in ("", "strict"):
        return of_texts == "strict"
    if of_texts not in ("transcript", "chats") and not value.lstrip().startswith(
        ("[", "{", "<|im_start|>")
    ):
        return False
    return find_messages(value) is not None


def is_foreign_history(history: Any) -> bool:
    """Returns True if it may be turns, and is no list of our own."""
    if not history or not isinstance(history, list | tuple | str):
        return False
    return isinstance(history, str) or not all(map(is_plain_turn, history))


def _read_field(value: Any, name: str) -> Conversation:
    try:
        value = _unwrapped(value)
        messages = find_messages(value)
        if messages is None and (plain := _plain_text(value, name)) is not None:
            return plain
        return _conversation_of(value, messages)
    except InvalidSample as error:
        raise invalid(error.faults[0].message, name) from None


def _plain_text(value: Any, name: str) -> Conversation | None:
    """A field's text where it is plain, or in parts or in an object, and no turns."""
    role: Role = "assistant" if name == "response" else "user"
    is_other_text = isinstance(value, str) and name != "response"
    if name == "history" or is_other_text:
        return None
    if isinstance(value, list | tuple) and any(map(_is_turn, value)):
        return None
    if isinstance(value, list) and len(value) > 1 and all(isinstance(v, str) for v in value):
        raise invalid(f"is a list of {len(value)} texts; give each a row")
    for path in ("0.generated_text", "0.message"):  # a Hugging Face pipeline's, an API's choices
        value = value if (text := find_at(value, path)) is MISSING else text
    if isinstance(value, Mapping):
        inner = said_in(value, name)
        if isinstance(inner, str) and isinstance(files := value.get("files"), list):  # Gradio's
            inner = [inner, *(file if isinstance(file, dict) else {"path": file} for file in files)]
        if inner is None and not value.keys() & {"parts", "type"}:
            raise invalid("is an object that holds no text and no turns")
        if isinstance(inner, Mapping | list):
            return _read_field(inner, name)
        value = value if inner is None else inner
    turn = _read_content(value, role)
    rest = {"tool_messages": [*turn.calls], "thinking": [*turn.thinking]}
    rest[NOT_SHOWN] = [*turn.files]
    is_called = bool(turn.calls) and not turn.text.strip()
    return Conversation([{"role": role, "content": turn.text}], defaultdict(list, rest), is_called)


def said_in(value: Mapping[str, Any], name: str = "") -> Any:
    """What an object holds by the likeliest name of a text or a message, also by those of the field
    `name`, or as its only text; None without one."""
    names = (*NAMES[name], *likely_columns(name, value)) if name else ()
    paths = (*names, *_REPLIES) if name == "query" else (*_REPLIES, *names)
    paths = (*paths, *value) if name and len(value) == 1 else paths
    return next((found for path in paths if (found := look_up(value, path)) is not None), None)


def _keep_rest(fields: dict[str, Any], parts: Iterable[Conversation]) -> None:
    """Keeps in the metadata what is no turn of the user or the assistant."""
    rest: dict[str, list[Any]] = defaultdict(list)
    for part in parts:
        for name, items in part.rest.items():
            rest[name] += items
    kept = {name: _MERGED.get(name, list)(items) for name, items in rest.items()}
    kept = {name: value for name, value in kept.items() if value}
    metadata = fields.get("metadata")
    if kept and isinstance(metadata, dict | None):
        fields["metadata"] = {**kept, **(metadata or {})}


def _split_turns(fields: dict[str, Any], turns: Turns, is_called: bool, has_column: bool) -> None:
    last = next((at for at in reversed(range(len(turns))) if turns[at]["role"] == "user"), None)
    if last is None:
        raise invalid("no turn of the user", "query")
    if not turns[last]["content"].strip():
        raise invalid(f"the user's last turn (turn {last + 1}) is empty", "query")
    fields["query"], fields["history"] = turns[last]["content"], turns[:last]
    answers = turns[last + 1 :]
    if not answers and is_called and "response" not in fields:
        raise invalid(_NO_ANSWER, "response")
    if not answers:
        return
    text = _join_turns(answers)
    if has_column or isinstance(fields.get("response"), str | list):  # its own, which counts
        if text != fields.setdefault("response", None):
            own = fields.get("metadata")
            fields["metadata"] = {**(own or {}), "answer_in_conversation": text}
    else:
        fields["response"] = text
