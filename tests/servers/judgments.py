"""Answers that fit: an instance of the JSON schema that a request asks for, in any of the three
wire formats.

Instances differ by seed, and the seed is a hash of the request's messages: the same question gets
the same answer."""

from __future__ import annotations

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
_NO_KEYWORDS = {"pattern", "multipleOf", "patternProperties", "propertyNames", "not", "if"}
_BOUND = re.compile(
    r"\b((?:exclusiveM|m)(?:ini|axi)mum|m(?:in|ax)(?:Items|Length)): (-?\d[\d.e+-]*)"
)
_SPREAD = 10.0  # how far a number goes that has one bound only
_RESPONSE = re.compile(r"<RESPONSE (\w+)>\n(.*?)\n</RESPONSE \1>", re.DOTALL)
QUOTED_WORDS = 5
DEEP = 6  # from here on a recursive schema is filled with as little as it allows

Schema = dict[str, Any]


def instance_of(schema: Schema, seed: int = 0, quoted: Sequence[str] = ()) -> Any:
    """A valid instance, the same for the same seed. Its texts are stretches of the `quoted` words,
    where there are any: a judge whose every quote is made up gives no score. Bounds are also read
    where Anthropic's SDK moves them, the description; types also where Google's writes them, in
    capitals. Raises ValueError for a keyword that is not known here (`pattern`) and for bounds that
    leave nothing."""
    return _Writer(schema, random.Random(seed), quoted).write(schema, 0)


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


