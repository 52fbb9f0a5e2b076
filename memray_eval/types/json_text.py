"""Samples and records as JSON, for fingerprints and for the columns that hold it: the text that
`dumps(value.model_dump(mode="json"))` makes, in a tenth of the time."""

from __future__ import annotations

import json
import math
from functools import lru_cache
from typing import Any

from memray_eval.types.base import dumps
from memray_eval.types.responses import Candidate, Response
from memray_eval.types.samples import Sample
from memray_eval.types.scores import Record

_quote = json.encoder.encode_basestring
_SAMPLE_FIELDS = tuple(sorted(Sample.model_fields))
_RESPONSE_FIELDS = tuple(sorted(Response.model_fields))


def sample_to_json(sample: Sample) -> str:
    """A sample. Raises ValueError where it holds what JSON cannot."""
    fields = ",".join([f'"{name}":{field_to_json(sample, name)}' for name in _SAMPLE_FIELDS])
    return f"{{{fields}}}"


def record_to_json(record: Record) -> str:
    """A record. Raises ValueError where it holds what JSON cannot."""
    scores = dumps([score.model_dump(mode="json") for score in record.scores])
    return (
        f'{{"candidate":{_candidate_to_json(record.candidate)},'
        f'"response":{_response_to_json(record.response)},'
        f'"sample":{sample_to_json(record.sample)},'
        f'"scores":{scores},"unit_id":{_quote(record.unit_id)}}}'
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
    if name == "history":
        value = [turn.model_dump() for turn in value]
    elif name == "metadata" and not all(map(_is_plain, value.values())):
        value = sample.model_dump(mode="json", include={name})[name]
    return dumps(value)


def _is_plain(value: Any) -> bool:
    """Whether JSON has the value as it is."""
    kind = type(value)
    return kind in (str, int, bool) or value is None or (kind is float and math.isfinite(value))


@lru_cache(256)
def _candidate_to_json(candidate: Candidate) -> str:
    return dumps(candidate.model_dump(mode="json"))


def _response_to_json(response: Response | None) -> str:
    if response is None:
        return "null"
    values = vars(response)
    if not all(map(_is_plain, values.values())):
        return dumps(response.model_dump(mode="json"))
    fields = ",".join([f'"{name}":{_scalar_to_json(values[name])}' for name in _RESPONSE_FIELDS])
    return f"{{{fields}}}"


def _scalar_to_json(value: str | float | None) -> str:
    if value is None:
        return "null"
    return _quote(value) if isinstance(value, str) else json.dumps(value)
