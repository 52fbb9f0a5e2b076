"""Errata: questions whose right answer, or whose evidence, an audit found to be wrong, in the
format of dial481/locomo-audit."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from memray_eval.errors import ConfigError, reason_of
from memray_eval.storage.paths import locate, open_reader
from memray_eval.types import Frozen

CITATION = "WRONG_CITATION"  # its evidence is wrong, and its answer right
# The conversations of locomo10.json in their order, by which the audit numbers them
LOCOMO = ("conv-26", "conv-30", "conv-41", "conv-42", "conv-43", "conv-44", "conv-47", "conv-48",
          "conv-49", "conv-50")  # fmt: skip
_AUDITED = re.compile(r"locomo_(\d+)_qa(\d+)")


class Erratum(Frozen):
    """An error of a published question. `golden` is the answer that its benchmark has."""

    question_id: str
    error_type: str
    golden: str
    correct: str

    @property
    def is_answer_wrong(self) -> bool:
        return self.error_type != CITATION


def sample_id(question_id: str) -> str:
    """The id of our sample for a question as the audit numbers it: locomo_0_qa1 is conv-26:qa1."""
    match = _AUDITED.fullmatch(question_id)
    if match is None or int(match[1]) >= len(LOCOMO):
        return question_id
    return f"{LOCOMO[int(match[1])]}:qa{int(match[2])}"


def read_errata(path: str) -> Mapping[str, Erratum]:
    """The errata by the ids of samples. Raises ConfigError that names file, entry and field."""
    try:
        with open_reader(*locate(path)) as file:
            entries = json.loads(file.read().decode("utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError(f"errata: no file {path}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"errata: cannot read {path}: {reason_of(error)}") from None
    if not isinstance(entries, list) or not entries:
        raise ConfigError(f"errata: {path} must be a list of objects with question_id")
    errata: dict[str, Erratum] = {}
    for number, raw in enumerate(entries, 1):
        erratum = _read_erratum(path, number, raw)
        key = sample_id(erratum.question_id)
        if key in errata:
            raise ConfigError(f"errata: {path}, entry {number}: {erratum.question_id} stands twice")
        errata[key] = erratum
    return errata


def _read_erratum(path: str, number: int, raw: Any) -> Erratum:
    if not isinstance(raw, Mapping):
        raise ConfigError(f"errata: {path}, entry {number}: must be an object")
    for name in ("question_id", "error_type"):
        if not isinstance(raw.get(name), str) or not raw[name]:
            raise ConfigError(f"errata: {path}, entry {number}: {name} is missing, or no text")
    return Erratum(
        question_id=raw["question_id"],
        error_type=raw["error_type"].upper(),
        **{
            field: "" if raw.get(f"{field}_answer") is None else str(raw[f"{field}_answer"])
            for field in ("golden", "correct")
        },
    )
