"""Reads entries out of JSON: a folder of sample.json files, a JSONL, one combined JSON."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain, islice
from typing import Any, BinaryIO, cast

import ijson

from memray_eval.datasets.conversations import TURNS_KEYS, is_conversation, role_of
from memray_eval.datasets.fields import NAMES, ROW_NAMES, TEXT_FIELDS, likely_columns, plain_name
from memray_eval.datasets.parsing import (
    SAVE_SO,
    InvalidSample,
    Nesting,
    invalid,
    json_or_fault,
    look_up,
    parse_json,
)
from memray_eval.datasets.shards import Entry, Kind, Shard
from memray_eval.errors import reason_of
from memray_eval.storage.paths import DamagedFile, locate, open_reader
from memray_eval.types import Sample

# Where an object has the list of its rows; in files of our own, and in others'
OUR_KEYS = ("samples", "results", "responses")
LIST_KEYS = (
    *(*OUR_KEYS, "data", "rows", "items", "examples", "output_items"),
    *("results.results", "testCases", "test_cases", "test_results", "conversationalTestCases"),
    *("conversations", "chats", "dialogs", "item_results", "traces", "observations"),
)
_ROW_NAMES = {*TEXT_FIELDS, *ROW_NAMES["query"], *ROW_NAMES["answers"]}
_FIELDS = _ROW_NAMES.union(Sample.model_fields, TURNS_KEYS)
_ASKING = {*NAMES["query"], *TURNS_KEYS} - {"items", "questions", "queries", "prompts"}
EVENTS_HEAD = {"spec"}  # the keys of the first line of a log of OpenAI Evals
_DEPTH = 4  # of objects that hold lists of rows
_TURN_KEYS = ("role", "from", "speaker", "type")
_TEXT_OR_NAN = re.compile(rb'("(?:[^"\\]|\\.)*(?:"|\Z))|NaN', re.DOTALL)


class GuardedJson:
    """Guards ijson against nesting and long numbers: `read` raises JSONError. NaN is null."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._nesting = file, Nesting()

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        while size > 0 and data.endswith((b"N", b"Na")) and (more := self._file.read(1)):
            data += more
        begin = self._nesting.open_text
        try:
            self._nesting.feed(data)
        except InvalidSample as error:
            raise ijson.JSONError(str(error).removeprefix("broken JSON: ")) from None
        if b"NaN" not in data:
            return data
        whole = _TEXT_OR_NAN.sub(lambda match: match[1] or b"null", begin + data)
        return whole[len(begin) :]


def _items(file: BinaryIO, prefix: str, is_several: bool = False) -> Iterator[Any]:
    """The items of a list. Raises InvalidSample soon before one with a key twice, for ijson reads
    ahead."""
    faults: list[str] = []

    class Once(dict[str, Any]):
        def __setitem__(self, key: str, value: Any) -> None:
            if key in self:  # ijson lets nothing be raised here
                begin = f"{dict(self)}"[:60]
                faults.append(f"{key!r} is twice in the object {begin}...; keep one of its values")
            super().__setitem__(key, value)

    items = ijson.items(
        GuardedJson(file), prefix, multiple_values=is_several, use_float=True, map_type=Once
    )
    for item in items:
        if faults:
            raise invalid(faults[0])
        yield item


def rows_of(open_file: Callable[[], BinaryIO], is_published: bool = False) -> Iterator[Any]:
    """The rows of a document, a list as a stream; of a published one, its items, whose questions
    its benchmark reads. Raises what ijson does, and InvalidSample."""
    with open_file() as file:
        prefix = _find_list(file)
    with open_file() as file:
        if prefix == "":  # several objects, one after the other
            items = _items(file, "", is_several=True)
            first = next(items)
            is_log = isinstance(first, Mapping) and first.keys() == EVENTS_HEAD
            yield from _rows_of_events(items) if is_log else chain([first], items)
            return
        if prefix is None:
            yield from _rows_of_object(parse_json(file.read()))
            return
        items = _items(file, prefix)
        first = list(islice(items, 1))
        if prefix == "item" and first and isinstance(first[0], Mapping) and role_of(first[0]):
            yield {"messages": [*first, *items]}
            return
        for item in chain(first, items):
            yield from _rows_of_item(item, is_published)


def _rows_of_events(events: Iterable[Any]) -> Iterator[Any]:
    """The samples of a log of OpenAI Evals: what was asked, answered and right."""
    rows: dict[str, dict[str, Any]] = {}
    for event in events:
        name, data = look_up(event, "sample_id"), look_up(event, "data")
        if name and isinstance(data, Mapping):
            new = {key: data[key] for key in ("prompt", "sampled", "expected") if key in data}
            rows[str(name)] = {"id": name, **new, **rows.get(str(name), {})}
    yield from (row for row in rows.values() if "prompt" in row)


