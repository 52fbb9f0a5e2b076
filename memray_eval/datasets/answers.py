"""Responses that exist already, as records to judge: a run folder's rows, seed 000's
responses_*.json, JSONL or Parquet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from memray_eval.datasets.parsing import Fault, InvalidSample, parse_sample
from memray_eval.results.schema import RESPONSE_COLUMNS
from memray_eval.types import (
    BIG_FIVE,
    EXISTING,
    Candidate,
    ParsedOutput,
    Record,
    Response,
    split_thinking,
    unit_id,
)

# The first that a row has is its response.
TEXT_FIELDS = ("response", "assistant_response", "prediction", "pred", "output", "answer")
QUERY_FIELDS = ("query", "prompt", "question")
# What other programs call the right answers and the user's traits.
ANSWERS_FIELDS = (
    "answers",
    "ground_truth",
    "ground_truths",
    "expected",
    "expected_answer",
    "expected_output",
    "reference",
    "references",
    "reference_answer",
)
TRAITS_FIELDS = ("traits", "personality", "big_five")
MODEL_FIELDS = ("model", "model_name")
FUSED = "fused"  # of several distributions of emotion (speech, text, fused) the one that counts
_OURS = ("unit_id", "scores", "candidate_config")


def rename_aliases(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A row with our names for its fields, empty ones left out: the query (a published benchmark's
    record keeps its own), the answers as a list of text, the traits, and of nested emotions the
    fused one."""
    fields = {name: value for name, value in raw.items() if value is not None}
    if "_id" not in fields and "input" not in fields:
        _rename(fields, "query", QUERY_FIELDS)
    _rename(
        fields,
        "answers",
        ANSWERS_FIELDS,
        lambda value: isinstance(value, _SCALARS) or _is_list_of_scalars(value),
    )
    if "answers" in fields:
        fields["answers"] = _texts(fields["answers"])
    _rename(fields, "traits", TRAITS_FIELDS, lambda value: _big_five(value) is not None)
    if (traits := _big_five(fields.get("traits"))) is not None:
        fields["traits"] = traits
    if isinstance(emotion := fields.get("emotion"), dict) and any(
        isinstance(value, dict) for value in emotion.values()
    ):
        fields["emotion"] = _fused(emotion, str(fields.get("id") or fields.get("sample_id") or ""))
    return fields


def _big_five(value: Any) -> dict[str, Any] | None:
    """The Big Five of a row's personality, whatever the case of their names, and also where they
    stand one level down; None where it holds none of them (a description in words)."""
    if not isinstance(value, dict):
        return None
    inner = next(
        (value[name] for name in TRAITS_FIELDS if isinstance(value.get(name), dict)), value
    )
    traits = {str(name).lower(): score for name, score in inner.items()}
    return traits if set(BIG_FIVE) & set(traits) else None


def _fused(emotions: Mapping[str, Any], sample_id: str) -> dict[str, Any]:
    """Of several distributions the fused one, or the only one. Raises InvalidSample where neither
    is there."""
    apart = {name: value for name, value in emotions.items() if isinstance(value, dict)}
    found = apart.get(FUSED) or (next(iter(apart.values())) if len(apart) == 1 else None)
    if found is None:
        told = (
            f"holds several distributions ({', '.join(apart)}) and none called {FUSED!r}; name "
            f"the one that counts so"
        )
        raise InvalidSample([Fault(field="emotion", message=told)], sample_id)
    return dict(found)


_SCALARS = (str, int, float)


def _rename(
    fields: dict[str, Any],
    name: str,
    aliases: tuple[str, ...],
    fits: Callable[[Any], bool] = lambda value: True,
) -> None:
    """Puts the first alias whose value fits in the place of a field that is not there; what does
    not fit stays as it is."""
    if name in fields:
        return
    if found := next((alias for alias in aliases if alias in fields and fits(fields[alias])), None):
        fields[name] = fields.pop(found)


def _is_list_of_scalars(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(one, _SCALARS) for one in value)


