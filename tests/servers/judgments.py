"""Answers that fit: an instance of the JSON schema that a request asks for, in any of the three
wire formats.

Instances differ by seed, and the seed is a hash of the request's messages: the same question gets
the same answer."""

import hashlib
import json
import marshal
import math
import random
import re
from collections.abc import Iterator, Sequence
from typing import Any

_WORDS = (
    "calm clear early fair firm glad kind late light mild near open plain quick quiet rare safe "
    "soft sure true warm"
).split()
_KEYWORDS = {
    "$defs",
    "additionalProperties",
    "const",
    "default",
    "description",
    "enum",
    "format",
    "items",
} | {
    *("maximum", "maxItems", "minimum", "minItems", "properties", "propertyOrdering", "required"),
    *("property_ordering", "maxLength"),  # as google-genai, and as the embedded judge is asked
    *("title", "type"),
}
_BOUND = re.compile(r"\b(m(?:in|ax)(?:imum|Items)): (-?\d[\d.e+-]*)")
_SPREAD = 10.0  # how far a number goes that has one bound only
_RESPONSE = re.compile(r"<RESPONSE (\w+)>\n(.*?)\n</RESPONSE \1>", re.DOTALL)
QUOTED_WORDS = 5

Schema = dict[str, Any]


def instance_of(schema: Schema, seed: int = 0, quoted: Sequence[str] = ()) -> Any:
    """A valid instance, the same for the same seed. Its texts are stretches of the `quoted` words,
    where there are any: a judge whose every quote is made up gives no score. Bounds are also read
    where Anthropic's SDK moves them, the description; types also where Google's writes them, in
    capitals. Raises ValueError for a keyword that no judgment of ours has."""
    return _write(schema, schema, random.Random(seed), quoted)


def judgment_reply(body: dict[str, Any]) -> str:
    """The JSON text that fits what the body asks for. Raises ValueError where no schema is in
    it."""
    schema = schema_of(body)
    if schema is None:
        raise ValueError(f"no JSON schema in a request with the keys {sorted(body)}")
    response = next(
        (match[2] for text in message_texts(body) if (match := _RESPONSE.search(text))), ""
    )
    return json.dumps(instance_of(schema, question_seed(body), response.split()))


def prose_reply(body: dict[str, Any], words: int = 12) -> str:
    """A plain answer of so many words, for a request that asks for no schema."""
    chance = random.Random(question_seed(body))
    return " ".join(chance.choices(_WORDS, k=words)).capitalize() + "."


def reply_to(body: dict[str, Any], words: int = 12) -> str:
    """A judgment if the request asks for one, else an answer of so many words."""
    return prose_reply(body, words) if schema_of(body) is None else judgment_reply(body)


def schema_of(body: dict[str, Any]) -> Schema | None:
    """The JSON schema that a request's answer must fit: the provider's own parameter, else the
    first one that stands in the text of its messages. None where there is none."""
    google = body.get("generationConfig", {})
    native = (
        body.get("response_format", {}).get("json_schema", {}).get("schema")
        or body.get("output_config", {}).get("format", {}).get("schema")
        or google.get("responseJsonSchema")
        or google.get("responseSchema")
    )
    return native or next(
        (schema for text in message_texts(body) for schema in _schemas_in(text)), None
    )


def message_texts(body: dict[str, Any]) -> list[str]:
    """Every text of a request's messages, the system prompt first, in any of the three wire
    formats."""
    holders = [
        body.get("system"),
        body.get("systemInstruction"),
        *body.get("messages", ()),
        *body.get("contents", ()),
    ]
    return [text for holder in holders for text in _texts(holder)]


def question_seed(body: dict[str, Any]) -> int:
    return int.from_bytes(_blake("\0".join(message_texts(body)).encode("utf-8", "surrogatepass")))


def body_digest(body: dict[str, Any]) -> str:
    """16 hex digits for a request's whole body, whatever the order of its keys: equal for a
    question that is asked again in the same words."""
    return _blake(
        marshal.dumps(dict(sorted(body.items())), 0)
    ).hex()  # a sixth of the time of JSON; version 0 writes equal values equally


def _blake(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=8).digest()


def _texts(part: Any) -> Iterator[str]:
    if isinstance(part, str):
        yield part
    elif isinstance(part, list):
        for inner in part:
            yield from _texts(inner)
    elif isinstance(part, dict):
        for name in ("text", "content", "parts"):
            yield from _texts(part.get(name))


def _schemas_in(text: str) -> Iterator[Schema]:
    start = text.find("{")
    while start >= 0:
        try:
            value, end = json.JSONDecoder().raw_decode(text, start)
        except ValueError:
            end = start + 1
        else:
            if "properties" in value or "$ref" in value:
                yield value
        start = text.find("{", end)


def _write(schema: Schema, root: Schema, chance: random.Random, quoted: Sequence[str]) -> Any:
    """An instance of a part of a root schema, whose definitions `$ref` names."""
    while "$ref" in schema:
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        schema = root["$defs"][schema["$ref"].rpartition("/")[2]] | rest
    if unknown := schema.keys() - _KEYWORDS:
        raise ValueError(f"cannot write an instance of a schema with {', '.join(sorted(unknown))}")
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return chance.choice(schema["enum"])
    bounds = dict(_BOUND.findall(schema.get("description", ""))) | schema
    match (schema.get("type") or ("object" if "properties" in schema else "string")).lower():
        case "object":
            parts = schema.get("properties", {}).items()
            return {name: _write(part, root, chance, quoted) for name, part in parts}
        case "array":
            least = int(bounds.get("minItems", 0))
            most = min(int(bounds.get("maxItems", least + 2)), least + 2)
            count = chance.randint(least, most)
            return [_write(schema.get("items", {}), root, chance, quoted) for _ in range(count)]
        case "string" if quoted:
            start = chance.randrange(max(1, len(quoted) - QUOTED_WORDS))
            return " ".join(quoted[start : start + QUOTED_WORDS])[: schema.get("maxLength")]
        case "string":
            return " ".join(chance.choices(_WORDS, k=3))[: schema.get("maxLength")]
        case "boolean":
            return chance.random() < 0.5
    low = float(bounds.get("minimum", 0.0))
    high = float(bounds.get("maximum", low + _SPREAD if "minimum" in bounds else 1.0))
    if schema["type"].lower() == "integer":
        return chance.randint(math.ceil(low), math.floor(high))
    value = low + (high - low) * chance.uniform(0.01, 0.99)
    rounded = round(value, 3)
    return rounded if low < rounded < high else value