class _Writer:
    """Writes instances of the parts of one root schema, whose definitions `$ref` names."""

    def __init__(self, root: Schema, chance: random.Random, quoted: Sequence[str]) -> None:
        self._root, self._chance, self._quoted = root, chance, quoted

    def write(self, schema: Schema, depth: int) -> Any:
        schema = self._whole(schema)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self._chance.choice(schema["enum"])
        if schema.get("nullable") and (depth >= DEEP or self._chance.random() < 0.25):
            return None
        if options := schema.get("anyOf") or schema.get("oneOf"):
            return self.write(self._option(options, depth), depth)
        kind = schema.get("type") or ("object" if "properties" in schema else "string")
        if isinstance(kind, list):
            return self.write(
                {**schema, "type": self._option([{"type": name} for name in kind], depth)["type"]},
                depth,
            )
        return self._of_kind(kind.lower(), schema, depth)

    def _whole(self, schema: Schema) -> Schema:
        """The schema with references followed, allOf merged, and bounds that stand in its
        description among its keywords."""
        while "$ref" in schema or "allOf" in schema:
            parts = [
                *schema.get("allOf", ()),
                *([self._referred(schema["$ref"])] if "$ref" in schema else []),
            ]
            schema = {key: value for key, value in schema.items() if key not in ("$ref", "allOf")}
            for part in parts:
                schema = part | schema
        if unknown := _NO_KEYWORDS & schema.keys():
            raise ValueError(
                f"cannot write an instance of a schema with {', '.join(sorted(unknown))}"
            )
        description = schema.get("description", "")
        if description.endswith("}"):
            return {name: float(bound) for name, bound in _BOUND.findall(description)} | schema
        return schema

    def _referred(self, reference: str) -> Schema:
        match: Any = self._root
        for name in reference.removeprefix("#").strip("/").split("/"):
            match = match[name.replace("~1", "/").replace("~0", "~")] if name else match
        return dict(match)

    def _option(self, options: list[Schema], depth: int) -> Schema:
        if depth < DEEP:
            return self._chance.choice(options)
        return next(
            (
                option
                for option in options
                if self._whole(option).get("type") not in ("object", "array")
            ),
            options[0],
        )

    def _of_kind(self, kind: str, schema: Schema, depth: int) -> Any:
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            return self._array(schema, depth)
        if kind == "string":
            return self._string(schema)
        if kind in ("integer", "number"):
            return self._number(schema, kind == "integer")
        return None if kind == "null" else self._chance.random() < 0.5

    def _object(self, schema: Schema, depth: int) -> dict[str, Any]:
        required = schema.get("required", ())
        properties = schema.get("properties", {})
        wanted = [
            name
            for name, part in properties.items()
            if name in required or depth < DEEP or "const" in part
        ]
        out = {name: self.write(properties[name], depth + 1) for name in wanted}
        others = schema.get("additionalProperties")
        if isinstance(others, dict):
            least = int(schema.get("minProperties", 0))
            for index in range(max(least, 0 if depth >= DEEP else self._chance.randint(1, 2))):
                out[f"{self._chance.choice(_WORDS)}_{index}"] = self.write(others, depth + 1)
        return out

    def _array(self, schema: Schema, depth: int) -> list[Any]:
        if "prefixItems" in schema:
            return [self.write(part, depth + 1) for part in schema["prefixItems"]]
        least = int(schema.get("minItems", 0))
        most = int(schema.get("maxItems", least + 2))
        if least > most:
            raise ValueError(f"no list has at least {least} and at most {most} entries")
        count = least if depth >= DEEP else self._chance.randint(least, min(most, least + 2))
        entries: list[Any] = []
        for _ in range(50 * count):  # tries, where entries must differ
            entry = self.write(schema.get("items", {}), depth + 1)
            if not (schema.get("uniqueItems") and entry in entries):
                entries.append(entry)
            if len(entries) == count:
                break
        if len(entries) < least:
            raise ValueError(
                f"found only {len(entries)} different entries for a list of at least {least}"
            )
        return entries

    def _string(self, schema: Schema) -> str:
        least, most = int(schema.get("minLength", 0)), int(schema.get("maxLength", 1 << 30))
        if least > most:
            raise ValueError(f"no text has at least {least} and at most {most} characters")
        if self._quoted:
            start = self._chance.randrange(max(1, len(self._quoted) - QUOTED_WORDS))
            text = " ".join(self._quoted[start : start + QUOTED_WORDS])
        else:
            text = " ".join(self._chance.choices(_WORDS, k=3))
        while len(text) < least:
            text = f"{text} {self._chance.choice(_WORDS)}"
        text = text[:most]
        return f"{text[:-1]}x" if text.endswith(" ") else text

    def _number(self, schema: Schema, whole: bool) -> float:
        """Uniform within the bounds; an exclusive one is never met."""
        low, above = (
            float(schema.get("minimum", -math.inf)),
            float(schema.get("exclusiveMinimum", -math.inf)),
        )
        high, below = (
            float(schema.get("maximum", math.inf)),
            float(schema.get("exclusiveMaximum", math.inf)),
        )
        if whole:
            low, high = _spread(max(low, _step(above, 1)), min(high, _step(below, -1)))
            _refuse_empty(low, high, math.ceil(low) <= math.floor(high))
            return self._chance.randint(math.ceil(low), math.floor(high))
        low, high = _spread(max(low, above), min(high, below))
        _refuse_empty(low, high, low <= high if low > above and high < below else low < high)
        value = low + (high - low) * self._chance.uniform(0.01, 0.99)
        rounded = round(value, 3)
        return rounded if low < rounded < high else value


def _spread(low: float, high: float) -> tuple[float, float]:
    """Both bounds finite: an open side is drawn near the other one, two open sides to 0 and 1."""
    if low == -math.inf and high == math.inf:
        return 0.0, 1.0
    return (high - _SPREAD if low == -math.inf else low), (
        low + _SPREAD if high == math.inf else high
    )


def _step(bound: float, by: int) -> float:
    """The next whole number past a bound; an infinite one stays."""
    if math.isinf(bound):
        return bound
    return math.floor(bound) + 1 if by > 0 else math.ceil(bound) - 1


def _refuse_empty(low: float, high: float, holds_one: bool) -> None:
    if not holds_one:
        raise ValueError(f"no number lies between {low:g} and {high:g}")
