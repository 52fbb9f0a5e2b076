"""Scans a dataset before anything runs: finds every problem, counts samples, and cuts shards. Keeps
what it found, so that a resumed run need not read an unchanged dataset again."""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias, TypeVar

from pyarrow import fs
from pydantic import ValidationError

from memray_eval.datasets.columnar_files import count_rows
from memray_eval.datasets.json_files import read_header
from memray_eval.datasets.parsing import InvalidSample, Problem, invalid
from memray_eval.datasets.reading import SampleReader, context_file_of
from memray_eval.datasets.shards import ContextSharder, Entry, RowSharder, Shard, Spread
from memray_eval.datasets.sources import entries, prepared, sources_of
from memray_eval.errors import EvalError
from memray_eval.ports import PublishedFiles
from memray_eval.storage.paths import locate, translate_cloud_errors
from memray_eval.types import Frozen, Record, Sample, turn_ids
from memray_eval.types.json_text import record_to_json, sample_to_json
from memray_eval.types.samples import NOT_SHOWN

ProblemHandler: TypeAlias = Callable[[Problem], None]
T = TypeVar("T")
WHOLE = "2:"  # begins the fingerprint of a scan, but for one with a spread limit
# A long Parquet file is scanned in stretches of so many rows, up to so many of them
STRETCH_ROWS, MOST_STRETCHES = 32_768, 64
# A file that was written so shortly before it was read may have been written again since, within
# the same tick of its file system's clock.
SETTLED_S = 3.0


@dataclass
class Scan:
    """What a scan found: a digest of the samples in order, how often responses name a suite, the
    files that samples name for their contexts, the turns after the first of `n_sessions` samples (a
    model plays the user of `n_simulated`), how many samples hold what no model is shown, by kind,
    and forbidden keys that the memory of their sample lacks. `samples_digest`, of given answers: a
    sum of digests of their samples, which other answers to them leave as it is."""

    n_samples: int = 0
    n_invalid: int = 0
    shards: list[Shard] = field(default_factory=list)
    fingerprint: str = ""
    samples_digest: int = 0
    context_chars: int = 0
    suites: Counter[str] = field(default_factory=Counter)
    context_files: set[str] = field(default_factory=set)
    n_sessions: int = 0
    n_later_turns: int = 0
    n_simulated: int = 0
    not_shown: Counter[str] = field(default_factory=Counter)
    absent_keys: set[str] = field(default_factory=set)

    @property
    def n_asked(self) -> int:
        """How often a candidate is asked: for each sample once, for a session each turn."""
        return self.n_samples + self.n_later_turns

    def add(self, parsed: Sample | Record, raw: Any) -> None:
        """Counts a sample, its context and turns, and the suite that its response's row names."""
        sample = _sample_of(parsed)
        if isinstance(parsed, Record):
            self.samples_digest += int.from_bytes(_digest(sample))
            named = raw.get("suite") if isinstance(raw, dict) else None
            if isinstance(named, str) and named:
                self.suites[named] += 1
        self.n_samples += 1
        self.context_chars += len(sample.context or "")
        if isinstance(hidden := sample.metadata.get(NOT_SHOWN), list):
            self.not_shown.update({str(kind) for kind in hidden})
        self.absent_keys.update(key for key in sample.forbidden_keys if key not in sample.memory)
        if sample.is_session:
            self.n_sessions += 1
            self.n_later_turns += sample.n_turns - 1
            self.n_simulated += sample.user is not None

    def warnings(self) -> Iterator[str]:
        """What a person should know of valid samples."""
        if keys := sorted(self.absent_keys):
            yield (
                f"warning: forbidden but absent from memory: {', '.join(map(repr, keys[:5]))}; "
                "only a made-up value can use them. Add them to memory, or move them to "
                "neutral_keys."
            )
        for kind, n in self.not_shown.items():
            yield (
                f"warning: {n} of {self.n_samples} samples hold {kind}: candidates and judges are "
                "asked without them, by the text alone"
            )


