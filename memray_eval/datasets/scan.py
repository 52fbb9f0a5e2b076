"""One pass over a dataset before anything runs: every problem, how many samples, and the shards that tasks will read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from memray_eval.datasets.cutting import Cut, CutByContext, Cutter
from memray_eval.datasets.parsing import Fault, InvalidSample, Problem
from memray_eval.datasets.reading import Reading
from memray_eval.datasets.sources import Entry, Shard, entries, whole
from memray_eval.types import Record, Sample, dumps

T = TypeVar("T")


@dataclass
class Scan:
    """What a pass found. `fingerprint` is a digest of the samples in order; memory grows with ids only (a hash each), and with
    places where they are read by context. `context_chars` is the length of all samples' contexts together."""

    n_samples: int = 0
    n_invalid: int = 0
    shards: list[Shard] = field(default_factory=list)
    fingerprint: str = ""
    context_chars: int = 0


def scan(
    path: str,
    reading: Reading,
    *,
    limit: int | None = None,
    rows_per_shard: int = 64,
    on_problem: Callable[[Problem], None],
) -> Scan:
    """Reads the dataset as a stream, up to `limit` good samples; tells `on_problem` of every problem, in order.

    Raises DataError when the path holds no dataset at all.
    """
    found, digest = Scan(), hashlib.blake2b(digest_size=16)
    seen: dict[bytes, str] = {}
    for source in whole(path):
        by_context = reading.by_context and source.kind != "json"  # which can only be read from its start
        cut: Cutter = CutByContext(source, rows_per_shard) if by_context else Cut(source, rows_per_shard)
        for entry in entries(source):
            if found.n_samples == limit:
                break
            outcome = _check(entry, reading, seen)
            if isinstance(outcome, list):
                found.n_invalid += 1
                for problem in outcome:
                    on_problem(problem)
                cut.add(entry, False, None)
            elif outcome is None:
                cut.add(entry, False, None)
            else:
                digest.update(dumps(outcome.model_dump(mode="json")).encode())
                found.n_samples += 1
                context = (outcome.sample if isinstance(outcome, Record) else outcome).context
                found.context_chars += len(context or "")
                cut.add(entry, True, context)
        found.shards.extend(cut.finish())
    found.fingerprint = digest.hexdigest()
    return found


Broken: TypeAlias = Callable[[Entry, Exception], None]


def read_samples(shard: Shard, reading: Reading, on_broken: Broken | None = None) -> Iterator[Sample]:
    """The samples of a shard that `scan` made: its invalid entries are already left out. An entry that raises all the same is
    told to `on_broken` and left out; without that it raises here."""
    return _each(shard, reading.sample, on_broken)


def read_records(shard: Shard, reading: Reading, on_broken: Broken | None = None) -> Iterator[Record]:
    """The responses of a shard that `scan` made, as records to judge; `on_broken` as for read_samples."""
    return _each(shard, reading.record, on_broken)


def _each(shard: Shard, make: Callable[[Entry], T | None], on_broken: Broken | None) -> Iterator[T]:
    for entry in entries(shard):
        if isinstance(entry.raw, InvalidSample):
            continue
        try:
            made = make(entry)
        except Exception as error:
            if on_broken is None:
                raise
            on_broken(entry, error)
            continue
        if made is not None:
            yield made


def _check(entry: Entry, reading: Reading, seen: dict[bytes, str]) -> Sample | Record | list[Problem] | None:
    try:
        found = reading.record(entry) if reading.has_responses else reading.sample(entry)
        if found is None:
            return None
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
