"""A policy for `compare --policy`: by how much metrics may fall, and what is to be shown of it.

gates:
  - {metric: empathy, margin: 0.2, tier: must, least_n: 40}
calibrations: [empathy.json]  # what `calibrate LABELLED --json` printed of the judges
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeAlias

import yaml
from pydantic import Field, ValidationError

from memray_eval.config.problems import describe
from memray_eval.config.strict_yaml import parse_yaml
from memray_eval.errors import ConfigError, reason_of
from memray_eval.types import Frozen

Tier: TypeAlias = Literal["must", "may"]


class PolicyGate(Frozen):
    """A metric that is not to fall by more than `margin`, shown on `least_n` units or more. What
    `may` fail changes no exit code."""

    metric: str
    margin: float = Field(ge=0, allow_inf_nan=False)
    tier: Tier = "must"
    least_n: int = Field(default=0, ge=0)


class Policy(Frozen):
    """The gates; a judge gates if one of `calibrations` (files, from the policy's folder) is of it
    and the run's rubric and says that it may be used, or with `allow_uncalibrated`."""

    gates: tuple[PolicyGate, ...] = Field(min_length=1)
    allow_uncalibrated: bool = False
    calibrations: tuple[str, ...] = ()


def read_policy(path: Path) -> Policy:
    """Reads a policy's YAML. Raises ConfigError, one line, for anything that is none."""
    try:
        return Policy.model_validate(parse_yaml(path.read_text("utf-8")))
    except ValidationError as error:
        raise ConfigError(f"{path}: {'; '.join(describe(error, Policy))}") from None
    except (OSError, UnicodeError, yaml.YAMLError) as error:
        reason = " ".join(reason_of(error).split())
        raise ConfigError(f"--policy {path} cannot be read: {reason}") from None
