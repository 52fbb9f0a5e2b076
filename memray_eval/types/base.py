"""Frozen, the base of all values, and the field types that several of them share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictStr

Name = Annotated[StrictStr, Field(min_length=1)]

Temperature = Annotated[float, Field(ge=0.0, le=2.0)]

Share = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]


class Frozen(BaseModel):
    """Immutable, and a field it does not know is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def dumps(value: Mapping[str, Any] | list[Any]) -> str:
    """Compact JSON for a free-form column: sorted keys, Unicode kept."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
