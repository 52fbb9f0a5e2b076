"""A task that Ray runs again, because what it made was lost with a node, takes the responses that
are stored already."""

import json
from pathlib import Path
from unittest.mock import AsyncMock, MagicMock

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from memray_eval.benchmarks.own import SuiteSource
from memray_eval.config.sections import ServerConfig
from memray_eval.datasets.reading import SampleReader
from memray_eval.execution.resume_state import ResumeState, UnitIdSet
from memray_eval.execution.stages.blocks import AskServers
from memray_eval.execution.stages.context import StageContext
from memray_eval.execution.stages.generate import new_record
from memray_eval.execution.stages.prompt import (
    ENGINE_SCHEMA,
    PROMPT,
    SAMPLING,
    TOKENS,
    PromptSpec,
    prompts_to_ask,
    take_stored,
)
from memray_eval.models import openai_generator
from memray_eval.results.run_folder import RESPONSES, RunFolder
from memray_eval.results.schema import RECORD_SCHEMA, from_table, samples_to_table, to_table
from memray_eval.types import Candidate, Prompt, Record, Response, Sample

CANDIDATES = [Candidate(name=name, model="m", backend="openai") for name in ("a", "b")]


@pytest.fixture
def units(sample: Sample) -> list[Record]:
    return [
        new_record(sample.model_copy(update={"id": f"s{number}"}), candidate)
        for number in range(3)
        for candidate in CANDIDATES
    ]


def context_of(folder: Path) -> StageContext:
    counter = MagicMock()
    counter.stopping.return_value = None
    counter.is_stopping = AsyncMock(return_value=False)
    return StageContext(str(folder), counter)


def requests(
    tmp_path: Path, units: list[Record], resume_state: ResumeState, is_again: bool
) -> pa.Table:
    context = context_of(tmp_path)
    asking = PromptSpec(
        reading=SampleReader(suite="memory"),
        suite=SuiteSource("memory"),
        candidates=CANDIDATES,
        resume_state=resume_state,
        context=context,
        is_repeated=lambda: is_again,
    )
    table = samples_to_table([unit.sample for unit in units[::2]])
    return pa.concat_tables(prompts_to_ask(table, asking))


def store(path: Path, units: list[Record]) -> list[Record]:
    """All units with a response; those of 1, 2 and 4 are in the run's folder, in other blocks than
    those of the task."""
    folder = RunFolder(str(path))
    folder.create()
    answered = [
        unit.model_copy(update={"response": Response(text=f"the first answer of {number}")})
        for number, unit in enumerate(units)
    ]
    folder.write_part(to_table([answered[1], answered[4]]), RESPONSES)
    folder.write_part(to_table([answered[2]]), RESPONSES)
    return answered


@pytest.mark.parametrize("is_again", [True, False])
def test_stored_responses_are_taken_when_a_task_is_run_again(
    tmp_path: Path, units: list[Record], is_again: bool
) -> None:
    answered = store(tmp_path, units)
    earlier = ResumeState(finished=UnitIdSet([units[0].unit_id]))
    rows = requests(tmp_path, units, earlier, is_again)
    assert rows.column("unit_id").to_pylist() == [unit.unit_id for unit in units[1:]]
    is_asked = rows.column(PROMPT).is_valid()
    assert is_asked.to_pylist() == ([False, False, True, False, True] if is_again else [True] * 5)
    if is_again:
        taken = rows.filter(pc.invert(is_asked)).select(RECORD_SCHEMA.names)
        assert list(from_table(taken)) == [answered[1], answered[2], answered[4]]