class FirstPlaces:
    """By an id's number (a digest of it, 64 bits with a sign), the place where it stood first, in
    words: an SQLite table in memory. A million ids take 30 MB, where a dict takes 150."""

    def __init__(self, table: bytes = b"") -> None:
        self._places = sqlite3.connect(":memory:", check_same_thread=False)
        if table:
            self._places.deserialize(table)
        else:
            self._places.execute("CREATE TABLE first (number INTEGER PRIMARY KEY, place BLOB)")
        self._places.execute("ATTACH ':memory:' AS other")

    def __reduce__(self) -> tuple[type[FirstPlaces], tuple[bytes]]:
        self._places.commit()
        return FirstPlaces, (self._places.serialize(),)

    def __del__(self) -> None:
        self._places.close()

    def find_or_add(self, number: int, where: str) -> str | None:
        """Where the id of this number stood first; None if it is new, now at `where`."""
        row = (number, where.encode("utf-8", "surrogatepass"))  # SQLite's text is valid Unicode
        if self._places.execute("INSERT OR IGNORE INTO first VALUES (?, ?)", row).rowcount:
            return None
        query = "SELECT place FROM first WHERE number = ?"
        first: bytes = self._places.execute(query, (number,)).fetchone()[0]
        return first.decode("utf-8", "surrogatepass")

    def add_all(self, other: FirstPlaces) -> bool:
        """Adds the ids of another. Returns False, and adds none, where one of them is here."""
        for places in (self, other):
            places._places.commit()
        self._places.deserialize(other._places.serialize(), name="other")
        try:
            self._places.execute("INSERT INTO main.first SELECT * FROM other.first")
        except sqlite3.IntegrityError:
            return False
        return True


@dataclass
class SourceScan:
    """What a scan found in one source; the samples' digests are 16 bytes each, in order."""

    scan: Scan = field(default_factory=Scan)
    digests: bytearray = field(default_factory=bytearray)
    seen: FirstPlaces = field(default_factory=FirstPlaces)
    problems: list[Problem] = field(default_factory=list)


ScanSource: TypeAlias = Callable[[Shard], SourceScan]
# Does the work for each source and yields the results in their order
EachSource: TypeAlias = Callable[[ScanSource, Sequence[Shard]], Iterable[SourceScan]]


def scan(
    path: str,
    reading: SampleReader,
    *,
    limit: int | None = None,
    rows_per_shard: int | Callable[[int], int] = 64,
    on_problem: ProblemHandler,
    engines: float = 1,
    each_source: EachSource | None = None,
) -> Scan:
    """Reads the dataset as a stream and calls `on_problem` for every problem, in order. Raises
    DataError if there is no dataset.

    A `limit` takes that many valid samples, spread over tasks and scenarios (`Spread`), and checks
    no others. `rows_per_shard` may be a function of the number of samples taken. What is read by
    context is cut so that a context stays with one of the `engines`. `each_source` may scan sources
    at the same time; what is found is the same."""
    sources = sources_of(path, reading.files)
    if reading.has_responses:
        sources = [source.model_copy(update={"header": read_header(source)}) for source in sources]
    if limit is not None:
        return _scan_spread(sources, reading, limit, rows_per_shard, engines, on_problem)
    rows = rows_per_shard(0) if callable(rows_per_shard) else rows_per_shard
    if each_source is not None and not reading.by_context:
        sources = [part for source in sources for part in _cut_long(source)]
    work = partial(_scan_source, reading, rows, engines)
    return _add_up(_join(sources, work, each_source or map, on_problem))


def _cut_long(source: Shard) -> Iterator[Shard]:
    """A source that anybody can begin to read anywhere, as stretches of it to scan apart."""
    rows = count_rows(source.path) if source.kind == "parquet" and not source.published else 0
    stretch = max(STRETCH_ROWS, math.ceil(rows / MOST_STRETCHES))
    for start in range(0, max(1, rows), stretch):
        # The last one ends where the file does, whatever that is by then
        stop = start + stretch if start + stretch < rows else None
        yield source.model_copy(update={"start": start, "stop": stop})


