"""Records survive the trip through Arrow, whatever their free-form parts hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memray_eval.results.schema import RECORD_SCHEMA, from_table, to_table
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
