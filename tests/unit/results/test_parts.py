"""Parts of a run: how large they are, and the index of units in their footers."""

import random
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memray_eval.analysis.reduce import reduce_records
from memray_eval.errors import DataError
from memray_eval.metrics import all_metrics
from memray_eval.results.parts import (
    INDEX_KEY,
    MAX_BYTES,
    MAX_ROWS,
    UnitIndex,
    index_rows,
    join_rows,
    split_rows,
    unit_number,
)
from memray_eval.results.run_folder import RunFolder
from memray_eval.results.schema import to_table
from memray_eval.types import Response, Score
from tests.build import build_record, build_score

SCORED = Score(metric="x", status="scored", value=1.0)
FAILED = Score(metric="y", status="error", error="Unavailable: down")


def rows(n: int, first: int = 0, text: str = "Rest.") -> pa.Table:
    """Rows of so many units, every third without an answer and every fourth with a failed score."""
    return to_table(
        build_record(
            None,
            text if number % 3 else Response(error="gone"),
            *((SCORED,) * (number % 2) if number % 4 else (SCORED, FAILED)),
            unit_id=f"{number:016x}",
        )
        for number in range(first, first + n)
    )


def write(folder: RunFolder, n: int) -> Path:
    """The path of a part that holds rows of so many units."""
    folder.create()
    return Path(folder.path) / "records" / folder.write_part(rows(n))


def index_of(folder: RunFolder) -> UnitIndex:
    (index,) = folder.read_indexes(folder.list_parts())
    return index


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(str(tmp_path / "run"))


def test_the_index_says_what_the_rows_do(folder: RunFolder) -> None:
    path = write(folder, 24)
    numbers = range(24)
    index = [flags.tolist() for flags in index_of(folder)]
    assert index == [
        list(numbers),
        [number % 3 == 0 for number in numbers],
        [number % 3 == 0 or number % 4 == 0 for number in numbers],
        [number % 4 == 0 or number % 2 == 1 for number in numbers],
    ]
    pq.write_table(rows(24), path)  # as an older version did
    assert INDEX_KEY not in (pq.read_metadata(path).metadata or {})
    assert [flags.tolist() for flags in index_of(folder)] == index


def test_it_is_read_with_the_footer_alone(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(folder, MAX_ROWS)
    assert pq.read_metadata(path).serialized_size < 64 << 10  # what is fetched at first
    monkeypatch.setattr("memray_eval.results.run_folder.index_file", None)
    assert len(index_of(folder).units) == MAX_ROWS


def test_an_index_of_other_rows_is_not_trusted(folder: RunFolder) -> None:
    path = write(folder, 24)
    table, footer = pq.read_table(path), pq.read_metadata(path).metadata
    kept = table.slice(5, 7).replace_schema_metadata({INDEX_KEY: footer[INDEX_KEY]})
    pq.write_table(kept, path)  # by a tool that keeps what the footer said
    assert INDEX_KEY in pq.read_metadata(path).metadata
    assert index_of(folder).units.tolist() == list(range(5, 12))
    pq.write_table(table.replace_schema_metadata({INDEX_KEY: b"no base 64"}), path)
    assert index_of(folder).units.tolist() == list(range(24))


def test_a_part_that_cannot_be_read_is_named(folder: RunFolder) -> None:
    path = write(folder, 4)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=rf"{path.name} cannot be read .* or delete it"):
        index_of(folder)


def test_the_row_that_counts_is_the_one_that_got_furthest() -> None:
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


def test_parts_hold_so_many_rows_and_bytes() -> None:
    blocks = [rows(700, first=700 * number) for number in range(5)] + [rows(5000, first=3500)]
    joined = list(join_rows(blocks))
    assert all(table.num_rows <= MAX_ROWS for table in joined)
    assert len(joined) <= 6
    assert pa.concat_tables(joined).equals(pa.concat_tables(blocks))
    long = rows(60, text="word " * 300_000)  # 1.5 MB in two of three rows
    assert long.nbytes > MAX_BYTES
    pieces = list(split_rows(long))
    assert all(piece.nbytes <= MAX_BYTES for piece in pieces)
    assert 2 <= len(pieces) <= 4
    [alone] = split_rows(rows(1, first=1, text="word " * 8_000_000))
    assert alone.num_rows == 1


@pytest.mark.heavy
def test_a_copy_of_the_records_has_the_same_rows_in_the_same_order() -> None:
    """To the last digit: sums depend on the order of their terms."""
    folder = RunFolder("mock:///run")
    folder.create()
    metric = all_metrics()["helpfulness"]
    chance = random.Random(0)
    for first in range(0, 1200, 30):
        scores = [build_score("helpfulness", chance.uniform(1, 5)) for _ in range(30)]
        folder.write_part(to_table(build_record(None, "Rest.", score, unit_id=f"{unit:016x}")
                                   for unit, score in enumerate(scores, first)))  # fmt: skip
    expected = reduce_records(folder.records(), [metric])
    with folder.local_records() as copied:
        assert copied.filesystem.type_name == "local"
        assert copied.to_table().equals(folder.records().to_table())
        actual = reduce_records(copied, [metric])
        places = [Path(file) for file in copied.files]
    assert (actual, expected.n_units) == (expected, 1200)
    assert not any(path.exists() for path in places)


def test_what_does_not_fit_on_the_disk_is_read_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunFolder("mock:///run")
    folder.create()
    with pytest.raises(DataError, match="holds no records"), folder.local_records():
        pytest.fail("no records were opened")
    folder.write_part(rows(3))
    full = SimpleNamespace(free=100)
    monkeypatch.setattr("memray_eval.results.run_folder.shutil.disk_usage", lambda path: full)
    with folder.local_records() as records:
        assert records.filesystem.type_name == "mock"
        assert records.count_rows() == 3
