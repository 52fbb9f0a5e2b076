"""One pass over a dataset before anything runs: every problem, how many samples, and the shards that tasks will read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from memray_eval.datasets.parsing import Fault, InvalidSample, Problem, parse_sample
from memray_eval.datasets.sources import Entry, Shard, entries, whole
from memray_eval.types import Record, Sample, dumps

Parse: TypeAlias = Callable[[Any, str], Sample | Record]

SHARD_BYTES = 16 << 20  # a shard is cut here too, so that long contexts do not pile up in one block


@dataclass
class Scan:
    """What a pass found. `fingerprint` is a digest of the samples in order; memory grows with ids only (a hash each)."""

    n_samples: int = 0
    n_invalid: int = 0
    shards: list[Shard] = field(default_factory=list)
    fingerprint: str = ""


def scan(
    path: str,
    suite: str,
    *,
    limit: int | None = None,
    rows_per_shard: int = 64,
    on_problem: Callable[[Problem], None],
    parse: Parse = parse_sample,
) -> Scan:
    """Reads the dataset as a stream, up to `limit` good samples; tells `on_problem` of every problem, in order. `parse` turns
    a raw object into a Sample, or into a Record where responses exist already.

    Raises DataError when the path holds no dataset at all.
    """
    found, digest = Scan(), hashlib.blake2b(digest_size=16)
    seen: dict[bytes, str] = {}
    for source in whole(path):
        cut = _Cut(source, rows_per_shard)
        for entry in entries(source):
            if found.n_samples == limit:
                break
            outcome = _check(entry, suite, seen, parse)
            if not isinstance(outcome, list):
                digest.update(dumps(outcome.model_dump(mode="json")).encode())
                found.n_samples += 1
            else:
                found.n_invalid += 1
                for problem in outcome:
                    on_problem(problem)
            cut.add(entry, is_good=not isinstance(outcome, list))
        found.shards.extend(cut.finish())
    found.fingerprint = digest.hexdigest()
    return found


def coalesce(shards: Sequence[Shard], rows: int) -> list[Shard]:
    """Neighbouring shards of one source joined up to `rows` rows and SHARD_BYTES: few blocks for a large dataset, many for a
    small one."""
    out: list[Shard] = []
    for shard in shards:
        last = out[-1] if out else None
        joins = last is not None and last.path == shard.path and last.rows + shard.rows <= rows
        if last is not None and joins and last.size + shard.size <= SHARD_BYTES:
            joined = {"stop": shard.stop, "names": last.names + shard.names, "skip": last.skip + shard.skip}
            out[-1] = last.model_copy(update={**joined, "rows": last.rows + shard.rows, "size": last.size + shard.size})
        else:
            out.append(shard)
    return out


T = TypeVar("T", Sample, Record)


def read_shard(shard: Shard, suite: str, parse: Callable[[Any, str], T]) -> Iterator[T]:
    """The samples (or records) of a shard that `scan` made: its invalid entries are already in `skip`."""
    return (parse(entry.raw, suite) for entry in entries(shard) if not isinstance(entry.raw, InvalidSample))


def _check(entry: Entry, suite: str, seen: dict[bytes, str], parse: Parse) -> Sample | Record | list[Problem]:
    try:
        if isinstance(entry.raw, InvalidSample):
            raise entry.raw
        found = parse(entry.raw, suite)
        sample, who = (found.sample, found.candidate.name) if isinstance(found, Record) else (found, "")
        key = hashlib.blake2b(f"{who}\n{sample.id}".encode(), digest_size=8).digest()
        here = entry.place or entry.path
        if (first := seen.setdefault(key, here)) is not here:
            raise InvalidSample([Fault(field="id", message=f"a second sample with this id; the first is {first}")], sample.id)
        return found
    except InvalidSample as error:
        return [
            Problem(path=entry.path, place=entry.place, sample_id=error.sample_id, field=fault.field, message=fault.message)
            for fault in error.faults
        ]


class _Cut:
    """Cuts a source into shards while it is scanned."""

    def __init__(self, source: Shard, rows_per_shard: int) -> None:
        self.source, self.rows_per_shard = source, rows_per_shard
        self.done: list[Shard] = []
        self._begin()

    def _begin(self) -> None:
        self.start: int | None = None
        self.rows = self.size = self.end = 0
        self.skip: list[int] = []

    def add(self, entry: Entry, is_good: bool) -> None:
        self.start = entry.position if self.start is None else self.start
        self.end = entry.end
        self.size += entry.size
        self.rows += is_good
        if not is_good:
            self.skip.append(entry.position)
        # A combined JSON can only be read from its start: one shard, whose rows are spread after the reading.
        if self.source.kind != "json" and (self.rows >= self.rows_per_shard or self.size >= SHARD_BYTES):
            self._close()

    def finish(self) -> list[Shard]:
        self._close()
        return self.done

    def _close(self) -> None:
        if self.start is not None and self.rows:
            names = self.source.names[self.start : self.end]
            stretch = {"start": self.start, "stop": self.end, "names": names, "skip": tuple(self.skip)}
            self.done.append(self.source.model_copy(update={**stretch, "rows": self.rows, "size": self.size}))
        self._begin()
