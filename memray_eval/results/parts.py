"""Parts: the Parquet files that hold a run's rows, each with an index of its units in its footer,
within a reader's first 64 KB (MAX_ROWS units: 25 KB); without one it is made of the columns."""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import secrets
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from memray_eval.results.schema import RECORD_SCHEMA

MAX_ROWS = 2048
MAX_BYTES = 32 << 20  # of a part's rows in memory; the file is smaller
INDEX_KEY = b"memray_eval.units"
_INDEXED = ["unit_id", "error", "scores.list.element.status"]

UnitNumbers: TypeAlias = npt.NDArray[np.uint64]
Flags: TypeAlias = npt.NDArray[np.bool_]


class Part(NamedTuple):
    """A part as it was listed, its size in bytes. If it is rewritten, it is another part."""

    name: str
    size: int
    mtime_ns: int | None = None


class UnitIndex(NamedTuple):
    """One entry per row of a part: its unit; whether the unit has no answer; whether it failed,
    which is that, or a score that is an error; whether it has scores."""

    units: UnitNumbers
    is_unanswered: Flags
    is_failed: Flags
    is_scored: Flags

    def to_text(self) -> bytes:
        flags = np.packbits(np.stack(self[1:], axis=1), axis=1, bitorder="little")
        return base64.b64encode(self.units.astype("<u8").tobytes() + flags.tobytes())

    @classmethod
    def from_text(cls, text: bytes, n_rows: int) -> UnitIndex | None:
        """Reads what to_text wrote; None if it is not an index of `n_rows` rows."""
        try:
            data = base64.b64decode(text, validate=True)
        except binascii.Error:
            return None
        if len(data) != 9 * n_rows:
            return None
        units = np.frombuffer(data, "<u8", count=n_rows).astype(np.uint64)
        flags = np.frombuffer(data, np.uint8, offset=8 * n_rows)
        return cls(units, *(flags >> bit & 1 > 0 for bit in range(3)))

    @classmethod
    def concatenate(cls, indexes: Iterable[UnitIndex]) -> UnitIndex:
        nothing = np.zeros(0, np.bool_)
        empty = cls(np.zeros(0, np.uint64), nothing, nothing, nothing)
        return cls(*map(np.concatenate, zip(empty, *indexes, strict=True)))

    def filter(self, rows: Flags) -> UnitIndex:
        return UnitIndex(self.units[rows], *(flags[rows] for flags in self[1:]))

    def first_of_each(self) -> Flags:
        """Marks one row of each unit: the first that did not fail; without one, the first that has
        an answer; without one, the first. Of rows alike in that, one with scores goes first."""
        rank = 2 * (self.is_failed.astype(np.int8) + self.is_unanswered) + ~self.is_scored
        order = np.lexsort((rank, self.units))  # stable: equal ones stay in order
        in_order = self.units[order]
        is_first = np.ones(len(order), np.bool_)
        is_first[1:] = in_order[1:] != in_order[:-1]
        marked = np.zeros(len(order), np.bool_)
        marked[order[is_first]] = True
        return marked


def unit_number(unit_id: str) -> int:
    """A unit's id as a number of 8 bytes: its 16 hex digits, or a digest of any other text."""
    if len(unit_id) == 16:
        try:
            return int(unit_id, 16)
        except ValueError:
            pass
    return int.from_bytes(hashlib.blake2b(unit_id.encode(), digest_size=8).digest(), "big")


def unit_numbers(unit_ids: Iterable[str]) -> UnitNumbers:
    ids = list(unit_ids)
    if all(len(name) == 16 for name in ids):
        try:
            digits = bytes.fromhex("".join(ids))
        except ValueError:
            digits = b""
        if len(digits) == 8 * len(ids):  # no blank among them
            return np.frombuffer(digits, ">u8").astype(np.uint64)
    return np.fromiter(map(unit_number, ids), dtype=np.uint64)


def index_rows(table: pa.Table) -> UnitIndex:
    """Indexes rows with the columns unit_id, error and scores (only their status counts)."""
    is_unanswered = table.column("error").is_valid().to_numpy()
    is_failed, is_scored = is_unanswered.copy(), np.zeros(table.num_rows, np.bool_)
    first = 0
    for scores in table.column("scores").chunks:
        row = pc.list_parent_indices(scores).to_numpy() + first
        is_error = pc.equal(pc.struct_field(scores.flatten(), "status"), "error")
        is_failed[row[is_error.to_numpy(zero_copy_only=False)]] = True
        is_scored[row] = True
        first += len(scores)
    units = unit_numbers(table.column("unit_id").to_pylist())
    return UnitIndex(units, is_unanswered, is_failed, is_scored)


def encode_part(table: pa.Table) -> bytes:
    """Rows with RECORD_SCHEMA as a Parquet file with their index."""
    table = table.cast(RECORD_SCHEMA).replace_schema_metadata(None)
    buffer = io.BytesIO()
    with pq.ParquetWriter(buffer, RECORD_SCHEMA, compression="zstd") as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({INDEX_KEY: index_rows(table).to_text()})
    return buffer.getvalue()


def index_in(footer: pq.FileMetaData) -> UnitIndex | None:
    """The index in a part's footer. None without one, or if it is of another number of rows: a tool
    that rewrites a file may keep the old footer."""
    text = (footer.metadata or {}).get(INDEX_KEY)
    return None if text is None else UnitIndex.from_text(text, footer.num_rows)


def index_file(file: pa.NativeFile) -> UnitIndex:
    """Makes the index of a part that has none, from its columns."""
    return index_rows(pq.ParquetFile(file).read(columns=_INDEXED))


def new_part_name() -> str:
    """A name that no other part has."""
    return f"part-{secrets.token_hex(8)}.parquet"


def digest_name(table: pa.Table) -> str:
    """The name of a part that is known by its units, so that writing it again overwrites it."""
    units = "\n".join(table.column("unit_id").to_pylist())
    return f"part-{hashlib.blake2b(units.encode(), digest_size=8).hexdigest()}.parquet"


def split_rows(table: pa.Table) -> Iterator[pa.Table]:
    """Cuts a table into pieces that fit a part; a larger row is a piece of its own."""
    if table.num_rows <= 1 or (table.num_rows <= MAX_ROWS and table.nbytes <= MAX_BYTES):
        yield table
        return
    half = min(MAX_ROWS, table.num_rows // 2)
    yield from split_rows(table.slice(0, half))
    yield from split_rows(table.slice(half))


def join_rows(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Joins and cuts tables into as few as parts may hold, in their order."""
    held: list[pa.Table] = []
    rows = size = 0
    for table in tables:
        for piece in split_rows(table) if table.num_rows else ():
            if held and (rows + piece.num_rows > MAX_ROWS or size + piece.nbytes > MAX_BYTES):
                yield pa.concat_tables(held)
                held, rows, size = [], 0, 0
            held.append(piece)
            rows, size = rows + piece.num_rows, size + piece.nbytes
    if held:
        yield pa.concat_tables(held)
