from typing import Any

from memray_eval.results.schema import to_table
from memray_eval.types import Record


def to_row(record: Record) -> dict[str, Any]:
    """The record as a sink reads it from a run's folder."""
    (row,) = to_table([record]).to_pylist(maps_as_pydicts="strict")
    return dict(row)
