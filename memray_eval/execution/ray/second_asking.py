"""Asks an engine once more, with a larger limit, where the limit was used up without an answer."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

import numpy as np
import pyarrow as pa

from memray_eval.execution.prompt_stage import (
    ANSWER,
    ANSWER_TYPE,
    FORM,
    SAMPLING,
    SECOND,
    TRUNCATED,
)
from memray_eval.stages.generate import engine_response
from memray_eval.types import RETRIED
from memray_eval.types.json_text import candidate_from_json


async def ask_again(
    table: pa.Table, answered: pa.Table, ask: Callable[[pa.Table], Awaitable[pa.Table]]
) -> pa.Table:
    """Rows that were answered, with SECOND: what was answered with the candidate's
    `retry_max_tokens`, null where nothing was asked again. `table` are the same rows as they were
    asked."""
    limits = _raised_limits(answered)
    asked = np.array([limit is not None for limit in limits], np.bool_)
    if not asked.any():
        return answered.append_column(SECOND, pa.nulls(answered.num_rows, ANSWER_TYPE))
    rows = table.filter(pa.array(asked))
    place = rows.schema.get_field_index(SAMPLING)
    pairs = zip(rows.column(SAMPLING).to_pylist(), filter(None, limits), strict=True)
    raised = [
        json.dumps({**json.loads(sampling), "max_tokens": limit}) for sampling, limit in pairs
    ]
    field = rows.schema.field(place)
    found = await ask(rows.set_column(place, field, pa.array(raised, field.type)))
    second = found.column(ANSWER).combine_chunks()
    places = pa.array(np.cumsum(asked) - 1, mask=~asked)
    return answered.append_column(SECOND, second.take(places))


def _raised_limits(answered: pa.Table) -> list[int | None]:
    """The limit with which each row is to be asked again; None where it is not."""
    configs = answered.column("candidate_config")
    limits = {
        text: candidate_from_json(text).retry_max_tokens for text in configs.unique().to_pylist()
    }
    if not any(limits.values()):
        return [None] * answered.num_rows
    found = list[int | None]()
    for row in answered.select(["candidate_config", FORM, TRUNCATED, ANSWER]).to_pylist():
        try:
            is_again = engine_response({**row, **row[ANSWER]}).no_answer in RETRIED
        except Exception:  # nothing was asked, or the answer is odd, which is told where it is kept
            is_again = False
        found.append(limits[row["candidate_config"]] if is_again else None)
    return found
