"""Records survive the trip through Arrow, whatever their free-form parts hold."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memray_eval.results.run_folder import RunFolder
from memray_eval.results.schema import RECORD_SCHEMA, SCORE_TYPE, from_table, to_table
from memray_eval.types import (
    Candidate,
    Record,
    Response,
    Sample,
    Sampling,
    Score,
    Turn,
    Usage,
    unit_id,
)

text = st.text(max_size=30)
names = st.text(min_size=1, max_size=10)
numbers = st.floats(allow_nan=False, allow_infinity=False)
values = st.one_of(
    text,
    st.booleans(),
    st.integers(-(2**53), 2**53),
    numbers,
    st.lists(text, max_size=3).map(tuple),
)
samples = st.builds(
    Sample,
    id=names,
    suite=st.just("memory"),
    query=names,
    memory=st.dictionaries(names, values, max_size=4),
    history=st.lists(
        st.builds(Turn, role=st.sampled_from(["user", "assistant"]), content=text), max_size=2
    ).map(tuple),
    answers=st.lists(text, max_size=2).map(tuple),
    metadata=st.dictionaries(
        names, st.none() | text | st.lists(st.integers(0, 9), max_size=2), max_size=2
    ),
)
responses = st.none() | st.builds(
    Response, text=text, error=st.none() | text, output_tokens=st.none() | st.integers(0, 9)
)
scores = st.builds(
    Score,
    metric=names,
    status=st.just("scored"),
    value=numbers,
    parts=st.dictionaries(names, numbers, max_size=3),
    judgment=st.none() | text,
    usage=st.builds(
        Usage,
        input_tokens=st.integers(0, 9),
        cached_input_tokens=st.integers(0, 9),
        cache_write_tokens=st.integers(0, 9),
    ),
    saved_usd=numbers,
) | st.builds(
    Score,
    metric=names,
    status=st.sampled_from(["error", "abstained", "not_applicable"]),
    error=text,
)
CANDIDATE = Candidate(name="c", model="m", sampling=Sampling(stop=("a",), seed=None))
records = st.builds(
    Record,
    unit_id=names,
    sample=samples,
    candidate=st.just(CANDIDATE),
    response=responses,
    scores=st.lists(scores, max_size=3).map(tuple),
)


@pytest.mark.heavy
@given(st.lists(records, max_size=4))
def test_records_come_back_as_they_went(batch: list[Record]) -> None:
    table = to_table(batch)
    assert table.schema.equals(RECORD_SCHEMA)
    assert list(from_table(table)) == batch


def test_a_unit_is_known_by_sample_candidate_and_suite() -> None:
    other = CANDIDATE.model_copy(update={"sampling": Sampling(temperature=1.0)})
    ids = [
        unit_id("a", CANDIDATE, "memory"),
        unit_id("b", CANDIDATE, "memory"),
        unit_id("a", other, "memory"),
        unit_id("a", CANDIDATE, "x"),
    ]
    assert len(set(ids)) == 4
    assert ids[0] == unit_id("a", Candidate.model_validate(CANDIDATE.model_dump()), "memory")
    assert ids[0] == "79d6bc575dc35e13"  # stored runs are keyed by it: it must not change


def test_scores_of_older_versions_used_no_prompt_cache(sample: Sample) -> None:
    usage = Usage(input_tokens=7, output_tokens=3)
    score = Score(metric="m", status="error", usage=usage, cost_usd=0.5)
    record = Record(unit_id="u", sample=sample, candidate=CANDIDATE, scores=(score,))
    row = to_table([record]).to_pylist()[0]
    later = ("cached_input_tokens", "cache_write_tokens", "saved_usd")
    kept = [field for field in SCORE_TYPE if field.name not in later]
    old = pa.schema(
        [
            pa.field("scores", pa.list_(pa.struct(kept))) if field.name == "scores" else field
            for field in RECORD_SCHEMA
        ]
    )
    row["scores"] = [
        {name: one[name] for name in one if name not in later} for one in row["scores"]
    ]
    table = pa.Table.from_pylist([row], schema=old)
    assert list(from_table(table)) == [record]
    assert list(from_table(table.cast(RECORD_SCHEMA))) == [record]


def test_a_part_of_an_older_version_reads_with_what_it_lacks_as_null(
    record: Record, tmp_path: Path
) -> None:
    folder = RunFolder(str(tmp_path / "run"))
    folder.create()
    folder.write_part(to_table([record]))
    (name,) = folder.parts()
    path = tmp_path / "run" / "records" / name
    pq.write_table(pq.read_table(path).drop_columns(["ended_s"]), path)
    assert folder.read_part(name).schema.names == RECORD_SCHEMA.names
    assert list(from_table(folder.read_part(name))) == list(from_table(pq.read_table(path)))
    assert list(folder.each()) == [record]
