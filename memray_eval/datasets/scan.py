"""One pass over a dataset before anything runs: every problem, how many samples, and the shards
that tasks will read."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal, NamedTuple, TypeAlias, TypeVar

from memray_eval.datasets.parsing import Fault, InvalidSample, Problem
from memray_eval.datasets.reading import SampleReader
from memray_eval.datasets.sharding import ContextSharder, RowSharder, Sharder
from memray_eval.datasets.sources import Entry, Shard, entries, read_header, whole
from memray_eval.datasets.spreading import Spread
from memray_eval.types import Record, Sample, dumps

Tell: TypeAlias = Callable[[Problem], None]
LimitOrder: TypeAlias = Literal["spread", "first"]
T = TypeVar("T")


@dataclass
class Scan:
    """What a pass found. `fingerprint` is a digest of the samples in order; memory grows with ids
    only (a hash each), and with places where they are read by context or a limit is spread.
    `context_chars` is the length of all samples' contexts together. `suites` counts the responses
    that name a suite, by its name."""

    n_samples: int = 0
    n_invalid: int = 0
    shards: list[Shard] = field(default_factory=list)
    fingerprint: str = ""
    context_chars: int = 0
    suites: Counter[str] = field(default_factory=Counter)


def scan(
    path: str,
    reading: SampleReader,
    *,
    limit: int | None = None,
    order: LimitOrder = "spread",
    rows_per_shard: int | Callable[[int], int] = 64,
    on_problem: Tell,
) -> Scan:
    """Reads the dataset as a stream; tells `on_problem` of every problem, in order. A `limit` takes
    so many good samples: spread over tasks and scenarios (`Spread`), for which it reads on until
    nothing more can be taken, without checking what will not be; or the first. `rows_per_shard` may
    follow from the number of samples that a spread limit took.

    Raises DataError when the path holds no dataset at all.
    """
    sources = whole(path)
    if reading.has_responses:
        sources = [source.model_copy(update={"header": read_header(source)}) for source in sources]
    if limit is not None and order == "spread":
        return _scan_spread(sources, reading, limit, rows_per_shard, on_problem)
    rows = rows_per_shard(limit or 0) if callable(rows_per_shard) else rows_per_shard
    return _scan_first(sources, reading, limit, rows, on_problem)


def _scan_first(
    sources: Sequence[Shard],
    reading: SampleReader,
    limit: int | None,
    rows_per_shard: int,
    on_problem: Tell,
) -> Scan:
    found, digest = Scan(), hashlib.blake2b(digest_size=16)
    seen: dict[bytes, str] = {}
    for source in sources:
        by_context = (
            reading.by_context and source.kind != "json"
        )  # which can only be read from its start
        cut: Sharder = (
            ContextSharder(source, rows_per_shard)
            if by_context
            else RowSharder(source, rows_per_shard)
        )
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
                digest.update(_serialised(outcome))
                found.n_samples += 1
                context = (outcome.sample if isinstance(outcome, Record) else outcome).context
                found.context_chars += len(context or "")
                found.suites.update(_suite_named(entry, reading))
                cut.add(entry, True, context)
        found.shards.extend(cut.finish())
    found.fingerprint = digest.hexdigest()
    return found


class _Taken(NamedTuple):
    """A good entry that a limit took: in which source, where, and what is left to know of it."""

    source: int
    entry: Entry
    digest: bytes
    context: str | None
    context_chars: int
    suites: tuple[str, ...]


def _scan_spread(
    sources: Sequence[Shard],
    reading: SampleReader,
    limit: int,
    rows_per_shard: int | Callable[[int], int],
    on_problem: Tell,
) -> Scan:
    found = Scan()

    def tell(problems: list[Problem]) -> None:
        found.n_invalid += 1
        for problem in problems:
            on_problem(problem)

    taken = _spread_over(sources, reading, limit, tell)
    rows = rows_per_shard(len(taken)) if callable(rows_per_shard) else rows_per_shard
    for number, group in groupby(taken, key=lambda one: one.source):
        is_json = sources[number].kind == "json"  # one shard, read from its start
        cut = ContextSharder(sources[number], limit if is_json else rows)
        for one in group:
            cut.add(one.entry, True, None if is_json else one.context)
        found.shards.extend(cut.finish())
    found.n_samples, found.context_chars = len(taken), sum(one.context_chars for one in taken)
    found.suites.update(suite for one in taken for suite in one.suites)
    found.fingerprint = hashlib.blake2b(
        b"".join(one.digest for one in taken), digest_size=16
    ).hexdigest()
    return found


def _spread_over(
    sources: Sequence[Shard],
    reading: SampleReader,
    limit: int,
    tell: Callable[[list[Problem]], None],
) -> list[_Taken]:
    """The good entries that a limit takes, in their order. What it would leave out anyway is not
    checked."""
    seen: dict[bytes, str] = {}
    spread: Spread[_Taken] = Spread(
        limit, reading.tasks or reading.known_tasks, reading.has_responses
    )
    for number, source in enumerate(sources):
        for entry in entries(source):
            if spread.is_settled():
                return spread.taken()
            try:
                outline = reading.outline(entry)
            except InvalidSample as error:
                if not spread.is_full:
                    tell(_problems(entry, error))
                continue
            if outline is None or (rank := spread.rank(outline)) is None:
                continue
            outcome = _check(entry, reading, seen)
            if isinstance(outcome, list):
                tell(outcome)
            elif outcome is not None:
                spread.take(outline, rank, _taken(number, entry, outcome, reading))
    return spread.taken()


def _taken(number: int, entry: Entry, outcome: Sample | Record, reading: SampleReader) -> _Taken:
    """What is to be kept of an entry: no texts, which may be long."""
    context = (outcome.sample if isinstance(outcome, Record) else outcome).context
    shared = (
        hashlib.blake2b(context.encode("utf-8", "surrogatepass")).hexdigest()
        if context and reading.by_context
        else None
    )
    digest = hashlib.blake2b(_serialised(outcome), digest_size=16).digest()
    place = entry._replace(raw=None)
    return _Taken(number, place, digest, shared, len(context or ""), _suite_named(entry, reading))


def _suite_named(entry: Entry, reading: SampleReader) -> tuple[str, ...]:
    """The suite that a response says it belongs to, if any."""
    named = (
        entry.raw.get("suite") if reading.has_responses and isinstance(entry.raw, dict) else None
    )
    return (named,) if isinstance(named, str) and named else ()


Broken: TypeAlias = Callable[[Entry, Exception], None]


def read_samples(
    shard: Shard, reading: SampleReader, on_broken: Broken | None = None
) -> Iterator[Sample]:
    """The samples of a shard that `scan` made: its invalid entries are already left out. An entry
    that raises all the same is told to `on_broken` and left out; without that it raises here."""
    return _each(shard, reading.sample, on_broken)


def read_records(
    shard: Shard, reading: SampleReader, on_broken: Broken | None = None
) -> Iterator[Record]:
    """The responses of a shard that `scan` made, as records to judge; `on_broken` as for
    read_samples."""
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


def _serialised(found: Sample | Record) -> bytes:
    """The JSON of a sample or response, for its fingerprint. Raises ValueError where it holds what
    is no JSON."""
    return dumps(found.model_dump(mode="json")).encode("utf-8", "surrogatepass")


def _check(
    entry: Entry, reading: SampleReader, seen: dict[bytes, str]
) -> Sample | Record | list[Problem] | None:
    try:
        found = reading.record(entry) if reading.has_responses else reading.sample(entry)
        if found is None:
            return None
        sample, who = (
            (found.sample, found.candidate.name) if isinstance(found, Record) else (found, "")
        )
        key = hashlib.blake2b(f"{who}\n{sample.id}".encode(), digest_size=8).digest()
        here = entry.place or entry.path
        if (first := seen.setdefault(key, here)) is not here:
            raise InvalidSample(
                [Fault(field="id", message=f"a second sample with this id; the first is {first}")],
                sample.id,
            )
        return found
    except InvalidSample as error:
        return _problems(entry, error)


def _problems(entry: Entry, error: InvalidSample) -> list[Problem]:
    return [
        Problem(
            path=entry.path,
            place=entry.place,
            sample_id=error.sample_id,
            field=fault.field,
            message=fault.message,
        )
        for fault in error.faults
    ]
