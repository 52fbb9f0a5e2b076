"""Records survive the trip through Arrow, whatever their free-form parts hold."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memray_eval.results.parts import unit_number, unit_numbers
from memray_eval.results.schema import (
    RECORD_SCHEMA,
    as_stored,
    from_table,
    set_responses,
    to_score_lists,
    to_table,
)
from memray_eval.types import (
    Candidate,
    ComputedScore,
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
integers, counts = st.integers(-(2**53), 2**53), st.integers(0, 9)
values = text | st.booleans() | integers | numbers | st.lists(text, max_size=3).map(tuple)
turns = st.builds(Turn, role=st.sampled_from(["user", "assistant"]), content=text)
plain = st.none() | text | st.lists(counts, max_size=2)
samples = st.builds(
    Sample,
    id=names,
    suite=st.just("memory"),
    query=names,
    memory=st.dictionaries(names, values, max_size=4),
    history=st.lists(turns, max_size=2).map(tuple),
    answers=st.lists(text, max_size=2).map(tuple),
    metadata=st.dictionaries(names, plain, max_size=2),
)
responses = st.none() | st.builds(
    Response, text=text, error=st.none() | text, output_tokens=st.none() | counts
)
usages = st.builds(
    Usage, input_tokens=counts, cached_input_tokens=counts, cache_write_tokens=counts
)
statuses = st.sampled_from(["error", "abstained", "not_applicable"])
scores = st.builds(
    Score,
    metric=names,
    status=st.just("scored"),
    value=numbers,
    parts=st.dictionaries(names, numbers, max_size=3),
    judgment=st.none() | text,
    usage=usages,
    saved_usd=numbers,
) | st.builds(Score, metric=names, status=statuses, error=text)
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
    assert list(from_table(table)) == batch == list(map(as_stored, batch))


def test_a_unit_is_known_by_sample_candidate_and_suite() -> None:
    other = CANDIDATE.model_copy(update={"sampling": Sampling(temperature=1.0)})
    first = unit_id("a", CANDIDATE, "memory")
    assert first == "79d6bc575dc35e13"  # stored runs are keyed by it: it must not change
    assert first == unit_id("a", Candidate.model_validate(CANDIDATE.model_dump()), "memory")
    others = (("b", CANDIDATE, "memory"), ("a", other, "memory"), ("a", CANDIDATE, "x"))
    assert len({first, *(unit_id(*named) for named in others)}) == 4


computed = st.builds(
    ComputedScore,
    metric=names,
    value=numbers,
    judge=text,
    parts=st.dictionaries(names, numbers, max_size=2),
)


@given(st.lists(st.lists(computed | scores, max_size=3), max_size=5))
def test_short_scores_are_the_columns_of_whole_ones(
    outcomes: list[list[ComputedScore | Score]],
) -> None:
    def to_score(item: ComputedScore | Score) -> Score:
        return item.to_score() if isinstance(item, ComputedScore) else item

    column = to_score_lists(outcomes)
    assert column.type == RECORD_SCHEMA.field("scores").type
    whole = [list(map(to_score, unit)) for unit in outcomes]
    assert column.to_pylist() == to_score_lists(whole).to_pylist()


@given(st.lists(st.tuples(records, responses), max_size=4))
def test_responses_become_columns_of_the_rows(held: list[tuple[Record, Response | None]]) -> None:
    answered = [
        record if response is None else record.model_copy(update={"response": response})
        for record, response in held
    ]
    rows = set_responses(to_table(record for record, _ in held), [answer for _, answer in held])
    assert rows == to_table(answered)


@given(st.lists(st.integers(0, 2**64 - 1).map(lambda number: f"{number:016x}") | text, max_size=6))
@example(["00000000000000 1", "0000000000000001", " " * 16, "+000000000000001"])  # blanks, a sign
def test_the_numbers_of_units_are_those_of_each(ids: list[str]) -> None:
    assert unit_numbers(ids).tolist() == [unit_number(item) for item in ids]