def _find_list(file: BinaryIO) -> str | None:
    """Where the document's list is; None for an object without one, "" for several objects."""
    at, n_whole, other = "", 0, None
    try:
        for prefix, event, value in ijson.parse(GuardedJson(file), multiple_values=True):
            n_whole += prefix == "" and event == "end_map"
            if n_whole and event == "start_map":
                return ""
            if prefix == "" and event == "start_array":
                return "item"
            if at and prefix == f"{at}.item" and event == "map_key":
                if at in OUR_KEYS:
                    return f"{at}.item"
                if other is None and (at != "conversations" or value not in _TURN_KEYS):
                    other = f"{at}.item"
                at = ""
            elif at and prefix != f"{at}.item":
                at = ""
            if event == "start_array" and prefix in LIST_KEYS:
                at = prefix
    except (ijson.JSONError, UnicodeDecodeError, DamagedFile):
        return other or "item"
    return other


def _rows_of_item(item: Any, is_published: bool = False) -> Iterator[Any]:
    if not isinstance(item, Mapping):
        yield item
    elif isinstance(item.get("paragraphs"), list):
        for paragraph in item["paragraphs"]:
            yield from _rows_of_paragraph(paragraph, item)
    elif rows := [
        row
        for row in _rows_within(item if is_published else item.get("qa", item), 1)
        if likely_columns("response", row) or ("qa" not in item and row.keys() & TEXT_FIELDS)
    ]:  # at `qa` in LoCoMo, beside the conversation
        yield from rows
    else:  # of the hub's viewer: {"row_idx": 0, "row": {...}}
        yield item["row"] if isinstance(item.get("row"), Mapping) and "row_idx" in item else item


def _rows_of_paragraph(paragraph: Any, item: Mapping[str, Any]) -> Iterator[Any]:
    """The questions of a paragraph of SQuAD's, each with its context."""
    questions = paragraph.get("qas") if isinstance(paragraph, Mapping) else None
    if not isinstance(questions, list):
        raise invalid("a paragraph without `qas`, the list of its questions")
    shared = {"context": paragraph.get("context"), "title": item.get("title")}
    for question in questions:
        if not isinstance(question, Mapping):
            raise invalid("a question of `qas` is no object")
        answers = question.get("answers")
        if isinstance(answers, list) and all(isinstance(item, Mapping) for item in answers):
            texts = dict.fromkeys(str(item.get("text", "")) for item in answers)
            question = {**question, "answers": list(texts)}
        yield {name: value for name, value in shared.items() if value} | question


def _rows_of_object(whole: Any) -> Iterator[Any]:
    """The rows of an object without a list of them."""
    if not isinstance(whole, Mapping) or not whole:
        raise invalid("holds no samples; it must be a list of samples, or an object with the list")
    name, inner = next(iter(whole.items()))
    if len(whole) == 1 and name in LIST_KEYS and isinstance(inner, Mapping):
        yield from _rows_of_object(inner)
    elif isinstance(whole.get("columns"), list) and isinstance(whole.get("data"), list):  # `split`
        names = [str(name) for name in whole["columns"]]
        yield from (dict(zip(names, row, strict=False)) for row in whole["data"])
    elif columns := _columns_in(whole):
        yield from _rows_of_lists(columns)
    elif not all(isinstance(value, list) for value in whole.values()) and (
        rows := [*_rows_within(whole, _DEPTH)]
    ):
        yield from rows
    elif all(isinstance(value, Mapping) for value in whole.values()):
        yield from _rows_of_objects(whole)
    elif all(isinstance(value, list) for value in whole.values()):
        yield from _rows_of_lists(whole)
    elif all(isinstance(value, str) for value in whole.values()) and not whole.keys() & _FIELDS:
        yield from ({"id": name, "response": text} for name, text in whole.items())
    else:
        yield whole