def _join(
    sources: Sequence[Shard],
    work: Callable[..., SourceScan],
    each_source: EachSource,
    on_problem: ProblemHandler,
) -> Iterator[SourceScan]:
    """The scans of sources; one with an id that is in one before is scanned again."""
    seen = FirstPlaces()
    for source, alone in zip(sources, each_source(work, sources), strict=True):
        is_new = len(sources) == 1 or seen.add_all(alone.seen)
        done = alone if is_new else work(source, seen)
        for problem in done.problems:
            on_problem(problem)
        yield done


def _scan_source(
    reading: SampleReader,
    rows_per_shard: int,
    engines: float,
    source: Shard,
    seen: FirstPlaces | None = None,
) -> SourceScan:
    """Scans one source; its ids join `seen`, those of the sources before."""
    source = prepared(source, reading.encoding) if source.start == 0 else source
    done = SourceScan(seen=FirstPlaces() if seen is None else seen)
    result = done.scan
    sharder: ContextSharder | RowSharder
    if reading.by_context and not source.is_read_from_start:
        sharder = ContextSharder(source, rows_per_shard, engines)
    else:
        sharder = RowSharder(source, rows_per_shard)
    for entry in entries(source, reading.files):
        result.context_files.update(context_file_of(entry))
        outcome = _check(entry, reading, done.seen)
        if isinstance(outcome, list):
            result.n_invalid += 1
            done.problems += outcome
        if outcome is None or isinstance(outcome, list):
            sharder.add(entry, False, None)
            continue
        done.digests += _digest(outcome)
        result.add(outcome, entry.raw)
        sharder.add(entry, True, _sample_of(outcome).context)
    result.shards.extend(sharder.finish())
    return done


def _add_up(scanned: Iterable[SourceScan]) -> Scan:
    """What was found in all sources."""
    total, digest = Scan(), hashlib.blake2b(digest_size=16)
    for part in scanned:
        digest.update(part.digests)
        for name, value in vars(part.scan).items():
            before = getattr(total, name)
            setattr(total, name, before | value if isinstance(value, set) else before + value)
    total.fingerprint = WHOLE + digest.hexdigest()
    return total


class _TakenEntry(NamedTuple):
    """A valid entry that a limit took, without its texts: its source and place, its digests."""

    source: int
    entry: Entry
    digest: bytes
    context: str | None
    counted: Scan


def _scan_spread(
    sources: Sequence[Shard],
    reading: SampleReader,
    limit: int,
    rows_per_shard: int | Callable[[int], int],
    engines: float,
    on_problem: ProblemHandler,
) -> Scan:
    looked_at, shards, sources = SourceScan(), list[Shard](), list(sources)
    taken = _take_spread(sources, reading, limit, looked_at)
    for problem in looked_at.problems:
        on_problem(problem)
    rows = rows_per_shard(len(taken)) if callable(rows_per_shard) else rows_per_shard
    for number, group in groupby(taken, key=lambda sample: sample.source):
        is_one = sources[number].is_read_from_start
        sharder = ContextSharder(sources[number], limit if is_one else rows, engines)
        for sample in group:
            sharder.add(sample.entry, True, None if is_one else sample.context)
        shards += sharder.finish()
    total = _add_up(SourceScan(sample.counted, bytearray(sample.digest)) for sample in taken)
    total.shards, total.fingerprint = shards, total.fingerprint.removeprefix(WHOLE)
    total.n_invalid, total.context_files = looked_at.scan.n_invalid, looked_at.scan.context_files
    return total


