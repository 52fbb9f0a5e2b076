"""Shared by the tests of datasets: rows in a file of any format, and a dataset read."""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from memray_eval.datasets.parsing import Problem
from memray_eval.datasets.reading import SampleReader
from memray_eval.datasets.scan import Scan, read_records, read_samples, scan
from tests.build import write_lines
from tests.conftest import REPOSITORY

MEMORY = SampleReader(suite="memory")


class ReadDataset(NamedTuple):
    """What a scan found, then the samples or records of its shards, and its problems."""

    scan: Scan
    items: list[Any]
    problems: list[Problem]

    @property
    def ids(self) -> list[str]:
        return [item.id for item in self.items]


def read(path: Path | str, reader: SampleReader = MEMORY, **how: Any) -> ReadDataset:
    problems: list[Problem] = []
    result = scan(str(path), reader, on_problem=problems.append, **how)
    return ReadDataset(result, items_of(result, reader), problems)


def items_of(scan: Scan, reader: SampleReader = MEMORY) -> list[Any]:
    read_shard: Any = read_records if reader.has_responses else read_samples
    return [item for shard in scan.shards for item in read_shard(shard, reader)]


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]], group: int = 1000) -> Path:
    """Rows in the format of the file's ending, `group` rows a row group or batch; `.folder` is a
    folder of samples."""
    match path.suffix:
        case ".jsonl":
            write_lines(path, rows)
        case ".json":
            path.write_text(json.dumps(rows))
        case ".csv" | ".tsv":
            with path.open("w", newline="") as file:
                how = {"delimiter": "\t", "quoting": csv.QUOTE_NONE, "quotechar": None}
                table = csv.DictWriter(file, list(rows[0]), **how if path.suffix == ".tsv" else {})
                table.writeheader()
                table.writerows(rows)
        case ".parquet":
            pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=group)
        case ".arrow":
            rows_table = pa.Table.from_pylist(rows)
            with (
                pa.OSFile(str(path), "wb") as sink,
                pa.ipc.new_stream(sink, rows_table.schema) as stream,
            ):
                stream.write_table(rows_table, max_chunksize=group)
        case ".folder":
            write_folder(path, *rows)
    return path


def write_folder(path: Path, *rows: Mapping[str, Any] | bytes) -> Path:
    """Rows as a folder of samples: s000, s001, ..."""
    for number, row in enumerate(rows):
        folder = path / f"s{number:03}"
        folder.mkdir(parents=True)
        data = row if isinstance(row, bytes) else json.dumps(row).encode()
        (folder / "sample.json").write_bytes(data)
    return path


def broken_rows(of: str) -> list[tuple[Any, str, str]]:
    """The rows of tests/data/broken_rows.jsonl of a kind, or the changes that break a published
    record of that name, with the faulty field and words of the message."""
    lines = (REPOSITORY / "tests" / "data" / "broken_rows.jsonl").read_text("utf-8").splitlines()
    cases = [case for case in map(json.loads, lines) if case["of"] == of]
    return [(case["row"], case["field"], case["message"]) for case in cases]
