"""How a provider's requests are made, sent and read; a file a provider in providers/."""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal, NamedTuple, TypeAlias

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from memray_eval.errors import JudgeError, NotWhole
from memray_eval.judges.prices import FREE, Price
from memray_eval.judges.prompt_cache import PromptCache, SharedStart
from memray_eval.provider_http.parameters import Changes, changed_parameters
from memray_eval.provider_http.replies import Edge
from memray_eval.text_processing.thinking import split_thinking
from memray_eval.text_processing.values import read_literal
from memray_eval.types import Usage, broken_off, is_cut_off, is_filtered

Request: TypeAlias = dict[str, Any]  # a whole one, or the part of it that `prepare` made
Turns: TypeAlias = Sequence[Mapping[str, str]]
Ending: TypeAlias = Literal["done", "refused", "truncated"]
BY_WORDS = "\n\nAnswer with one JSON object and nothing else. It fits this JSON schema:\n"


class Reply(NamedTuple):
    """A completion that was read. `is_counted`: the provider gave all of its tokens. `thoughts`
    stood in a field beside the text."""

    text: str
    usage: Usage
    ending: Ending
    is_counted: bool = True
    served_model: str = ""
    thoughts: str = ""


def ending_of(finish_reason: str, usage: Usage) -> Ending:
    """How a completion ended, in any provider's word. Raises NotWhole, with what it took."""
    if broken := broken_off(finish_reason):
        half = NotWhole(broken)
        half.set_tokens(usage)
        raise half
    if finish_reason == "refusal" or is_filtered(finish_reason):
        return "refused"
    return "truncated" if is_cut_off(finish_reason) else "done"


class ProviderAdapter(ABC):
    """One provider's protocol. `assistant_role` is its name for the model's messages; `parameters`
    are those that shape the verdict, of which it can do without the `negotiable` ones.
    `schema_is_in_start`: it counts a schema beside the messages as a part of their start, so that
    it is in the prompt instead; None: its calls have no shared starts. `forms`: those of FORMS in
    which it can ask for JSON, where a server may refuse some. `status_errors`: those of an SDK that
    hold a response."""

    assistant_role = "assistant"
    schema_is_in_start: bool | None = None
    forms: Sequence[str] = ()
    status_errors: tuple[type[Any], ...] = ()
    parameters: Mapping[str, Any]
    negotiable: Mapping[str, Any]
    edge: Edge

    @abstractmethod
    def prepare(self, judgment: type[BaseModel], system: str, shared_first: bool) -> Request:
        """The part of a request that all calls with this rubric and judgment have: model,
        parameters, schema. `shared_first`: they begin with what they share."""

    def adjust(self, prepared: Request, changes: Changes) -> Request:
        """A prepared request with the parameters that the model takes."""
        fixed = {name: value for name, value in prepared.items() if name not in self.negotiable}
        return fixed | changed_parameters(self.negotiable, changes)

    @abstractmethod
    async def send(self, prepared: Request, messages: Turns, start: SharedStart | None) -> Any:
        """Sends the messages, system first; returns the completion. `start` is for the cache."""

    @abstractmethod
    def read(self, completion: Any) -> Reply:
        """Reads a completion. Raises JudgeError: Unreadable if it is none."""

    def translate(self, error: BaseException) -> JudgeError:
        """Whatever was raised as a JudgeError without prompt or key."""
        return self.edge.translate(error, self.status_errors)

    async def body(self, prepared: Request, messages: Turns, start: SharedStart | None) -> Request:
        """All that `send` sends, for a batch."""
        raise NotImplementedError(f"{type(self).__name__} takes no batches")


@dataclass(frozen=True, kw_only=True)
class JudgeSpec:
    """Which model judges, where (`base_url` None: at the provider), and with what parameters.
    `identity` is what calls are remembered by, in place of name and address. `is_providers`:
    `base_url` is an address of the provider's."""

    name: str
    model: str
    base_url: str | None = None
    key: str = field(default="none", repr=False)
    identity: str = ""
    is_providers: bool = False
    is_small: bool = False  # it would fill texts and lists without end
    timeout_s: float = 120.0
    max_output_tokens: int = 2048
    parameters: Mapping[str, Any] = field(default_factory=dict)
    price: Price | None = FREE
    cache: PromptCache = field(default_factory=PromptCache)