def _take_spread(
    sources: list[Shard], reading: SampleReader, limit: int, looked_at: SourceScan
) -> list[_TakenEntry]:
    """The valid entries that a spread limit takes, in order; what is invalid, and the files of
    contexts, are counted in `looked_at`. Entries that it would leave out anyway are not checked."""
    spread: Spread[_TakenEntry] = Spread(
        limit, reading.tasks or reading.known_tasks, reading.has_responses
    )
    for number, source in enumerate(sources):
        source = sources[number] = prepared(source, reading.encoding)
        for entry in entries(source, reading.files):
            if spread.is_settled():
                return spread.taken()
            try:
                outline = reading.outline(entry)
            except InvalidSample as error:
                if not spread.is_full:
                    looked_at.scan.n_invalid += 1
                    looked_at.problems += _to_problems(entry, error)
                continue
            if outline is None or (rank := spread.rank(outline)) is None:
                continue
            looked_at.scan.context_files.update(context_file_of(entry))
            outcome = _check(entry, reading, looked_at.seen)
            if isinstance(outcome, list):
                looked_at.scan.n_invalid += 1
                looked_at.problems += outcome
            elif outcome is not None:
                # No texts are kept, which may be long
                text, counted = _sample_of(outcome).context or "", Scan()
                counted.add(outcome, entry.raw)
                context = _hash(text, 16).hex() if text and reading.by_context else None
                bare, digest = entry._replace(raw=None), _digest(outcome)
                spread.take(outline, rank, _TakenEntry(number, bare, digest, context, counted))
    return spread.taken()


def _sample_of(parsed: Sample | Record) -> Sample:
    return parsed.sample if isinstance(parsed, Record) else parsed


BrokenEntryHandler: TypeAlias = Callable[[Entry, Exception], None]


def read_samples(
    shard: Shard, reading: SampleReader, on_broken: BrokenEntryHandler | None = None
) -> Iterator[Sample]:
    """The samples of a shard that `scan` made. An entry that raises all the same goes to
    `on_broken`; without it the error propagates."""
    return _read_each(shard, reading.files, reading.sample, on_broken)


def read_records(
    shard: Shard, reading: SampleReader, on_broken: BrokenEntryHandler | None = None
) -> Iterator[Record]:
    """The responses of a shard as records to judge; `on_broken` as in `read_samples`."""
    return _read_each(shard, reading.files, reading.record, on_broken)


def _read_each(
    shard: Shard,
    files: PublishedFiles | None,
    make: Callable[[Entry], T | None],
    on_broken: BrokenEntryHandler | None,
) -> Iterator[T]:
    for entry in entries(shard, files):
        try:
            value = None if isinstance(entry.raw, InvalidSample) else make(entry)
        except Exception as error:
            if on_broken is None:
                raise
            on_broken(entry, error)
        else:
            if value is not None:
                yield value


def _digest(parsed: Sample | Record) -> bytes:
    """16 bytes of a sample's or record's JSON. Raises ValueError for what JSON cannot hold."""
    text = record_to_json(parsed) if isinstance(parsed, Record) else sample_to_json(parsed)
    return _hash(text, 16)


def _hash(text: str, size: int) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).digest()


def _check(
    entry: Entry, reading: SampleReader, seen: FirstPlaces
) -> Sample | Record | list[Problem] | None:
    """Parses an entry whose id must be new. Returns its problems, or None if not wanted."""
    try:
        parsed = reading.record(entry) if reading.has_responses else reading.sample(entry)
        if parsed is None:
            return None
        sample, who, again = _sample_of(parsed), "", 1
        if isinstance(parsed, Record):
            who, again = parsed.candidate.name, parsed.epoch
        # A session's turns are samples of their own
        who += f"\x1f{again}" if again > 1 else ""
        turns = turn_ids(sample) if sample.is_session else ()
        for name in (sample.id, *turns):
            key = _hash(f"{who}\n{name}", 8)
            path, place = entry.origin
            first = seen.find_or_add(int.from_bytes(key, "big", signed=True), place or path)
            if first is not None:
                which = f"answer of epoch {again}" if again > 1 else "sample"
                which += "" if name == sample.id else f" or turn {name}"
                raise invalid(f"a second {which} with this id; the first is {first}", "id", name)
        return parsed
    except InvalidSample as error:
        return _to_problems(entry, error)


