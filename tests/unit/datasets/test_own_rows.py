"""Rows in memory: tables of any package, told by their methods, and rows that JSON cannot hold."""

import datetime
import json
import math
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from memray_eval.datasets.reading import to_rows, write_rows
from memray_eval.errors import ConfigError, DataError

ROWS = [{"query": "How?", "response": "So."}, {"query": "Why?", "response": "Thus."}]


def written(data: Any, out: Path) -> list[dict[str, Any]]:
    lines = Path(write_rows(to_rows(data), str(out))).read_text("utf-8").splitlines()
    return [json.loads(line, parse_constant=pytest.fail) for line in lines]


class Table:
    """A table of some package: rows under the name of a method."""

    def __init__(self, method: str, rows: Any = ROWS, **attributes: Any) -> None:
        setattr(self, method, lambda: rows)
        for name, value in attributes.items():
            setattr(self, name, value)


class Sized(Table):
    __len__ = ROWS.__len__


@pytest.mark.parametrize(
    "data",
    [
        ROWS,
        iter(ROWS),
        (row for row in ROWS),
        pd.DataFrame(ROWS),
        pd.DataFrame(ROWS, index=[1, 1]).astype("category"),
        pa.Table.from_pylist(ROWS),
        pa.RecordBatch.from_pylist(ROWS),
        Table("to_pylist", column_names=["query", "response"]),  # Arrow
        Table("to_dicts", columns=["query", "response"]),  # polars
        Table("collect", Table("to_dicts")),  # a lazy frame of polars
        Sized("to_list", column_names=["query", "response"]),  # a Hugging Face dataset
    ],
    ids=lambda data: type(data).__name__,
)
def test_a_table_of_any_package_is_its_rows(data: Any, tmp_path: Path) -> None:
    assert written(data, tmp_path) == ROWS


def test_an_iterable_dataset_is_streamed(tmp_path: Path) -> None:
    class Streamed:
        column_names = None  # of a dataset that has not been looked at

        def to_list(self) -> list[Any]:
            pytest.fail("all of it was taken into memory")

        def __iter__(self) -> Iterator[Any]:
            return iter(ROWS)

    assert written(Streamed(), tmp_path) == ROWS


MISSING = (float("nan"), np.float32("nan"), pd.NA, pd.NaT, np.datetime64("NaT"), b"\x89PNG")


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        *((value, None) for value in MISSING),
        ([1.5, float("nan"), {"a": float("nan")}], [1.5, None, {"a": None}]),
        *((math.inf, "Infinity"), (np.bool_(True), True), (np.int64(7), 7), ("NaN", "NaN")),
        (np.array([["a", "b"]]), [["a", "b"]]),
        (Decimal("1.50"), "1.50"),
        (datetime.date(2024, 2, 29), "2024-02-29"),
        (datetime.timedelta(hours=1), "1:00:00"),
        (pd.Timestamp("2024-02-29T10:00Z"), "2024-02-29 10:00:00+00:00"),
    ],
)
def test_values_that_json_lacks_are_text_or_missing(value: Any, kept: Any, tmp_path: Path) -> None:
    assert written([{"query": "Q?", "more": value}], tmp_path) == [{"query": "Q?", "more": kept}]


def test_what_pandas_misses_is_missing(tmp_path: Path) -> None:
    columns = {
        "query": ["Q?", "R?"],
        "answers": [np.array(["a"]), None],
        "count": pd.array([1, None], dtype="Int64"),
        "at": pd.to_datetime(["2024-01-01", None]),
    }
    assert written(pd.DataFrame(columns), tmp_path) == [
        {"query": "Q?", "answers": ["a"], "count": 1, "at": "2024-01-01 00:00:00"},
        {"query": "R?", "answers": None, "count": None, "at": None},
    ]


class Untold:
    def __str__(self) -> str:
        raise RuntimeError("no words")


def endless() -> list[dict[str, Any]]:
    row: dict[str, Any] = {"query": "Q?"}
    row["self"] = row
    return [row]


def failing(after: int) -> Iterator[dict[str, Any]]:
    yield from ROWS[:after]
    raise OSError("the line is down")


TWICE = pd.DataFrame([["Q?", "A.", "B."]], columns=["query", "response", "response"])
TWO_QUERIES = pa.table([pa.array(["Q?"]), pa.array(["R?"])], names=["query", "query"])
FAR_OFF = pa.table({"query": ["Q?"], "at": pa.array([2**62], pa.timestamp("s"))})
EMPTY = ([], iter(()), pd.DataFrame(), pd.DataFrame(ROWS)[:0], pa.Table.from_pylist(ROWS)[:0])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "data is a NoneType; give a path, a list of mappings, or a table"),
        ({"query": ["Q?"]}, "data is a dict; give a path"),
        *((data, "the data hold no rows") for data in EMPTY),
        (pd.DataFrame(ROWS)["query"], "row 1 of the data is a str, not a mapping"),
        (b"Q?", "row 1 of the data is a int, not a mapping"),
        ([*ROWS, ("Q?", "A.")], "row 3 of the data is a tuple, not a mapping"),
        (failing(0), "the data failed after 0 rows: OSError: the line is down"),
        (failing(2), "the data failed after 2 rows: OSError: the line is down"),
        ([{"query": Untold()}], "row 1 of the data cannot be written as JSON: Runtime"),
        ([{("a", "b"): 1}], "row 1 of the data cannot be written as JSON: TypeError"),
        (endless(), "row 1 of the data cannot be written as JSON: ValueError"),
        (TWICE, "two columns of the data are called response; rename one of them"),
        (TWO_QUERIES, "two columns of the data are called query; rename one of them"),
        (FAR_OFF, "data is a Table that cannot be made rows of: OverflowError"),
        (pd.DataFrame, "data is a type that cannot be made rows of: TypeError"),
    ],
)
def test_what_is_no_table_says_so_in_a_sentence(data: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError if "give a path" in message else DataError) as raised:
        written(data, tmp_path)
    assert str(raised.value).startswith(message)
    assert "\n" not in str(raised.value)
    assert not list(tmp_path.rglob("*.jsonl"))


def test_a_dataset_of_splits_names_them() -> None:
    class DatasetDict(dict[str, Any]):
        column_names = {"train": ["query"], "test": ["query"]}  # noqa: RUF012

    with pytest.raises(ConfigError, match="DatasetDict with the splits train, test; give one of"):
        to_rows(DatasetDict(train=ROWS, test=ROWS))