def _texts(value: Any) -> Any:
    """Answers as a list of text; what is neither text, a number nor a list of these stays, and is
    told when it is checked."""
    if isinstance(value, _SCALARS):
        return [_text(value)]
    return [_text(one) for one in value] if _is_list_of_scalars(value) else value


def _text(value: str | float) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def answered_by(fields: Mapping[str, Any]) -> str:
    """The name of who answered, as the row gives it."""
    return next(
        (str(fields[name]) for name in ("candidate", *MODEL_FIELDS) if fields.get(name)), EXISTING
    )


def parse_answer(raw: Any, suite: str) -> Record:
    """A raw object with a query (or prompt) and a response, beside any fields of a sample, as a
    Record without scores.

    `model` (or `model_name`) and `candidate` name who answered; `rename_aliases` says what else its
    fields may be called. Raises InvalidSample with every fault."""
    if not isinstance(raw, dict):
        raise InvalidSample(
            [Fault(message=f"a row must be a JSON object, not {type(raw).__name__}")]
        )
    fields = rename_aliases(raw)
    candidate = _candidate(fields)
    response = _response(fields)
    if "sample_id" in fields:
        fields["id"] = fields.pop("sample_id")
    if isinstance(number := fields.get("id"), int) and not isinstance(number, bool):
        fields["id"] = str(number)
    for name in _OURS:
        fields.pop(name, None)
    missing = Fault(field="response", message=f"missing; it may be called {', '.join(TEXT_FIELDS)}")
    faults = [] if response is not None else [missing]
    try:
        sample = parse_sample(fields, suite)
    except InvalidSample as error:
        raise InvalidSample([*faults, *error.faults], error.sample_id) from None
    if faults:
        raise InvalidSample(faults, sample.id)
    return Record(
        unit_id=unit_id(sample.id, candidate, suite),
        sample=sample,
        candidate=candidate,
        response=response,
    )


def _candidate(fields: dict[str, Any]) -> Candidate:
    """Who answered: a run's own candidate where the row has it, else one by the names that the row
    gives."""
    config, name = fields.get("candidate_config"), fields.pop("candidate", None)
    model = next((fields[field] for field in MODEL_FIELDS if fields.get(field)), None)
    for field in MODEL_FIELDS:
        fields.pop(field, None)
    if config is not None:
        try:
            return (
                Candidate.model_validate_json(config)
                if isinstance(config, str)
                else Candidate.model_validate(config)
            )
        except ValidationError as invalid:
            first = invalid.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            text = (
                f"is no candidate's configuration: "
                f"{where + ': ' if where else ''}{first['msg']}; mend it, or leave it out"
            )
            sample_id = str(fields.get("sample_id") or fields.get("id") or "")
            raise InvalidSample(
                [Fault(field="candidate_config", message=text)], sample_id
            ) from None
    label = next((str(value) for value in (name, model) if value), EXISTING)
    return Candidate(name=label, model=str(model or label), backend=EXISTING)


def _response(fields: dict[str, Any]) -> Response | None:
    names = {
        column: field
        for field, (column, _) in RESPONSE_COLUMNS.items()
        if column not in ("response", "error")
    }
    given = {field: fields.pop(column) for column, field in names.items() if column in fields}
    error = fields.pop("error", None)
    texts = [fields.pop(name) for name in TEXT_FIELDS if name in fields]
    if not texts and error is None:
        return None
    spoken = (
        split_thinking(texts[0])
        if texts and isinstance(texts[0], str)
        else ParsedOutput(texts[0] if texts else "")
    )
    said = {
        "text": spoken.text,
        **(
            {"thinking": spoken.thinking, "thinking_blocks": spoken.blocks} if spoken.blocks else {}
        ),
    }
    try:
        return Response.model_validate({**given, **said, "error": error})
    except ValidationError as invalid:
        first = invalid.errors()[0]
        raise InvalidSample(
            [Fault(field=str(first["loc"][0]), message=first["msg"])], str(fields.get("id") or "")
        ) from None
