"""Frozen, the base of all values, and the field types that several of them share."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, StrictStr

Name = Annotated[StrictStr, Field(min_length=1)]

Temperature = Annotated[float, Field(ge=0.0, le=2.0)]

Share = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]


class Frozen(BaseModel):
    """Immutable, and a field it does not know is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def trusted(cls, values: dict[str, Any], fields_set: set[str]) -> Self:
        """An instance of `values`, every field in the order of the class and known to be valid, of
        which `fields_set` were set: what validating them would make, in a tenth of the time."""
        instance, assign = cls.__new__(cls), object.__setattr__
        assign(instance, "__dict__", values)
        assign(instance, "__pydantic_fields_set__", fields_set)
        assign(instance, "__pydantic_extra__", None)
        assign(instance, "__pydantic_private__", None)
        return instance


def dumps(value: Mapping[str, Any] | list[Any]) -> str:
    """Compact JSON for a free-form column: sorted keys, Unicode kept."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
