"""Parts of a run: how large they are, and the index of units in their footers."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from memray_eval.analysis.reduce import reduce_records
from memray_eval.errors import DataError
from memray_eval.metrics import all_metrics
from memray_eval.results.parts import (
    INDEX_KEY,
    MAX_BYTES,
    MAX_ROWS,
    index_rows,
    join_rows,
    split_rows,
    unit_number,
)
from memray_eval.results.run_folder import RunFolder
from memray_eval.results.schema import to_table
from memray_eval.types import Record, Response, Score

SCORED = Score(metric="x", status="scored", value=1.0)
FAILED = Score(metric="y", status="error", error="Unavailable: down")
Rows = Callable[..., pa.Table]


@pytest.fixture
def rows(record: Record) -> Rows:
    """Rows of so many units, every third without an answer and every fourth with a failed score."""

    def make(n: int, first: int = 0, text: str = "Rest.") -> pa.Table:
        return to_table(
            record.model_copy(
                update={
                    "unit_id": f"{number:016x}",
                    "response": Response(error="gone") if number % 3 == 0 else Response(text=text),
                    "scores": (SCORED, FAILED) if number % 4 == 0 else (SCORED,) * (number % 2),
                }
            )
            for number in range(first, first + n)
        )

    return make


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    run = RunFolder(str(tmp_path / "run"))
    run.create()
    return run


def test_the_index_says_what_the_rows_do(folder: RunFolder, rows: Rows) -> None:
    folder.write_part(rows(24))
    [index] = folder.read_indexes(folder.list_parts())
    numbers = list(range(24))
    assert index.units.tolist() == numbers
    assert index.is_unanswered.tolist() == [number % 3 == 0 for number in numbers]
    assert index.is_failed.tolist() == [number % 3 == 0 or number % 4 == 0 for number in numbers]
    assert index.is_scored.tolist() == [number % 4 == 0 or number % 2 == 1 for number in numbers]


def test_it_is_read_with_the_footer_alone(
    folder: RunFolder, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write_part(rows(MAX_ROWS))
    path = Path(folder.path) / "records" / folder.parts()[0]
    assert pq.read_metadata(path).serialized_size < 64 << 10  # what is fetched at first
    monkeypatch.setattr("memray_eval.results.run_folder.index_file", None)
    [index] = folder.read_indexes(folder.list_parts())
    assert len(index.units) == MAX_ROWS


def test_a_part_without_an_index_is_read_itself(folder: RunFolder, rows: Rows) -> None:
    folder.write_part(rows(24))
    path = Path(folder.path) / "records" / folder.parts()[0]
    [of_footer] = folder.read_indexes(folder.list_parts())
    pq.write_table(rows(24), path)  # as an older version did
    assert INDEX_KEY not in (pq.read_metadata(path).metadata or {})
    [of_columns] = folder.read_indexes(folder.list_parts())
    for left, other in zip(of_footer, of_columns, strict=True):
        assert left.tolist() == other.tolist()


def test_an_index_of_other_rows_is_not_trusted(folder: RunFolder, rows: Rows) -> None:
    folder.write_part(rows(24))
    path = Path(folder.path) / "records" / folder.parts()[0]
    table, footer = pq.read_table(path), pq.read_metadata(path).metadata
    kept = table.slice(5, 7).replace_schema_metadata({INDEX_KEY: footer[INDEX_KEY]})
    pq.write_table(kept, path)  # by a tool that keeps what the footer said
    assert INDEX_KEY in pq.read_metadata(path).metadata
    [index] = folder.read_indexes(folder.list_parts())
    assert index.units.tolist() == list(range(5, 12))
    pq.write_table(table.replace_schema_metadata({INDEX_KEY: b"no base 64"}), path)
    [index] = folder.read_indexes(folder.list_parts())
    assert index.units.tolist() == list(range(24))


def test_a_part_that_cannot_be_read_is_named(folder: RunFolder, rows: Rows) -> None:
    folder.write_part(rows(4))
    path = Path(folder.path) / "records" / folder.parts()[0]
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=rf"{path.name} cannot be read .* or delete it"):
        list(folder.read_indexes(folder.list_parts()))


def test_the_row_that_counts_is_the_one_that_got_furthest(rows: Rows) -> None:
    table = pa.concat_tables([rows(1), rows(1, first=4), rows(1, first=2), rows(1, first=5)])
    same = table.set_column(0, "unit_id", pa.array(["0" * 16] * 4))
    assert index_rows(same).first_of_each().tolist() == [False, False, False, True]
    assert index_rows(same.slice(0, 3)).first_of_each().tolist() == [False, False, True]
    assert index_rows(same.slice(0, 2)).first_of_each().tolist() == [False, True]
    twice = pa.concat_tables([rows(6), rows(6)])
    assert index_rows(twice).first_of_each().tolist() == [True] * 6 + [False] * 6


def test_units_of_any_name_have_numbers() -> None:
    assert unit_number("00000000000000ff") == 255
    assert len({unit_number(name) for name in ("ff", "a unit", "\u00e9" * 16, "z" * 16)}) == 4


def test_parts_hold_so_many_rows(rows: Rows) -> None:
    blocks = [rows(700, first=700 * number) for number in range(5)] + [rows(5000, first=3500)]
    joined = list(join_rows(blocks))
    assert all(table.num_rows <= MAX_ROWS for table in joined)
    assert len(joined) <= 6
    assert pa.concat_tables(joined).equals(pa.concat_tables(blocks))


def test_parts_hold_so_many_bytes(rows: Rows) -> None:
    long = rows(60, text="word " * 300_000)  # 1.5 MB in two of three rows
    assert long.nbytes > MAX_BYTES
    pieces = list(split_rows(long))
    assert [piece.nbytes <= MAX_BYTES for piece in pieces] == [True] * len(pieces)
    assert 2 <= len(pieces) <= 4
    [alone] = split_rows(rows(1, first=1, text="word " * 8_000_000))
    assert alone.num_rows == 1


@pytest.mark.heavy
def test_a_copy_of_the_records_has_the_same_rows_in_the_same_order(rows: Rows) -> None:
    """To the last digit: sums depend on the order of their terms."""
    folder = RunFolder("mock:///run")
    folder.create()
    metric = all_metrics()["helpfulness"]
    random = np.random.default_rng(0)
    for number in range(40):
        table = rows(30, first=30 * number)
        scores = table.column("scores").combine_chunks()
        structs = scores.flatten()
        columns = [pc.struct_field(structs, field.name) for field in structs.type]
        columns[0] = pa.repeat(pa.scalar(metric.name), len(structs))
        columns[2] = pa.array(random.uniform(1, 5, len(structs)))
        changed = pa.StructArray.from_arrays(columns, fields=list(structs.type))
        lists = pa.ListArray.from_arrays(scores.offsets, changed)
        folder.write_part(table.set_column(table.num_columns - 1, "scores", lists))
    expected = reduce_records(folder.records(), [metric])
    with folder.local_records() as copied:
        assert copied.filesystem.type_name == "local"
        assert copied.to_table().equals(folder.records().to_table())
        actual = reduce_records(copied, [metric])
        places = [Path(file) for file in copied.files]
    assert (actual, expected.n_units) == (expected, 1200)
    assert not any(path.exists() for path in places)


def test_what_does_not_fit_on_the_disk_is_read_where_it_is(
    rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder("mock:///run")
    folder.create()
    with pytest.raises(DataError, match="holds no records"), folder.local_records():
        pytest.fail("no records were opened")
    folder.write_part(rows(3))

    class Full:
        free = 100

    monkeypatch.setattr("memray_eval.results.run_folder.shutil.disk_usage", lambda path: Full)
    with folder.local_records() as records:
        assert records.filesystem.type_name == "mock"
        assert records.count_rows() == 3
