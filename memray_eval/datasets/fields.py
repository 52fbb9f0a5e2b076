"""What the columns of a field are called: forms.yaml's table of names, and names of one's own. And
responses that exist already as records to judge: rows of a run folder, of seed 000's
responses_*.json, of JSONL or Parquet."""

import importlib.resources
import json
import math
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Annotated, Any, get_args

import yaml
from pydantic import Field, TypeAdapter, ValidationError

from memray_eval.datasets.parsing import (
    Fault,
    InvalidSample,
    find_at,
    invalid,
    look_up,
    parse_printed,
    parse_sample,
)
from memray_eval.results.schema import RESPONSE_COLUMNS
from memray_eval.text_processing.thinking import ParsedOutput, split_thinking
from memray_eval.types import BIG_FIVE, EXISTING, Candidate, NoAnswer, Record, Response, unit_id
from memray_eval.types.json_text import candidate_from_json
from memray_eval.types.samples import id_text

_FILE = importlib.resources.files("memray_eval.datasets") / "forms.yaml"
TABLE: Mapping[str, Any] = yaml.safe_load(_FILE.read_text("utf-8"))


def words_of(name: str) -> tuple[str, ...]:
    """The words of a list of forms.yaml."""
    return tuple(TABLE[name].split())


# By field, the likeliest first: names in any row, and all names, with those that are guessed
ROW_NAMES = {name: tuple(text.partition("|")[0].split()) for name, text in TABLE["columns"].items()}
NAMES = {name: tuple(text.replace("|", " ").split()) for name, text in TABLE["columns"].items()}
# What an item of another tool's calls a field
ITEM_NAMES = {
    name: text.replace("COLUMNS", " ".join(NAMES[name])).split()
    for name, text in TABLE["items"].items()
}
JOIN_IDS = (*NAMES["id"], *words_of("join_ids"))  # of responses that are joined
_GOLD, _RIGHT, _WRITER, _OTHER, _WHAT, _ASKER, _MODEL = (
    "|".join(words_of(name))
    for name in ("golds", "rights", "writers", "others", "whats", "askers", "models")
)
_NO_TEXT = (
    "score|rating|tokens|cost|time|label|id|name|judge|question|correct|f1|em|acc|accuracy|verdict"
    "|judgment|reason|length|context|feedback|version|recall|precision|grade|evaluation|explanation"
    "|category|type|mode"
)
_SAID = r"(?:answer|response|output|completion|generation|prediction|pred|reply)"
# What a column of responses or system prompts may be called, or one of names or verdicts
MAYBE_TEXT = re.compile(
    r"results?|actual|ai|sys|(?:.+_)?(?:bot|chatbot|model|agent|llm|assistant|system)"
)
# Beside a column called so `answer` is the right one
SAID_IN = re.compile(r"(?:.+_)?(?:response|output|completion|generation|prediction)s?(?:_[a-z\d])?")
_OF = "(?:from_|by_|of_|des_|del_|du_|do_|von_)?"
# By whom a text is: a column of it, or of the model's name
_BY = (
    rf"(?!label|value|option|choice)(?:{_WHAT})_{_OF}(?:{_WRITER}|(?:{_MODEL})[\w.-]*)"
    rf"|(?:{_MODEL})(?!.*_(?:{_NO_TEXT})\Z)[\w.-]*"
)
# Names of one's own columns by their words: who wrote it, and what it is
_NAMED = {
    "query": re.compile(
        rf"(?:{_ASKER})_(?:question|query|prompt|request|message|msg|text|input|utterance)"
        r"|(?:question|query)_(?:asked|from|by|of)_.+"
    ),
    "answers": re.compile(
        rf"(?:(?:{_GOLD})s?(?:_(?:final_)?(?:{_WHAT}))?|(?:{_RIGHT})_(?:{_WHAT}))(?:_(?:human|s|1))?"
        rf"|(?:{_WHAT})_(?:{_GOLD}|{_RIGHT})"
    ),
    "response": re.compile(
        rf"(?:{_WRITER})_(?:{_WHAT}|texts?)(?:_text)?|{_SAID}_(?:text|answer)|decoded_text"
        rf"|{_BY}|predicted|generated|actual"
        rf"|(?!(?:{_GOLD}|{_RIGHT}|{_OTHER})_).+_{_SAID}"
    ),
}
# Those of a response that no reference is called by
SAID = re.compile(
    rf"(?!answer|system_text)(?:(?:(?:.+_)?(?:{_WRITER}|(?:{_MODEL})\w*|raw|greedy|sys|text)_)?{_SAID}s?"
    rf"(?:_text)?|(?:{_WRITER})_(?:texts?|s_answer|resp|antwort|ausgabe|respuesta|réponse|resposta)"
    "|(?:bot|assistant)_message|inference_result|decoded_text|predicted|generated|sampled|submission"
    rf"|decoded|predict|hypothesis|hyp|modellantwort|antwort|[^\x00-\x7f]+)"
)
SAID_BY = re.compile(_BY)
_RANKS = {
    "query": (),
    "answers": words_of("golds") + words_of("rights"),
    "response": words_of("writers"),
}


