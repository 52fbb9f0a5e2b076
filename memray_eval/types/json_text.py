"""Samples and records as JSON, for fingerprints and columns: the text of
`dumps(value.model_dump(mode="json"))`, faster. pydantic's own writer differs (1e-7) and refuses
lone surrogates."""

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from typing import Any

import numpy as np
import orjson
from pydantic import BaseModel

from memray_eval.types.base import dumps
from memray_eval.types.responses import Candidate
from memray_eval.types.samples import SAMPLE_KEYS, MemoryValue, Sample
from memray_eval.types.scores import Record

# As `dumps`; of a sample, a turn or a response it writes the fields
_encode = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, sort_keys=True, separators=(",", ":"), default=vars
).encode

_LONG = ("memory", *SAMPLE_KEYS)
_FEW = 100  # entries or keys up to which one pass over a sample is faster
LARGE = 1 << 16  # bytes from which orjson, with what has to be checked, is faster than `json`
_MOST_NESTING, _LARGE_FLOAT = 16, 2.0**63
_SAME_AS_JSON = frozenset({str, bool, int})  # which orjson writes as `_encode` does


def sample_to_json(sample: Sample) -> str:
    """A sample as JSON, without `turns` and `user` if it is not a session. Raises ValueError if it
    holds what JSON cannot."""
    fields = dict(_fields(sample))
    if not sample.is_session:
        del fields["turns"], fields["user"]
    if max(len(fields[name]) for name in _LONG) <= _FEW:
        return _encode(fields)
    texts = (
        f'"{name}":{(_encode_texts if name in _LONG else _encode)(value)}'
        for name, value in sorted(fields.items())
    )
    return f"{{{','.join(texts)}}}"


def _encode_texts(value: Mapping[str, MemoryValue] | Sequence[str]) -> str:
    """As `_encode`; of a large memory without lists and fractions in a fifth of the time."""
    items = value.values() if isinstance(value, Mapping) else value
    if len(value) > _FEW and _SAME_AS_JSON.issuperset(map(type, items)):
        with suppress(TypeError):  # a lone surrogate, or an integer of more than 64 bits
            return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    return _encode(value)


def record_to_json(record: Record) -> str:
    """A record without what is as by default: a field that a later version adds leaves the text as
    it is. Raises ValueError if it holds what JSON cannot."""
    rest = {
        "response": record.response,
        "sample": _changed(record.sample, _fields(record.sample)),
        "scores": [score.model_dump(mode="json", exclude_defaults=True) for score in record.scores],
        "unit_id": record.unit_id,
        **({"epoch": record.epoch} if record.epoch > 1 else {}),
    }
    text = _encode_changed(rest)
    return f'{{"candidate":{_candidate_to_json(record.candidate)},{text[1:]}'


def _changed(model: BaseModel, fields: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
    """The fields of a model, else its own, that are not as by default; a turn has no defaults."""
    defaults, fields = _defaults(type(model)), vars(model) if fields is None else fields
    return {
        name: value
        for name, value in fields.items()
        if name not in defaults or value != defaults[name]
    }


@cache
def _defaults(model: type[BaseModel]) -> dict[str, Any]:
    """The defaults of a model's fields that have one."""
    fields = model.model_fields.items()
    return {
        name: field.get_default(call_default_factory=True)
        for name, field in fields
        if not field.is_required()
    }


_encode_changed = json.JSONEncoder(
    ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=_changed
).encode


def field_to_json(sample: Sample, name: str) -> str:
    """A field of a sample that is a list or an object."""
    if not getattr(sample, name):  # as most are
        return "[]" if name == "history" else "{}"
    if name == "memory":
        return _encode_texts(sample.memory)
    return _encode(_fields(sample)[name])


def _fields(sample: Sample) -> Mapping[str, Any]:
    """The fields of a sample, with metadata that JSON can hold."""
    if all(map(is_plain_json, sample.metadata.values())):
        return vars(sample)
    return {**vars(sample), **sample.model_dump(mode="json", include={"metadata"})}


def read_large(data: bytes | str) -> Any:
    """As `json.loads` of a large text, in two thirds of the time; None if the result may differ, as
    with NaN and integers of more than 64 bits, it nests deep, or bytes may have a key twice."""
    try:
        value = orjson.loads(data)
        n_keys = _count_keys([value])
    except ValueError:
        return None
    if isinstance(data, str):  # our own
        return value
    characters = np.frombuffer(data, np.uint8)
    # A colon after a key is one after a quote or a blank; others may be within texts
    is_after_key = (characters[1:] == ord(":")) & (characters[:-1] <= ord('"'))
    return value if np.count_nonzero(is_after_key) == n_keys else None


def _count_keys(value: Any, depth: int = 0) -> int:
    """The keys of all objects in a list or object. Raises ValueError if a float is so large that it
    may have been an integer, or it nests deep."""
    n_keys, values = (len(value), value.values()) if type(value) is dict else (0, value)
    kinds = {*map(type, values)}
    floats = (abs(item) for item in values if type(item) is float) if float in kinds else ()
    if depth > _MOST_NESTING or max(floats, default=0.0) >= _LARGE_FLOAT:
        raise ValueError("orjson may have read another value")
    if kinds.isdisjoint((dict, list)):
        return n_keys
    nested = (item for item in values if type(item) in (dict, list))
    return n_keys + sum(_count_keys(item, depth + 1) for item in nested)


def is_plain_json(value: Any) -> bool:
    """True if JSON can hold the value as it is."""
    kind = type(value)
    return kind in (str, int, bool) or value is None or (kind is float and math.isfinite(value))


@lru_cache(256)  # few candidates answer many rows
def candidate_from_json(text: str) -> Candidate:
    """A candidate that a run stored. Raises ValidationError."""
    return Candidate.model_validate_json(text)


@lru_cache(256)
def _candidate_to_json(candidate: Candidate) -> str:
    return dumps(candidate.model_dump(mode="json", exclude_defaults=True))
