"""Samples and records as JSON, for fingerprints and for the columns that hold it: the text that
`dumps(value.model_dump(mode="json"))` makes, in a tenth of the time."""

from __future__ import annotations

import json
import math
from functools import lru_cache
from typing import Any

from memray_eval.types.base import Frozen, dumps
from memray_eval.types.responses import Candidate, Response
from memray_eval.types.samples import Sample
from memray_eval.types.scores import Record

_quote = json.encoder.encode_basestring
_TEXTS = ("required_keys", "forbidden_keys", "neutral_keys", "answers", "classes")


def sample_to_json(sample: Sample) -> str:
    """A sample. Raises ValueError where it holds what JSON cannot."""
    parts = _SAMPLE_PARTS.copy()
    for name in sample.model_fields_set:
        parts[_SAMPLE_PLACES[name]] = f'"{name}":{field_to_json(sample, name)}'
    return f"{{{','.join(parts)}}}"


def record_to_json(record: Record) -> str:
    """A record. Raises ValueError where it holds what JSON cannot."""
    scores = [score.model_dump(mode="json") for score in record.scores]
    return (
        f'{{"candidate":{_candidate_to_json(record.candidate)},'
        f'"response":{_response_to_json(record.response)},'
        f'"sample":{sample_to_json(record.sample)},'
        f'"scores":{dumps(scores) if scores else "[]"},"unit_id":{_quote(record.unit_id)}}}'
    )


def field_to_json(sample: Sample, name: str) -> str:
    """A field of a sample."""
    value = getattr(sample, name)
    if type(value) is str:
        return _quote(value)
    if value is None:
        return "null"
    if not value:
        return "{}" if isinstance(value, dict) else "[]"
    if name in _TEXTS:
        return f"[{','.join(map(_quote, value))}]"
    if name == "history":
        value = [turn.model_dump() for turn in value]
    elif name == "metadata" and not all(map(is_plain_json, value.values())):
        value = sample.model_dump(mode="json", include={name})[name]
    return dumps(value)


def is_plain_json(value: Any) -> bool:
    """Whether JSON has the value as it is."""
    kind = type(value)
    return kind in (str, int, bool) or value is None or (kind is float and math.isfinite(value))


# Few candidates answer many rows
candidate_from_json = lru_cache(256)(Candidate.model_validate_json)


@lru_cache(256)
def _candidate_to_json(candidate: Candidate) -> str:
    return dumps(candidate.model_dump(mode="json"))


def _response_to_json(response: Response | None) -> str:
    if response is None:
        return "null"
    parts = _RESPONSE_PARTS.copy()
    for name in response.model_fields_set:
        value = getattr(response, name)
        if not is_plain_json(value):
            return dumps(response.model_dump(mode="json"))
        text = _quote(value) if isinstance(value, str) else json.dumps(value)
        parts[_RESPONSE_PLACES[name]] = f'"{name}":{text}'
    return f"{{{','.join(parts)}}}"


def _default_parts(model: type[Frozen]) -> tuple[list[str], dict[str, int]]:
    """The fields of a model with their defaults as JSON, in the order of `dumps`, and the place of
    each: what was not set has its default."""
    names = sorted(model.model_fields)
    defaults = {name: model.model_fields[name] for name in names}
    parts = [
        f'"{name}":'
        + ("" if field.is_required() else json.dumps(field.get_default(call_default_factory=True)))
        for name, field in defaults.items()
    ]
    return parts, {name: place for place, name in enumerate(names)}


_SAMPLE_PARTS, _SAMPLE_PLACES = _default_parts(Sample)
_RESPONSE_PARTS, _RESPONSE_PLACES = _default_parts(Response)