def plain_name(name: str) -> str:
    """A column's name in lower case, its words joined by underscores."""
    return re.sub(r"\W+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)).strip("_").lower()


def likely_columns(field: str, names: Iterable[str]) -> list[str]:
    """The names that by their words are of a field, the likeliest first."""
    fitting = [name for name in names if _NAMED[field].fullmatch(plain_name(name))]
    words = _RANKS[field]

    def rank(name: str) -> int:
        plain = plain_name(name)
        return next((at for at, word in enumerate(words) if plain.startswith(word)), len(words))

    return sorted(fitting, key=rank)


# Beside another one an `answer` is the right one
TEXT_FIELDS = (*ROW_NAMES["response"], "answer")
# Null in one of these is no answer
NULLABLE = frozenset(ROW_NAMES["response"])
# Columns whose text may be a list of alternatives, as Python prints one
_LISTING = re.compile(r"ground_truth|targets|references|(?:\w+_)?(?:answers|truths|gts?|golds)")
TRAITS_FIELDS = ("traits", "personality", "big_five")
MODEL_FIELDS = ("model", "model_name")
FUSED = "fused"  # the emotion distribution that counts, where there are several
_OUR_FIELDS = ("unit_id", "scores", "candidate_config")
# The columns of a response beside its text and error, and the fields that they are
_CAUSES = get_args(NoAnswer)
_OTHER_COLUMNS = {
    column: field
    for field, (column, _) in RESPONSE_COLUMNS.items()
    if column not in ("response", "error")
}
# What a row with a response has beside its sample's fields
ROW_FIELDS = frozenset(
    ("response", "error", "epoch", "sample_id", "candidate", *MODEL_FIELDS, *_OUR_FIELDS)
).union(_OTHER_COLUMNS)
_NO_ERROR = ("", "none", "null", "nan", "n/a", "false", "0", "no", "ok", "-")  # what logs write
_NO_RESPONSE = Response().__dict__
_EPOCH = TypeAdapter(Annotated[int, Field(ge=1)])  # also of 2.0 and "2", as tables have it


def rename_aliases(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Renames a row's fields to ours and drops empty ones: the query (published records keep their
    own), the answers, the traits, and the fused emotion. A response that is null stays, as
    `response`, if there is no other: it is no answer."""
    fields = {name: value for name, value in raw.items() if value is not None}
    is_null = len(fields) < len(raw) and not NULLABLE.isdisjoint(raw)
    if is_null and fields.keys().isdisjoint((*NULLABLE, "error")):
        fields["response"] = None
    queries = [name for name in ROW_NAMES["query"] if name in fields]
    if queries and "_id" not in fields and "input" not in fields:
        fields["query"] = fields.pop(queries[0])
    if "answers" in fields:
        fields["answers"] = read_gold(fields["answers"], "answers")
    elif column := next(
        (n for n in ROW_NAMES["answers"] if n in fields and is_gold(fields[n])), None
    ):
        fields["answers"] = read_gold(fields.pop(column), column)
    fields = rename_traits(fields)
    emotion = fields.get("emotion")
    if isinstance(emotion, dict) and any(isinstance(value, dict) for value in emotion.values()):
        apart = {name: value for name, value in emotion.items() if isinstance(value, dict)}
        if not apart.get(FUSED) and len(apart) > 1:
            names = f"several distributions ({', '.join(apart)}) and none called {FUSED!r}"
            sample_id = str(fields.get("id") or fields.get("sample_id") or "")
            raise invalid(f"holds {names}; name the one that counts so", "emotion", sample_id)
        fields["emotion"] = dict(apart.get(FUSED) or next(iter(apart.values())))
    return fields


def rename_traits(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields with the Big Five, whatever a row calls them, as `traits`."""
    for name in TRAITS_FIELDS:
        if name in fields and (traits := _find_big_five(fields[name])) is not None:
            return {**{key: fields[key] for key in fields if key != name}, "traits": traits}
        if "traits" in fields:
            break
    return fields


def read_gold(value: Any, column: str, is_cell: bool = False) -> Any:
    """A row's right answers as a list of texts: of a text, a number, a list (without null and NaN),
    SQuAD's {"text": [...]}; anything else as it is. A text is one answer, but a list as Python
    prints it, in a column that holds several, is alternatives, and so is JSON in a CSV's cell."""
    if type(value) is list and all(type(answer) is str for answer in value):
        return value  # as most rows have it
    if isinstance(value, str):
        value = _read_printed(value, column, is_cell)
    spans = (look_up(value, name) for name in ("text", "spans") if isinstance(value, Mapping))
    listed = next((span for span in spans if isinstance(span, list | tuple)), None)
    if listed is not None:  # SQuAD's, DROP's
        value = listed
    elif isinstance(value, Mapping) and isinstance(value.get("aliases"), list):  # TriviaQA's
        own = [value["value"]] if "value" in value else []
        value = [*dict.fromkeys([*own, *value["aliases"]])]
    if isinstance(value, list) and value and all(look_up(item, "output.text") for item in value):
        right = (item for item in value if "correct" in (item.get("tags") or ()))  # HELM's
        value = [item["output"]["text"] for item in right]
    if isinstance(value, list) and all(look_up(item, "type") for item in value):  # promptfoo's
        checks = (item for item in value if item["type"] in _ASSERT_GOLDS)
        value = [item["value"] for item in checks if "value" in item]
    if is_missing(value) or (is_cell and value in _NO_GOLD):
        return []
    golds = [value] if isinstance(value, _SCALARS) else value
    if not isinstance(golds, list | tuple):
        return value
    kept = [gold for gold in golds if not is_missing(gold)]
    if not all(isinstance(gold, _SCALARS) for gold in kept):
        return value
    return [str(gold).lower() if isinstance(gold, bool) else str(gold) for gold in kept]


def _read_printed(text: str, column: str, is_cell: bool) -> Any:
    """The list of texts, or SQuAD's answers, that a text beginning with [ or { is; else itself."""
    try:
        parsed, is_json = parse_printed(text)
    except ValueError:
        return text
    if isinstance(parsed, dict):
        return parsed if {*parsed} == {"text", "answer_start"} else text
    is_list = isinstance(parsed, list) and parsed and all(isinstance(item, str) for item in parsed)
    may_list = _LISTING.fullmatch(plain_name(column)) is not None and (
        not is_json or (is_cell and column.lower() != "ground_truth")
    )
    return parsed if is_list and may_list else text


def is_missing(value: Any) -> bool:
    """Whether a table has nothing there: null, or pandas' NaN."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def ends_in_null(row: Any, path: str) -> bool:
    """Whether what a dotted path leads to, or leads through, is missing or an empty text."""
    parts = path.split(".")
    at = (find_at(row, ".".join(parts[:n])) for n in range(1, len(parts) + 1))
    return any(is_missing(value) or value == "" for value in at)


def is_gold(value: Any) -> bool:
    """Whether a value can be a row's right answers."""
    gold = read_gold(value, "")
    return isinstance(gold, list) and all(isinstance(item, _SCALARS) for item in gold)


def _find_big_five(value: Any) -> dict[str, Any] | None:
    """The Big Five in a row's personality, in any case and up to one level down, if any."""
    if not isinstance(value, dict):
        return None
    nested = (value[name] for name in TRAITS_FIELDS if isinstance(value.get(name), dict))
    inner = next(nested, value)
    traits = {str(name).lower(): score for name, score in inner.items()}
    return traits if set(BIG_FIVE) & set(traits) else None


_SCALARS = (str, int, float)
_ASSERT_GOLDS = words_of("assert_golds")
# In a table's cell, as pandas reads it
_NO_GOLD = ("", *"NaN nan NA N/A n/a #N/A #NA <NA> NULL null None".split())


def candidate_name(fields: Mapping[str, Any], otherwise: str = EXISTING) -> str:
    """The name of the candidate that answered, as the row gives it."""
    names = (fields.get(name) for name in ("candidate", *MODEL_FIELDS))
    return next((str(name) for name in names if name), otherwise)


def parse_answer(
    raw: Any,
    suite: str,
    checks_spelling: bool = True,
    is_renamed: bool = False,
    otherwise: str = EXISTING,
    lacks_query: bool = False,
) -> Record:
    """Parses a raw object with a query (unless its dataset `lacks_query`), a response, and any
    fields of a sample, `model`, `candidate` and `epoch`, into a Record without scores; one that
    `is_renamed`, by `rename_aliases`, is changed. Raises InvalidSample."""
    if not isinstance(raw, dict):
        raise invalid(f"a row must be a JSON object, not {type(raw).__name__}")
    fields = raw if is_renamed else rename_aliases(raw)
    candidate = _pop_candidate(fields, otherwise)
    response = _pop_response(fields)
    if "sample_id" in fields:
        fields["id"] = fields.pop("sample_id")
    if "id" in fields:
        fields["id"] = id_text(fields["id"])
    for name in _OUR_FIELDS:
        fields.pop(name, None)
    missing = Fault(
        field="response", message=f"missing or empty; it may be called {', '.join(TEXT_FIELDS)}"
    )
    faults = [] if response is not None else [missing]
    epoch, number = 1, fields.pop("epoch", None)
    try:
        epoch = 1 if number is None else _EPOCH.validate_python(number)
    except ValidationError:
        message = f"is {number!r}; number a sample's answers by whole numbers from 1"
        faults.append(Fault(field="epoch", message=message))
    try:
        sample = parse_sample(fields, suite, checks_spelling, lacks_query)
    except InvalidSample as error:
        raise InvalidSample([*faults, *error.faults], error.sample_id) from None
    if faults:
        raise InvalidSample(faults, sample.id)
    parts = {
        "unit_id": unit_id(sample.id, candidate, suite, epoch),
        "sample": sample,
        "candidate": candidate,
        "response": response,
    }
    return Record.trusted({**parts, "scores": (), "epoch": epoch}, {*parts, "epoch"})


def _pop_candidate(fields: dict[str, Any], otherwise: str) -> Candidate:
    """Takes the candidate out of a row: a run's own configuration, else one of the row's names."""
    config, label = fields.get("candidate_config"), candidate_name(fields, otherwise)
    model = next((fields[field] for field in MODEL_FIELDS if fields.get(field)), label)
    for field in ("candidate", *MODEL_FIELDS):
        fields.pop(field, None)
    try:
        if isinstance(config, str):
            return candidate_from_json(config)
        if config is not None:
            return Candidate.model_validate(config)
        return _existing_candidate(label, str(model))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        sample_id = str(fields.get("sample_id") or fields.get("id") or "")
        if config is None:
            raise invalid(first["msg"], "model", sample_id) from None
        what = ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))
        text = f"is no candidate's configuration: {what}; fix it, or leave it out"
        raise invalid(text, "candidate_config", sample_id) from None


