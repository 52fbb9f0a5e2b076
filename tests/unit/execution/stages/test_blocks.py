"""Blocks of a run's stages: what is asked of a candidate, in which order and with which seeds; what
is asked of nobody, because an earlier task has stored it; what is written, and handed on."""

import json
from pathlib import Path
from unittest.mock import AsyncMock, MagicMock

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from memray_eval.config.sections import ServerConfig
from memray_eval.execution.resume_state import ResumeState, UnitIdSet, load_resume_state
from memray_eval.execution.run_counter import RunCounter
from memray_eval.execution.stages import prompt
from memray_eval.execution.stages.blocks import PART, AskServers, read_waiting
from memray_eval.execution.stages.context import StageContext, WriteParts
from memray_eval.execution.stages.generate import new_record
from memray_eval.execution.stages.prompt import (
    ENGINE_SCHEMA,
    PROMPT,
    SAMPLING,
    TOKENS,
    prompts_to_ask,
    take_stored,
)
from memray_eval.models import openai_generator
from memray_eval.results.run_folder import RECORDS, RESPONSES, Kind, RunFolder
from memray_eval.results.schema import RECORD_SCHEMA, from_table, samples_to_table, to_table
from memray_eval.types import Candidate, Prompt, Record, Response, Sample, Sampling, Score, unit_id
from tests.build import build_sample
from tests.unit.execution.near import KeptReports, asking

SAMPLES = [build_sample(id=f"s{number}", suite="memory") for number in range(2)]
CANDIDATES = [Candidate(name=name, model="m", backend="openai") for name in ("a", "b")]


def test_answers_of_a_candidate_to_a_sample_stand_together(context: StageContext) -> None:
    spec = asking(context, *CANDIDATES, epochs=3)
    rows = pa.concat_tables(prompts_to_ask(samples_to_table(SAMPLES), spec)).to_pylist()
    assert [(row["sample_id"], row["candidate"], row["epoch"]) for row in rows] == [
        (sample.id, name, epoch) for sample in SAMPLES for name in "ab" for epoch in (1, 2, 3)
    ]


@pytest.mark.parametrize(("seed", "seeds"), [(7, [7, 8, 9]), (None, [None] * 3)])
def test_an_engine_draws_by_seeds_that_follow_each_other(
    context: StageContext,
    monkeypatch: pytest.MonkeyPatch,
    seed: int | None,
    seeds: list[int | None],
) -> None:
    tokenizer = MagicMock(has_chat=False)
    tokenizer.encode.return_value = [1, 2, 3]
    monkeypatch.setattr(prompt, "load_tokenizer", lambda *model: tokenizer)
    candidate = Candidate(name="a", model="m", sampling=Sampling(temperature=0.5, seed=seed))
    done = ResumeState(finished=UnitIdSet([unit_id("s1", candidate, "memory", 2)]))
    spec = asking(context, candidate, epochs=3, max_model_len=4096, resume_state=done)
    rows = pa.concat_tables(prompts_to_ask(samples_to_table(SAMPLES), spec)).to_pylist()
    drawn = [(row["sample_id"], json.loads(row["sampling_params"]).get("seed")) for row in rows]
    assert drawn == [("s0", seed) for seed in seeds] + [("s1", seeds[0]), ("s1", seeds[2])]
    assert len({row["unit_id"] for row in rows}) == 5


@pytest.fixture
def units(sample: Sample) -> list[Record]:
    return [
        new_record(sample.model_copy(update={"id": f"s{number}"}), candidate)
        for number in range(3)
        for candidate in CANDIDATES
    ]


def requests(
    context: StageContext,
    units: list[Record],
    resume_state: ResumeState | None = None,
    is_again: bool = False,
) -> pa.Table:
    state = resume_state or ResumeState()
    spec = asking(context, *CANDIDATES, resume_state=state, is_repeated=lambda: is_again)
    table = samples_to_table([unit.sample for unit in units[::2]])
    return pa.concat_tables(prompts_to_ask(table, spec))


@pytest.fixture
def answered(folder: RunFolder, units: list[Record]) -> list[Record]:
    """All units with a response; those of 1, 2 and 4 are in the run's folder, in other blocks than
    those of the task."""
    answered = [
        unit.model_copy(update={"response": Response(text=f"the first answer of {number}")})
        for number, unit in enumerate(units)
    ]
    folder.write_part(to_table([answered[1], answered[4]]), RESPONSES)
    folder.write_part(to_table([answered[2]]), RESPONSES)
    return answered


@pytest.mark.parametrize("is_again", [True, False])
def test_stored_responses_are_taken_when_a_task_is_run_again(
    context: StageContext, units: list[Record], answered: list[Record], is_again: bool
) -> None:
    earlier = ResumeState(finished=UnitIdSet([units[0].unit_id]))
    rows = requests(context, units, earlier, is_again)
    assert rows.column("unit_id").to_pylist() == [unit.unit_id for unit in units[1:]]
    is_asked = rows.column(PROMPT).is_valid()
    assert is_asked.to_pylist() == ([False, False, True, False, True] if is_again else [True] * 5)
    if is_again:
        taken = rows.filter(pc.invert(is_asked)).select(RECORD_SCHEMA.names)
        assert list(from_table(taken)) == [answered[1], answered[2], answered[4]]


