"""Responses that exist already, as records to judge: a run folder's rows, seed 000's responses_*.json, JSONL or Parquet."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from memray_eval.datasets.parsing import Fault, InvalidSample, parse_sample
from memray_eval.rows import RESPONSE_COLUMNS
from memray_eval.types import GIVEN, Candidate, Record, Response, Spoken, split_thinking, unit_id

# The first that a row has is its response.
TEXT_FIELDS = ("response", "assistant_response", "prediction", "pred", "output", "answer")
QUERY_FIELDS = ("query", "prompt", "question")
_OURS = ("unit_id", "scores", "candidate_config")


def parse_answer(raw: Any, suite: str) -> Record:
    """A raw object with a query (or prompt) and a response, beside any fields of a sample, as a Record without scores.

    `model` and `candidate` name who answered. Raises InvalidSample with every fault.
    """
    if not isinstance(raw, dict):
        raise InvalidSample([Fault(message=f"a row must be a JSON object, not {type(raw).__name__}")])
    fields = {name: value for name, value in raw.items() if value is not None}
    candidate = _candidate(fields)
    response = _response(fields)
    if "sample_id" in fields:
        fields["id"] = fields.pop("sample_id")
    query = next((name for name in QUERY_FIELDS if name in fields), None)
    if query not in (None, "query"):
        fields["query"] = fields.pop(query)
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
    return Record(unit_id=unit_id(sample.id, candidate, suite), sample=sample, candidate=candidate, response=response)


def _candidate(fields: dict[str, Any]) -> Candidate:
    """Who answered: a run's own candidate where the row has it, else one by the names that the row gives."""
    config, name, model = fields.get("candidate_config"), fields.pop("candidate", None), fields.pop("model", None)
    if config is not None:
        try:
            return Candidate.model_validate_json(config) if isinstance(config, str) else Candidate.model_validate(config)
        except ValidationError as invalid:
            first = invalid.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            text = f"is no candidate's configuration: {where + ': ' if where else ''}{first['msg']}; mend it, or leave it out"
            sample_id = str(fields.get("sample_id") or fields.get("id") or "")
            raise InvalidSample([Fault(field="candidate_config", message=text)], sample_id) from None
    label = next((str(value) for value in (name, model) if value), GIVEN)
    return Candidate(name=label, model=str(model or label), backend=GIVEN)


def _response(fields: dict[str, Any]) -> Response | None:
    names = {column: field for field, (column, _) in RESPONSE_COLUMNS.items() if column not in ("response", "error")}
    given = {field: fields.pop(column) for column, field in names.items() if column in fields}
    error = fields.pop("error", None)
    texts = [fields.pop(name) for name in TEXT_FIELDS if name in fields]
    if not texts and error is None:
        return None
    spoken = split_thinking(texts[0]) if texts and isinstance(texts[0], str) else Spoken(texts[0] if texts else "")
    said = {"text": spoken.text, **({"thinking": spoken.thinking, "thinking_blocks": spoken.blocks} if spoken.blocks else {})}
    try:
        return Response.model_validate({**given, **said, "error": error})
    except ValidationError as invalid:
        first = invalid.errors()[0]
        raise InvalidSample([Fault(field=str(first["loc"][0]), message=first["msg"])], str(fields.get("id") or "")) from None