@pytest.mark.parametrize("is_restarted", [True, False])
async def test_a_restarted_client_asks_for_no_response_that_is_stored(
    tmp_path: Path, units: list[Record], is_restarted: bool
) -> None:
    """The block that it is to make again is the one that it was sent: its prompts are there."""
    answered = store(tmp_path, units)
    rows = requests(tmp_path, units, ResumeState(), is_again=False)

    class Server:
        def __init__(self, candidate: Candidate, config: ServerConfig, port: object) -> None:
            pass

        async def generate(self, prompt: Prompt, candidate: Candidate) -> Response:
            return Response(text="another answer")

    client = AskServers(ServerConfig(), context_of(tmp_path), lambda: is_restarted)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(openai_generator, "OpenAIGenerator", Server)
        records = [
            record
            for table in ([out async for out in client(rows)])
            for record in from_table(table)
        ]
    kept = {1, 2, 4} if is_restarted else set()
    assert [record.unit_id for record in records] == [unit.unit_id for unit in units]
    assert [record.response and record.response.text for record in records] == [
        f"the first answer of {number}" if number in kept else "another answer"
        for number in range(len(units))
    ]
    if is_restarted:
        assert [records[number] for number in sorted(kept)] == [answered[n] for n in (1, 2, 4)]


async def test_each_answer_is_kept_before_its_block_is_whole(
    tmp_path: Path, units: list[Record]
) -> None:
    folder = RunFolder(str(tmp_path))
    folder.create()
    rows = requests(tmp_path, units, ResumeState(), is_again=False)
    rows = rows.filter(pc.equal(rows.column("candidate"), "a"))
    kept = list[int]()

    class Server:
        def __init__(self, candidate: Candidate, config: ServerConfig, port: object) -> None:
            pass

        async def generate(self, prompt: Prompt, candidate: Candidate) -> Response:
            parts = folder.parts(RESPONSES)
            kept.append(sum(folder.read_part(part, RESPONSES).num_rows for part in parts))
            return Response(text="an answer", output_tokens=2**70 if len(kept) == 2 else 2)

    client = AskServers(ServerConfig(max_in_flight=1), context_of(tmp_path))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(openai_generator, "OpenAIGenerator", Server)
        answered = await client.answer(rows)
    assert kept == [0, 1, 1]  # nothing holds the second
    assert answered.column("unit_id").to_pylist() == rows.column("unit_id").to_pylist()
    assert answered.column("error").is_valid().to_pylist() == [False, True, False]
    assert RunFolder(str(tmp_path)).find_units(rows.column("unit_id").to_pylist()).num_rows == 2


def test_a_restarted_engine_has_nothing_to_ask_where_a_response_is_stored(
    tmp_path: Path, units: list[Record]
) -> None:
    answered = store(tmp_path, units)
    asks = {TOKENS: b"1234", SAMPLING: json.dumps({"temperature": 0.0})}
    rows = to_table(units).to_pylist(maps_as_pydicts="strict")
    batch = pa.Table.from_pylist([row | asks for row in rows], schema=ENGINE_SCHEMA)
    index = RunFolder(str(tmp_path)).index_units()
    batch = take_stored(batch, context_of(tmp_path), index)
    assert batch.schema == ENGINE_SCHEMA
    assert batch.column(TOKENS).to_pylist() == [b"1234", None, None, b"1234", None, b"1234"]
    expected = [answered[n] if n in {1, 2, 4} else unit for n, unit in enumerate(units)]
    assert list(from_table(batch.select(RECORD_SCHEMA.names))) == expected


def test_only_the_wanted_units_are_found(tmp_path: Path, units: list[Record]) -> None:
    folder = RunFolder(str(tmp_path))
    folder.create()
    assert folder.find_units(["ab" * 8]).num_rows == 0
    for unit in units:
        folder.write_part(to_table([unit]), RESPONSES)
    folder.write_part(to_table(units), RESPONSES)  # a block that was written twice, in other parts
    wanted = [units[0].unit_id, units[3].unit_id, "ab" * 8]
    assert sorted(folder.find_units(wanted).column("unit_id").to_pylist()) == sorted(wanted[:2])
    index = folder.index_units()
    folder.write_part(to_table([units[0].model_copy(update={"unit_id": "ab" * 8})]), RESPONSES)
    units_found = folder.find_units(wanted, index).column("unit_id").to_pylist()
    assert sorted(units_found) == sorted(wanted[:2])  # what came after the index is not in it