@pytest.mark.parametrize("is_restarted", [True, False])
async def test_a_restarted_client_asks_for_no_response_that_is_stored(
    context: StageContext,
    units: list[Record],
    answered: list[Record],
    is_restarted: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The block that it is to make again is the one that it was sent: its prompts are there."""
    rows = requests(context, units)
    server = MagicMock(generate=AsyncMock(return_value=Response(text="another answer")))
    monkeypatch.setattr(openai_generator, "OpenAIGenerator", lambda *_: server)
    client = AskServers(ServerConfig(), context, lambda: is_restarted)
    tables = [out async for out in client(rows)]
    records = [record for table in tables for record in from_table(table)]
    kept = {1, 2, 4} if is_restarted else set()
    assert [record.unit_id for record in records] == [unit.unit_id for unit in units]
    assert [record.response and record.response.text for record in records] == [
        f"the first answer of {number}" if number in kept else "another answer"
        for number in range(len(units))
    ]
    if is_restarted:
        assert [records[number] for number in sorted(kept)] == [answered[n] for n in (1, 2, 4)]


async def test_each_answer_is_kept_before_its_block_is_whole(
    context: StageContext, folder: RunFolder, units: list[Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = requests(context, units)
    rows = rows.filter(pc.equal(rows.column("candidate"), "a"))
    kept = list[int]()

    async def generate(prompt: Prompt, candidate: Candidate) -> Response:
        parts = folder.parts(RESPONSES)
        kept.append(sum(folder.read_part(part, RESPONSES).num_rows for part in parts))
        return Response(text="an answer", output_tokens=2**70 if len(kept) == 2 else 2)

    server = MagicMock(generate=generate)
    monkeypatch.setattr(openai_generator, "OpenAIGenerator", lambda *_: server)
    answered = await AskServers(ServerConfig(max_in_flight=1), context).answer(rows)
    assert kept == [0, 1, 1]  # nothing holds the second
    assert answered.column("unit_id").to_pylist() == rows.column("unit_id").to_pylist()
    assert answered.column("error").is_valid().to_pylist() == [False, True, False]
    assert folder.find_units(rows.column("unit_id").to_pylist()).num_rows == 2


def test_a_restarted_engine_has_nothing_to_ask_where_a_response_is_stored(
    context: StageContext, folder: RunFolder, units: list[Record], answered: list[Record]
) -> None:
    asks = {TOKENS: b"1234", SAMPLING: json.dumps({"temperature": 0.0})}
    rows = to_table(units).to_pylist(maps_as_pydicts="strict")
    batch = pa.Table.from_pylist([row | asks for row in rows], schema=ENGINE_SCHEMA)
    batch = take_stored(batch, context, folder.index_units())
    assert batch.schema == ENGINE_SCHEMA
    assert batch.column(TOKENS).to_pylist() == [b"1234", None, None, b"1234", None, b"1234"]
    expected = [answered[n] if n in {1, 2, 4} else unit for n, unit in enumerate(units)]
    assert list(from_table(batch.select(RECORD_SCHEMA.names))) == expected


def test_only_the_wanted_units_are_found(folder: RunFolder, units: list[Record]) -> None:
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


@pytest.mark.parametrize(("kind", "columns"), [(RECORDS, 1), (RESPONSES, len(RECORD_SCHEMA))])
async def test_blocks_are_handed_on_when_they_are_in_a_file(
    folder: RunFolder, record: Record, kind: Kind, columns: int
) -> None:
    counter = KeptReports()
    good, bad = (
        record.model_copy(update={"unit_id": f"{number:016x}", "response": response})
        for number, response in enumerate((Response(text="Rest."), Response(error="gone")))
    )
    blocks = [to_table([good, bad]), RECORD_SCHEMA.empty_table()]
    stage = WriteParts(folder.path, kind, counter)
    handed_on = [out for block in blocks async for out in stage(block)]
    expected = [(2, columns), (0, columns)]
    assert [(table.num_rows, table.num_columns) for table in handed_on] == expected
    [part] = folder.parts(kind)
    assert folder.read_part(part, kind).num_rows == 2
    if kind == RECORDS:
        name, rows, started, ended, failed = counter.of("add")[0]
        assert (name, rows, failed) == ("write", 2, 1)
        assert 0 < ended - started < 60
    else:
        assert counter.reports == []


async def test_a_folder_that_cannot_be_written_stops_the_run(
    tmp_path: Path, record: Record
) -> None:
    counter = RunCounter()
    stage = WriteParts(str(tmp_path / "gone"), RECORDS, counter)
    assert [out.num_rows async for out in stage(to_table([record]))] == [0]
    assert "cannot be written" in (counter.stopping() or "")


def test_a_response_that_waits_in_two_parts_is_handed_on_once(
    folder: RunFolder, context: StageContext, record: Record
) -> None:
    first, second, third = (
        record.model_copy(update={"unit_id": f"{number:016x}"}) for number in range(3)
    )
    scored = second.model_copy(update={"scores": (Score(metric="x", status="scored", value=1.0),)})
    folder.write_part(to_table([first, second]), RESPONSES, "part-a.parquet")
    folder.write_part(to_table([scored, third]), RESPONSES, "part-b.parquet")
    state = load_resume_state(folder)
    parts = pa.table({PART: list(state.waiting)})
    own = (record.candidate.name,)
    waiting = read_waiting(parts, state, own, context)
    assert list(from_table(waiting)) == [first, scored, third]
    assert context.counter.reports == []
    assert read_waiting(parts, state, (), context).num_rows == 0