@lru_cache(256)
def _existing_candidate(name: str, model: str) -> Candidate:
    return Candidate(name=name, model=model, backend=EXISTING)


def _error_of(value: Any) -> str | None:
    """The text of an error, as a log has it; None for what says that there was none."""
    if isinstance(value, Mapping):
        inner = next((value[name] for name in ("message", "error", "type") if value.get(name)), "")
        return _error_of(inner) or (json.dumps(value, default=str) if value else None)
    if isinstance(value, str):
        return None if value.strip().lower() in _NO_ERROR else value
    return str(value) if value else None


def _pop_response(fields: dict[str, Any]) -> Response | None:
    """Takes the response out of a row; None if it has neither a text nor an error."""
    # A dataset may call something else `no_answer` or `refusal`: that stays metadata
    extras = {}
    if not _OTHER_COLUMNS.keys().isdisjoint(fields):
        extras = {
            field: fields.pop(column)
            for column, field in _OTHER_COLUMNS.items()
            if column in fields
            and (column != "no_answer" or fields[column] in _CAUSES)
            and (column != "refusal" or isinstance(fields[column], str))
        }
    error = _error_of(fields.pop("error", None))
    # Beside another one an `answer` is the right one
    is_beside = "answer" in fields
    texts = [fields.pop(name) for name in TEXT_FIELDS if name in fields]
    if not texts and error is None:
        return None
    text = texts[0] if texts else None
    if len(texts) > 1 and text in (None, ""):
        own = texts[:-1] if is_beside else texts
        text = next((value for value in own if value not in (None, "")), text)
    is_null = text is None
    output = ParsedOutput(text or "")
    if isinstance(text, str) and not extras.get("raw"):  # else it is split already
        output = split_thinking(text)
    content = output._asdict() if output.raw or output.unknown_mark else {"text": output.text}
    if not extras and error is None and type(output.text) is str:
        response = Response.trusted({**_NO_RESPONSE, **content}, {*content, "error"})
        return response if response.text.strip() else response.with_cause(is_null=is_null)
    try:
        response = Response.model_validate({**extras, **content, "error": error})
        return response.with_cause(is_null=is_null)
    except ValidationError as error:
        first = error.errors()[0]
        field, sample_id = str(first["loc"][0]), str(fields.get("id") or "")
        raise invalid(first["msg"], field, sample_id) from None