def _to_problems(entry: Entry, error: InvalidSample) -> list[Problem]:
    path, place = entry.origin
    where = {"path": path, "place": place, "sample_id": error.sample_id}
    return [Problem(**where, field=fault.field, message=fault.message) for fault in error.faults]


class FileStates(NamedTuple):
    """A digest of the names, sizes and times of a dataset's files; when the newest was written
    (epoch seconds), their bytes, and how many sources they make."""

    digest: str
    newest_s: float
    size: int
    n_sources: int


class StoredScan(Frozen):
    """A scan as a run folder keeps it: what it found, in the files as they were then (`files`).
    `made_by` is all else that it depends on: how the dataset was read, and by which version."""

    made_by: dict[str, Any]
    files: str
    scan: Scan


def read_states(
    path: str, context_files: Collection[str] = (), files: PublishedFiles | None = None
) -> FileStates:
    """The states of a dataset's files, and of those that its samples name for their contexts.
    Raises DataError where there is no dataset, OSError for a folder that cannot be listed."""
    sources = sources_of(path, files)
    drawn_on = {other for source in sources for other in source.beside} | {*context_files}
    infos = _infos_of([source.path for source in sources if source.kind != "folder"])
    infos += _infos_of(sorted(drawn_on))
    for folder in (source.path for source in sources if source.kind == "folder"):
        filesystem, inner = locate(folder)
        with translate_cloud_errors(folder):  # one listing: a question a sample would take long
            below = filesystem.get_file_info(fs.FileSelector(inner, recursive=True))
        found = (info for info in below if info.type == fs.FileType.File)
        infos += sorted((str(info.path).removeprefix(inner), info) for info in found)
    digest = hashlib.blake2b(digest_size=16)
    for file, info in infos:
        digest.update(
            f"{file}\n{info.type}\n{info.size}\n{info.mtime_ns}\n".encode("utf-8", "surrogatepass")
        )
    times = [info.mtime_ns / 1e9 for _, info in infos if info.mtime_ns is not None]
    size = sum(info.size or 0 for _, info in infos)
    return FileStates(digest.hexdigest(), max(times, default=0.0), size, len(sources))


def _infos_of(paths: Sequence[str]) -> list[tuple[str, fs.FileInfo]]:
    if not paths:
        return []
    filesystem, _ = locate(paths[0])  # all lie below one dataset
    with translate_cloud_errors(paths[0]):
        infos = filesystem.get_file_info([locate(path)[1] for path in paths])
    return [*zip(paths, infos, strict=True)]


def store_scan(
    scan: Scan,
    path: str,
    made_by: Mapping[str, Any],
    started: float,
    files: PublishedFiles | None = None,
) -> dict[str, Any] | None:
    """What a scan that began at `started` (epoch seconds) found, as JSON; None where a file was
    written so late that nobody can tell whether it is the one that was read."""
    states = read_states(path, scan.context_files, files)
    if states.newest_s > started - SETTLED_S:
        return None
    stored = StoredScan(made_by=dict(made_by), files=states.digest, scan=scan)
    plain = stored.model_dump(mode="json", exclude_defaults=True)
    plain["scan"]["context_files"] = sorted(scan.context_files)
    return plain


def restore_scan(
    stored: object, path: str, made_by: Mapping[str, Any], files: PublishedFiles | None = None
) -> Scan | None:
    """The scan that was stored, where it would find the same again; None where a file has changed
    since, the dataset is read in another way, or what is stored is none."""
    try:
        kept = StoredScan.model_validate(stored)
        if json.loads(json.dumps(dict(made_by))) != kept.made_by:
            return None
        is_same = read_states(path, kept.scan.context_files, files).digest == kept.files
    except (ValidationError, EvalError, OSError):
        return None  # the scan itself says what is wrong with the dataset
    return kept.scan if is_same else None
