"""A task that Ray runs again, because what it made was lost with a node, takes the responses that
are stored already."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pyarrow as pa
import pytest

from memray_eval.benchmarks.own import SuiteSource
from memray_eval.datasets.reading import SampleReader
from memray_eval.execution.prompt_stage import (
    PROMPT,
    RECORD,
    SAMPLE,
    PromptSpec,
    prompts_for_servers,
)
from memray_eval.execution.resume_state import ResumeState, UnitIdSet
from memray_eval.results.run_folder import RESPONSES, RunFolder
from memray_eval.results.schema import to_table
from memray_eval.stages.generate import new_record
from memray_eval.types import Candidate, Record, Response, Sample

CANDIDATES = [Candidate(name=name, model="m", backend="openai") for name in ("a", "b")]


@pytest.fixture
def units(sample: Sample) -> list[Record]:
    return [
        new_record(sample.model_copy(update={"id": f"s{number}"}), candidate)
        for number in range(3)
        for candidate in CANDIDATES
    ]


def asked(
    tmp_path: Path, units: list[Record], resume_state: ResumeState, is_again: bool
) -> list[dict[str, Any]]:
    context = MagicMock(folder=str(tmp_path))
    context.is_stopping.return_value = False
    asking = PromptSpec(
        reading=SampleReader(suite="memory"),
        suite=SuiteSource("memory"),
        candidates=CANDIDATES,
        resume_state=resume_state,
        context=context,
        is_repeated=lambda: is_again,
    )
    table = pa.table({SAMPLE: [one.sample.model_dump_json() for one in units[::2]]})
    return [row for out in prompts_for_servers(table, asking) for row in out.to_pylist()]


@pytest.mark.parametrize("is_again", [True, False])
def test_stored_responses_are_taken_when_a_task_is_run_again(
    tmp_path: Path, units: list[Record], is_again: bool
) -> None:
    folder = RunFolder(str(tmp_path))
    folder.create()
    answered = [
        unit.model_copy(update={"response": Response(text=f"the first answer of {number}")})
        for number, unit in enumerate(units)
    ]
    # In other blocks than those of the task
    folder.write_part(to_table([answered[1], answered[4]]), RESPONSES)
    folder.write_part(to_table([answered[2]]), RESPONSES)
    earlier = ResumeState(finished=UnitIdSet([units[0].unit_id]))
    rows = asked(tmp_path, units, earlier, is_again)
    assert [json.loads(row[RECORD])["unit_id"] for row in rows] == [
        unit.unit_id for unit in units[1:]
    ]
    is_asked = [row[PROMPT] is not None for row in rows]
    assert is_asked == ([False, False, True, False, True] if is_again else [True] * 5)
    if is_again:
        taken = [Record.model_validate_json(row[RECORD]) for row in rows if row[PROMPT] is None]
        assert taken == [answered[1], answered[2], answered[4]]


def test_only_the_wanted_units_are_found(tmp_path: Path, units: list[Record]) -> None:
    folder = RunFolder(str(tmp_path))
    folder.create()
    assert folder.find_responses(["ab" * 8]).num_rows == 0
    for unit in units:
        folder.write_part(to_table([unit]), RESPONSES)
    folder.write_part(to_table(units), RESPONSES)  # a block that was written twice, in other parts
    wanted = [units[0].unit_id, units[3].unit_id, "ab" * 8]
    assert sorted(folder.find_responses(wanted).column("unit_id").to_pylist()) == sorted(wanted[:2])