def _columns_in(whole: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The columns of questions and responses, and others as long, beside figures; else none."""
    lists = {name: value for name, value in whole.items() if isinstance(value, list)}
    texts = [name for name in lists if lists[name] and all(isinstance(t, str) for t in lists[name])]
    questions = [name for name in texts if plain_name(name) in NAMES["query"]]
    if not questions or not _said_in(texts) or len(lists) == len(whole):
        return {}
    return {name: lists[name] for name in lists if len(lists[name]) == len(lists[questions[0]])}


def _rows_within(value: Any, depth: int) -> Iterator[Any]:
    """The items of the lists below an object, of which each has a question."""
    if isinstance(value, list):
        is_chat = [isinstance(item, list) and is_conversation(item) for item in value]
        yield from value if value and (all(map(_asks, value)) or all(is_chat)) else ()
    elif isinstance(value, Mapping) and depth and not _asks(value):
        named = {name: row for name, row in value.items() if isinstance(row, Mapping)}
        if named and all(name.isdigit() and _asks(row) for name, row in named.items()):
            yield from named.values()
            return
        if len(named) > 1 and all(_asks(row) and _said_in(row) for row in named.values()):
            yield from ({"id": name, **row} for name, row in named.items())
            return
        for inner in value.values():
            yield from _rows_within(inner, depth - 1)


def _said_in(names: Iterable[str]) -> set[str]:
    """The names that are those of a response."""
    return {*likely_columns("response", names), *filter(NAMES["response"].__contains__, names)}


def _asks(value: Any) -> bool:
    return isinstance(value, Mapping) and any(plain_name(str(name)) in _ASKING for name in value)


def _rows_of_objects(whole: Mapping[str, Mapping[str, Any]]) -> Iterator[Any]:
    """The rows of a data frame: by column and the row's number, or by the row's name."""
    numbers = list(dict.fromkeys(number for column in whole.values() for number in column))
    are_numbers = all(number.isdigit() for number in numbers)
    if whole.keys() & _FIELDS or are_numbers:
        for number in sorted(numbers, key=int) if are_numbers else numbers:
            yield {name: column[number] for name, column in whole.items() if number in column}
    else:
        for name, row in whole.items():
            yield from _rows_of_item({"id": name, **row})


def _rows_of_lists(whole: Mapping[str, list[Any]]) -> Iterator[Any]:
    """The rows of columns, of lists by key (a list a conversation), or of one conversation."""
    items = chain.from_iterable(whole.values())
    if any(name in TURNS_KEYS and is_conversation(value) for name, value in whole.items()):
        yield whole
    elif not whole.keys() & _FIELDS and all(isinstance(item, Mapping) for item in items):
        for name, turns in whole.items():
            yield from [{"id": name, "messages": turns}] if is_conversation(turns) else turns
    else:
        lengths = {name: len(column) for name, column in whole.items()}
        if len(set(lengths.values())) > 1:
            shown = ", ".join(f"{name} {length}" for name, length in lengths.items())
            raise invalid(f"columns of different lengths: {shown}")
        yield from (dict(zip(whole, row, strict=True)) for row in zip(*whole.values(), strict=True))


SAMPLE_FILE = "sample.json"
# Where the head of a file of responses says who answered, and for which suite; the first that is
# there counts.
HEADER_KEYS: Mapping[str, tuple[str, ...]] = {
    "candidate": ("candidate",),
    "model": ("model", "model_name", "model.name", "metadata.model"),
    "suite": ("suite",),
}
MAX_LINE_BYTES = 128 << 20  # of a JSONL; ten million tokens of context are about 50 MiB


def read_folder(shard: Shard) -> Iterator[Entry]:
    for position, name in enumerate(shard.names, start=shard.start):
        path = f"{shard.path.rstrip('/')}/{name}/{SAMPLE_FILE}"
        raw, size = _read_file(path, shard.encoding)
        yield Entry(position, position + 1, path, "", raw, size, position + 1)


def read_document(shard: Shard) -> Iterator[Entry]:
    """A JSON file that is one item, whatever it holds."""
    raw, size = _read_file(shard.path, shard.encoding)
    yield shard.entry(0, 1, "", raw, size, 1)


def _read_file(path: str, encoding: str) -> tuple[Any, int]:
    """What a JSON file holds, or why it cannot be read, and its bytes."""
    try:
        with open_reader(*locate(path), 0, encoding) as file:
            data = file.read()
        return json_or_fault(data), len(data)
    except OSError as error:
        is_absent = isinstance(error, FileNotFoundError) and path.endswith(f"/{SAMPLE_FILE}")
        why = f"the folder has no {SAMPLE_FILE}" if is_absent else None
        return invalid(why or f"cannot be read: {reason_of(error)}"), 0


def read_jsonl(shard: Shard) -> Iterator[Entry]:
    if shard.take:
        with open_reader(*locate(shard.path), 0, shard.encoding) as file:
            for position, number in zip(shard.take, shard.numbers or shard.take, strict=True):
                file.seek(position)
                raw, size = json_or_fault(line := file.readline()), len(line)
                label = f"byte {position}"
                yield shard.entry(position, position + size, label, raw, size, number)
        return
    position, number = shard.start, shard.first_number - 1
    try:
        with open_reader(*locate(shard.path), shard.start, shard.encoding) as file:
            while line := file.readline(MAX_LINE_BYTES):
                start, position, number = position, position + len(line), number + 1
                if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
                    while (part := file.readline(1 << 20)) and not part.endswith(b"\n"):
                        position += len(part)  # to the line's end
                    position += len(part)
                    most = f"{MAX_LINE_BYTES >> 20} MiB"
                    text = f"the line is longer than {most}; no sample is so long"
                    yield Entry(start, position, shard.path, f"line {number}", invalid(text), 0)
                elif line.strip():
                    raw, size = json_or_fault(line), len(line)
                    yield shard.entry(start, position, f"line {number}", raw, size, number)
                if shard.stop is not None and position >= shard.stop:
                    return
    except DamagedFile as error:
        yield shard.broken_entry(position, f"nothing after line {number} can be read: {error}")


def read_header(shard: Shard) -> dict[str, str]:
    """What a JSON object says beside its list, before or after it: the text at each of HEADER_KEYS.
    Empty for a plain list, for other formats, and for broken JSON, which its reader reports."""
    if shard.kind != "json":
        return {}
    paths = {*chain.from_iterable(HEADER_KEYS.values())}
    texts: dict[str, str] = {}
    with suppress(ijson.JSONError, UnicodeDecodeError, OSError), _open_after_mark(shard) as file:
        for prefix, event, value in ijson.parse(GuardedJson(file)):
            if prefix == "" and event == "start_array":
                return {}
            if prefix in paths and event == "string" and value.strip():
                texts.setdefault(prefix, value.strip())
    return {
        field: next(texts[path] for path in names if path in texts)
        for field, names in HEADER_KEYS.items()
        if not texts.keys().isdisjoint(names)
    }


def read_json(shard: Shard) -> Iterator[Entry]:
    position, is_wanted = 0, shard.picker()
    try:
        for raw in rows_of(lambda: _open_after_mark(shard), shard.published):
            if is_wanted(position):
                for field in shard.header if isinstance(raw, dict) else ():
                    if all(raw.get(name) is None for name in HEADER_KEYS[field]):
                        raw[field] = shard.header[field]
                number = position + 1
                yield shard.entry(position, number, f"item {number}", raw, 0, number)
            position += 1
            if shard.take and position > shard.take[-1]:
                return
        if position == 0:
            wanted = 'a list of samples, or an object with the list under "samples"'
            yield shard.broken_entry(0, f"holds no samples; it must be {wanted}")
    except InvalidSample as error:
        yield shard.broken_entry(position, str(error))
    except (ijson.JSONError, UnicodeDecodeError, DamagedFile) as error:
        is_json = isinstance(error, ijson.JSONError) and "utf" not in str(error).lower()
        text = f"not UTF-8 after item {position}; {SAVE_SO}"
        if is_json:
            text = f"broken JSON after item {position}: {first_line(error)}"
        elif isinstance(error, DamagedFile):
            text = f"nothing after item {position} can be read: {error}"
        yield shard.broken_entry(position, text)


def kind_of_json(shard: Shard) -> Kind:
    """The kind of a .json or .jsonl file: a value a line, or one document; else as it is."""
    if shard.kind not in ("json", "jsonl"):
        return shard.kind
    try:
        with _open_after_mark(shard) as file:
            while (first := file.readline(MAX_LINE_BYTES)).isspace():
                pass
            rest = file.read(4096).strip()
        value = parse_json(first)
    except InvalidSample:  # a document over several lines, or a line that is broken
        is_open = first.strip() in (b"[", b"{") or first.lstrip()[:1] == b"["
        return "json" if is_open else shard.kind
    except OSError:
        return shard.kind
    if rest:
        is_lines = isinstance(value, dict) and rest[:1] == b"{"
        if is_lines and value.keys() == EVENTS_HEAD:
            return "json"  # of which several lines are a sample
        return "jsonl" if is_lines else shard.kind
    if isinstance(value, Mapping):  # its rows are under a key, and it has nothing that a row has
        lists = (key for key in LIST_KEYS if isinstance(look_up(value, key), list))
        is_document = not value.keys() & _FIELDS and any(lists)
    else:
        is_document = isinstance(value, list) and not is_conversation(value)
    return "json" if is_document else shard.kind


def _open_after_mark(shard: Shard) -> BinaryIO:
    """The file, read past a byte order mark."""
    file = open_reader(*locate(shard.path), encoding=shard.encoding)
    if file.peek(3)[:3] == b"\xef\xbb\xbf":
        file.read(3)
    return cast(BinaryIO, file)


def first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