MOST_OBJECTS = 200  # braces of a reply that are looked at
MOST_CHARACTERS = 100_000  # of a reply that is read as Python prints it
MOST_WRAPPERS = 4  # objects round a verdict
# In JSON: an escaped backslash, a whole surrogate pair, or (group 1) half of one, which no parser
# takes.
_HALF = re.compile(r"\\\\|\\u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w|(\\u[dD][89a-fA-F]\w\w)")

_WORDS = re.compile(
    r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|\b(true|false|null)\b|(//[^\n]*|/\*[^*]{0,300}\*/)',
    re.DOTALL,
)
_PYTHON = {"true": "True", "false": "False", "null": "None", None: ""}
_YES_OR_NO = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|(true|false)', re.DOTALL)
_BARE = re.compile(r"[:,\[]\s*(?:true|false)")
# A name of a field in its quotes, what parts two texts of a list, and what may do so or not
_NAME = re.compile(r"""(?:\A|[{,，\s])(["'“”]?)([^\W\d][\w .-]{0,60}?)(["'“”]?)\s*[:：]""")
_BETWEEN = re.compile(r"""["'”]\s*[,，]\s*["'“]""")
_UNPARTED = re.compile(r"""[^\s\[{(,:：，]["'”]\s+["'“]""")
_LOOSE = re.compile(r"""["'”]\s*[,，]|[,，]\s*["'“]""")
_FURTHER = re.compile(r"""[{}]|["'”]\s*[,，]\s*["'“]?\w+["'”]?\s*[:：]""")  # field, object
_PLAIN = re.compile(r"(?:0|[1-9]\d*)(?:\.\d+)?|true|false|null|True|False|None")
_QUOTES = "\"'“”"
_MARKS = f"{_QUOTES}`*. \r\n"  # round a word
_SCORES = ("score", "value", "rating")
# One figure in words, maybe with the most that there is, and words without another one behind
_FIGURE = re.compile(
    r"[\s*]*(?:score|rating)?[\s:*]*(\d+(?:\.\d+)?)\s*(?:(?:/|(?:out )?of)\s*(\d+(?:\.\d+)?))?"
    r"[\s*.]*(?:[(:,;–—-](?!.*(?:\b(?:of|or|to|points?|scale|percent|half|not)\b|[%½¼¾]))\D*)?",
    re.IGNORECASE | re.DOTALL,
)


class InvalidVerdict(Exception):
    """A reply that is no judgment: its text and what was wrong with it."""

    def __init__(self, text: str, problem: str) -> None:
        super().__init__(problem)
        self.text, self.problem = text, problem


def parse_judgment(text: str, judgment: type[BaseModel], thoughts: str = "") -> BaseModel:
    """The judgment in a reply, which may think first, wrap its JSON in a fence, in words or in
    another object, have a slip in it, be free text, if the judgment can be read from it, or stand
    in the `thoughts` beside an empty reply. Raises InvalidVerdict."""
    if "\\u" in text:
        text = _HALF.sub(lambda match: "\\ufffd" if match[1] else match[0], text)
    try:
        whole = _valid(text, judgment)
        return whole if whole.model_fields_set else _unwrapped([text], judgment) or whole
    except ValidationError as error:
        misfit = error
    text, own_thoughts, *_ = split_thinking(text)
    for candidate in (candidates := _objects(text)):
        try:
            return _valid(candidate, judgment)
        except ValidationError as error:
            misfit = error if candidate.startswith("{") else misfit
    read = _unwrapped(candidates, judgment)
    if read is None and misfit.errors()[0]["type"] == "json_invalid" and reads_text(judgment):
        read = judgment.from_text(text)  # type: ignore[attr-defined]
    if read is None:
        thought = thoughts or (own_thoughts if not text else "")
        thought = re.sub(r"</\w+>\Z", "", thought.strip(_MARKS)).strip(_MARKS)
        # No draft in other words: it is all that they say, or what an empty reply's end with
        comes_to_it = not (text or own_thoughts) and thought.endswith(("}", "]"))
        if comes_to_it or thought.startswith(("{", "[")):
            read = _unwrapped(_objects(thought), judgment)
    if read is not None:
        return read
    # Field by field, without the values: they may quote what is judged
    problems = [
        f"{'.'.join(map(str, item['loc'])) or 'the whole'}: {item['msg']}"
        for item in misfit.errors(include_input=False)[:5]
    ]
    raise InvalidVerdict(text, f"{'; '.join(problems)}.") from None


def reads_text(judgment: type[BaseModel]) -> bool:
    return hasattr(judgment, "from_text")


def _valid(text: str, judgment: type[BaseModel]) -> BaseModel:
    """The judgment that a JSON text is. Raises ValidationError, also for yes or no as a figure."""
    read = judgment.model_validate_json(text)
    # A text of either is a boolean's too, and no figure
    if ("true" in text or "false" in text) and _BARE.search(text):
        quoted = _YES_OR_NO.sub(lambda match: f'"{match[1]}"' if match[1] else match[0], text)
        judgment.model_validate_json(quoted)
    return read


def _objects(text: str) -> list[str]:
    """What of a text may be its one JSON object."""
    start, end = text.find("{"), text.rfind("}") + 1
    unclosed = f"{text[start:]}}}" if start >= end else ""
    return list(dict.fromkeys([text, text[start:end], _last_object(text), unclosed]))


def _unwrapped(texts: Sequence[str], judgment: type[BaseModel]) -> BaseModel | None:
    """The judgment of the first text that is one, maybe with a slip, or objects round one."""
    fields = judgment.model_fields
    names = fields.keys() | {field.alias for field in fields.values() if field.alias}
    own = {_letters_of(name): name for name in names}
    for value in chain(map(_read, texts), (_between_names(text, own) for text in texts)):
        for _ in range(MOST_WRAPPERS):
            if isinstance(value, dict):
                value = {own.get(_letters_of(key), key): part for key, part in value.items()}
            is_own = isinstance(value, dict) and bool(names & value.keys())
            if is_own and (read := _fitted(value, judgment)) is not None:
                return read
            parts = list(value.values()) if isinstance(value, dict) else value or ()
            parts = [_read(part) if isinstance(part, str) else part for part in parts]
            inner: list[Any] = [part for part in parts if isinstance(part, dict | list)]
            fitting = [part for part in inner if isinstance(part, dict) and names & part.keys()]
            if len(inner := fitting or inner) != 1:
                break
            value = inner[0]
    return None


def _letters_of(name: Any) -> str:
    return re.sub(r"[\W_]", "", str(name)).lower()


def _fitted(
    value: dict[str, Any], judgment: type[BaseModel], is_mended: bool = False
) -> BaseModel | None:
    """The judgment that an object is, once what nearly fits does; None if it is none."""
    try:
        return _valid(json.dumps(value), judgment)
    except ValidationError as error:
        problems = [] if is_mended else error.errors()
    except (ValueError, TypeError):
        return None
    for problem in problems:
        held, fitting = value, _fitting(problem, judgment)
        if not fitting:
            return None
        try:
            for key in problem["loc"][:-1]:
                held = held[key]  # type: ignore[index]
            held[problem["loc"][-1]] = fitting[0]  # type: ignore[index]
        except (LookupError, TypeError):  # of one of several kinds
            return None
    return _fitted(value, judgment, is_mended=True) if problems else None


def _fitting(problem: ErrorDetails, judgment: type[BaseModel]) -> list[Any]:
    """A misfitting part of a verdict in the form that fits, as the only item; none if unsure."""
    part, kind = problem["input"], problem["type"]
    if kind in ("literal_error", "enum"):
        words = re.findall(r"'([^']*)'", problem["ctx"]["expected"])
        return [word for word in words if word.lower() == str(part).strip(_MARKS).lower()]
    if kind in ("int_parsing", "float_parsing", "int_type", "float_type"):
        return _figures(part, judgment, problem["loc"])
    if kind == "string_type":
        return _texts_of(part)
    return [[part] if part else []] if kind == "list_type" and isinstance(part, str | None) else []


def _figures(value: Any, judgment: type[BaseModel], loc: tuple[int | str, ...]) -> list[Any]:
    """The one figure that is said, if it is of as many as there are at most."""
    if isinstance(value, dict):
        figures = [name for name, part in value.items() if re.search(r"\d", str(part))]
        value = [value[name] for name in figures] if {*figures} <= {*_SCORES} else []
    if isinstance(value, list):
        return value if len(value) == 1 and type(value[0]) in (int, float) else []
    if (match := _FIGURE.fullmatch(str(value))) is None:
        return []
    field = judgment.model_fields.get(str(loc[0])) if len(loc) == 1 else None
    most = next((rule.le for rule in field.metadata if hasattr(rule, "le")), 0) if field else 0
    return [match[1]] if match[2] is None or float(match[2]) == most else []


def _texts_of(value: Any) -> list[str]:
    """The text of a list of texts, or of an object with one text."""
    if isinstance(value, list) and value and all(isinstance(part, str) for part in value):
        return ["\n".join(value)]
    texts = [of for of in value.values() if isinstance(of, str)] if isinstance(value, dict) else []
    return texts if len(texts) == 1 else []


def _between_names(text: str, own: Mapping[str, str]) -> dict[str, Any] | None:
    """The fields of an object whose JSON has a slip in it, each from its name to the next one's;
    None unless each field is named once, all in the same quotes, and a figure is nothing else."""
    if not text.startswith("{") or len(text) > MOST_CHARACTERS:
        return None
    marks = [mark for mark in _NAME.finditer(text) if _letters_of(mark[2]) in own]
    names = [_letters_of(mark[2]) for mark in marks]
    if sorted(names) != sorted(own) or len({mark.group(1, 3) for mark in marks}) != 1:
        return None
    text = text.rstrip("} \r\n")
    ends = [*(mark.start() for mark in marks[1:]), len(text)]
    spans = zip(names, marks, ends, strict=True)
    try:
        return {own[name]: _written_value(text[mark.end() : end]) for name, mark, end in spans}
    except ValueError:
        return None


def _written_value(text: str) -> Any:
    """What the text between two names of fields says: a list of JSON or of texts, a figure, yes or
    no, or the text in its quotes. Raises ValueError if it may be more than one value."""
    text = text.strip(" ,，\r\n")
    is_list, is_plain = text.startswith("["), _PLAIN.fullmatch(text)
    if is_list and (read := _read(text)) is not None:
        return read
    if _FURTHER.search(text) or _UNPARTED.search(text) or (text[:1].isdigit() and not is_plain):
        raise ValueError("more than one value")
    if not is_list:
        return read_literal(_PYTHON.get(text, text)) if is_plain else text.strip(_QUOTES)
    inner = text.strip("[] \r\n")
    parts = [part.strip(_QUOTES) for part in _BETWEEN.split(inner)]
    if inner == inner.strip(f"{_QUOTES}'") or any(map(_LOOSE.search, parts)):
        raise ValueError("no list of texts in quotes")
    return parts


def _read(text: str) -> Any:
    """The value of a text of JSON, or of a Python literal; None if it is none."""
    if not text.lstrip().startswith(("{", "[", '"{')):
        return None
    try:
        value = json.loads(text, strict=False)
        return _read(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        if len(text) > MOST_CHARACTERS or _UNPARTED.search(text):  # Python would join two texts
            return None
    literal = _WORDS.sub(lambda word: _PYTHON[word[1]] if word[1] or word[2] else word[0], text)
    try:
        return read_literal(literal)
    except ValueError:
        return None


def _last_object(text: str) -> str:
    """The last JSON object in a text that is in no other one, "" if there is none: a judge may
    draft a verdict, or quote one, before it gives its own."""
    decoder, last, start = json.JSONDecoder(), "", text.find("{")
    for _ in range(MOST_OBJECTS):
        if start < 0:
            break
        try:
            _, end = decoder.raw_decode(text, start)
            last = text[start:end]
        except (ValueError, RecursionError):
            end = start + 1
        start = text.find("{", end)
    return last
