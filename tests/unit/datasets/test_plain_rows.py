"""Rows of plain text are read without pydantic: what comes of them is what it would make."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from memray_eval.datasets import scan as scanning
from memray_eval.datasets.parsing import InvalidSample, parse_json, parse_sample
from memray_eval.datasets.reading import SampleReader
from memray_eval.text_processing.numerals import draw_order, memory_entries
from memray_eval.types import Record, Response, Sample, Turn, dumps
from memray_eval.types.json_text import (
    LARGE,
    field_to_json,
    read_large,
    record_to_json,
    sample_to_json,
)
from memray_eval.types.samples import MANY, plain_sample
from tests.build import build_record, build_sample, build_score
from tests.unit.datasets.builders import read, write_rows

text = st.text(max_size=8) | st.sampled_from(["\ud800", "\x00", "ä", "</think>", '"\\'])
scalars = text | st.none() | st.integers() | st.floats() | st.booleans()
values = st.one_of(
    scalars,
    st.lists(text, max_size=2),
    st.lists(scalars, max_size=2),
    st.dictionaries(text, scalars, max_size=2),
)
fields = st.dictionaries(st.sampled_from([*Sample.model_fields, "own", "more"]), values, max_size=9)
keys = st.lists(text | st.sampled_from(["k1", "k2"]), max_size=3)
ANSWERS = SampleReader(suite="qa", has_responses=True)


def check_plain(raw: dict[str, Any]) -> None:
    """What is read without pydantic, if it is, is what pydantic makes."""
    plain = plain_sample(raw)
    if plain is not None:
        checked = Sample.model_validate(raw)
        assert (plain, list(vars(plain))) == (checked, list(vars(checked)))
        assert plain.model_fields_set == checked.model_fields_set


@given(fields | fields.map(lambda raw: {"id": "a", "query": "q", **raw}))
def test_a_plain_sample_is_what_pydantic_makes(raw: dict[str, Any]) -> None:
    check_plain(raw)


large_values = text.filter(lambda value: value != "\ud800") | st.integers() | st.booleans()


@given(
    st.dictionaries(text, large_values | scalars | st.lists(text, max_size=2), max_size=3),
    st.dictionaries(st.sampled_from(["required_keys", "forbidden_keys", "neutral_keys"]), keys),
)
def test_a_large_memory_is_checked_too(odd: dict[str, Any], lists: dict[str, list[str]]) -> None:
    memory = {**{f"k{number}": "v" for number in range(MANY)}, **odd}
    check_plain({"id": "a", "query": "q", "memory": memory, **lists})


def test_most_rows_are_plain() -> None:
    raw = {"id": "a", "query": "q", "answers": ["x", "y"], "memory": {}, "required_keys": []}
    assert plain_sample({**raw, "metadata": {"k": 1}, "suite": "qa"}) is not None
    memory = {f"k{number}": number for number in range(MANY + 1)}
    large = {**raw, "memory": memory, "required_keys": ["k1"], "neutral_keys": ["k2"]}
    assert plain_sample(large) is not None


@pytest.mark.parametrize(
    ("odd", "is_read"),
    [
        ('{"a": 1, "b" : {"a": [1, 2.5, {"c": null}]}}', True),
        ('["x:1", -0, 1e-7, 18446744073709551615, "\\u00e9"]', True),
        ('["\\": 2"]', False),
        ('[":", " :"]', False),  # as after a key
        ('{"a": 1, "a": 2}', False),
        ('{"a": 1, "\\u0061"\n:2}', False),
        ("[18446744073709551616, -9223372036854775809]", False),
        ("[NaN]", False),
        ("[1e999]", False),
        ('["\\ud800"]', False),
        ("[" * 17 + "]" * 17, False),
        ("[" * 70 + "]" * 70, False),
        ("[1,]", False),
    ],
)
def test_large_json_is_read_as_small_json(odd: str, is_read: bool) -> None:
    def read_all(padding: int) -> tuple[Any, list[str]]:
        try:
            return parse_json(f'["{"x" * padding}", {odd}]'.encode())[1], []
        except InvalidSample as error:
            return None, [fault.message.split(":")[-1] for fault in error.faults]

    assert (read_large(f"[{odd}]".encode()) is not None) == is_read
    assert repr(read_all(LARGE)) == repr(read_all(1))


def test_entries_are_those_of_the_memory_that_a_sample_has() -> None:
    sample = build_sample(memory={"a": True, "b": "x"})
    changed = sample.model_copy(update={"memory": {"a": ("y", 2)}})
    assert sorted(memory_entries(sample)) == [("a", "yes"), ("b", "x")]
    assert memory_entries(changed) == [("a", "y, 2")]
    assert sorted(memory_entries(sample)) == [("a", "yes"), ("b", "x")]


@pytest.mark.parametrize(
    ("n_entries", "digest", "first"),
    [
        (3, "29f49a7b65837dc6302452860c258ba5", "key 1\U0001f600"),
        (300, "ee72b35946df65fbb4f695f9d06a4375", "key 187\U0001f600"),
    ],
)
def test_fingerprint_and_order_are_as_ever(n_entries: int, digest: str, first: str) -> None:
    keys = [f"key {n}\U0001f600" if n % 3 else f"ä{n}" for n in range(n_entries)]
    memory = {key: 'x\x1f"é' if n % 2 else n for n, key in enumerate(keys)}
    forbidden = keys[: n_entries // 2]
    about = {"traits": {"openness": 0.1}, "metadata": {"a": [1.5]}}
    sample = build_sample(memory=memory, forbidden_keys=forbidden, **about)
    assert scanning._digest(sample).hex() == digest
    assert draw_order(sample, memory)[0] == first


@pytest.mark.parametrize("name", ["id", "query"])
def test_a_name_that_utf_8_cannot_hold_is_refused(name: str) -> None:
    raw = {"id": "a", "query": "q", name: "half \ud800"}
    with pytest.raises(ValidationError):
        Sample.model_validate(raw)
    with pytest.raises(InvalidSample):
        parse_sample(raw, "qa")


@pytest.mark.parametrize(
    "odd", ["\ud800", '\x1f\x7f\u2028\\"/é', True, -(2**70), 1e-7, ("a", 1.5), 0]
)
@pytest.mark.parametrize("n_entries", [2, 300])
def test_a_large_memory_is_written_as_a_small_one(odd: Any, n_entries: int) -> None:
    memory = {f"{text}{n}": text for n in range(n_entries) for text in ("\U0001f600", "a")}
    memory |= {"odd": odd, "\ue000\n": "x"}
    sample = build_sample(memory=memory, metadata={"b": 1, "a": None})
    assert field_to_json(sample, "memory") == dumps(sample.memory)
    fields = {**vars(sample), "history": [vars(turn) for turn in sample.history]}
    del fields["turns"], fields["user"]
    assert sample_to_json(sample) == dumps(fields)


names = st.text(max_size=4)
parts = scalars | st.lists(scalars, max_size=2) | st.dictionaries(names, scalars, max_size=2)
metadata = st.dictionaries(names, parts, max_size=3)
samples = st.builds(
    Sample,
    id=st.just("a"),
    query=st.just('q\n"ü'),
    answers=st.lists(text, max_size=2).map(tuple),
    context=st.none() | text,
    memory=st.just({"a": ("x", 1, 2.5, True), "b": "t"}) | st.just({}),
    history=st.just(()) | st.just((Turn(role="user", content="hi\ud800"),)),
    metadata=metadata,
) | st.builds(Sample, id=st.just("a"), query=st.just("q"))
responses = st.none() | st.builds(
    Response,
    text=text,
    error=st.none() | text,
    output_tokens=st.none() | st.integers(0, 9),
    duration_s=st.none() | st.floats(),
)


class LaterResponse(Response):
    """A response of a version with one more field."""

    is_new: bool = False


@given(samples, responses, st.booleans())
def test_json_is_what_pydantic_makes(
    sample: Sample, response: Response | None, is_scored: bool
) -> None:
    scores = [build_score("m", None)] if is_scored else []
    record = build_record(sample, response, *scores, candidate="ü")
    plain = sample.model_dump(mode="json", exclude={"turns", "user"})
    assert sample_to_json(sample) == dumps(plain)
    text = record_to_json(record)
    again = Record.model_validate(json.loads(text))
    assert dumps(again.model_dump(mode="json")) == dumps(record.model_dump(mode="json"))
    if response is not None:
        later = LaterResponse(**response.model_dump())
        assert record_to_json(record.model_copy(update={"response": later})) == text


def rows_of(n: int) -> list[dict[str, Any]]:
    rows = [{"id": f"q{n}", "query": f"What is {n}?", "answers": [str(n)]} for n in range(n)]
    for number, row in enumerate(rows):
        row |= {"response": f"It is {number}.", "model": "a" if number % 2 else None}
        row["metadata"] = "{}" if number % 3 else '{"user": "u"}'
    return rows


@pytest.mark.parametrize("row_group_size", [7, 1000])
def test_a_file_that_is_scanned_in_stretches_is_found_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row_group_size: int
) -> None:
    rows = rows_of(100)
    rows[57]["query"], rows[80]["id"] = "", "q4"
    path = write_rows(tmp_path / "rows.parquet", rows, group=row_group_size)
    monkeypatch.setattr(scanning, "STRETCH_ROWS", 30)
    counts: list[int] = []

    def one_by_one(work: Any, sources: Any) -> Any:
        counts.append(len(sources))
        return map(work, sources)

    whole = read(path, ANSWERS, rows_per_shard=4)
    cut = read(path, ANSWERS, rows_per_shard=4, each_source=one_by_one)
    assert (counts, cut.problems, cut.items) == ([4], whole.problems, whole.items)
    assert whole.problems[1].message.endswith("the first is row 5")
    assert cut.scan.fingerprint == whole.scan.fingerprint
    assert (cut.scan.n_samples, cut.scan.n_invalid, len(cut.items)) == (98, 2, 98)


def test_broken_json_in_a_column_is_an_error_of_its_row(tmp_path: Path) -> None:
    rows = rows_of(5)
    rows[2]["metadata"], rows[4]["metadata"] = "{no", '{"a": 1}'
    path = write_rows(tmp_path / "rows.parquet", rows)
    result = read(path, ANSWERS)
    assert result.scan.n_samples == 4
    (problem,) = result.problems
    assert (problem.place, problem.sample_id, problem.field) == ("row 3", "q2", "metadata")
    assert result.items[-1].sample.metadata == {"a": 1}
