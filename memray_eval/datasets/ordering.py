"""Puts a dataset's samples into a seeded random order, stratified by task and length, so that every
beginning of it has about each stratum's share: a run may stop after any sample. Samples that share
a context, user or document stay together."""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from memray_eval.datasets.sharding import CONTEXT_SHARD_BYTES, EntryPlace, take_places
from memray_eval.datasets.shards import Entry, Shard
from memray_eval.types import CLUSTER_KEYS, Record, Sample

SEED = 0
# A file that is read from its start is read again for each shard
MOST_SHARDS_OF_ONE_FILE = 20


class OrderEntry(NamedTuple):
    """An entry's place, its sample's number, who answered it, its group, and its stratum."""

    source: Shard
    place: EntryPlace
    sample: int
    answered_by: str
    group: int
    stratum: tuple[str, int]


Group: TypeAlias = list[OrderEntry]


def sample_number(sample_id: str) -> int:
    """A sample's id in 8 bytes."""
    return _number(f"id\x1f{sample_id}")


def to_order_entry(source: Shard, entry: Entry, parsed: Sample | Record) -> OrderEntry:
    sample, who = (
        (parsed.sample, parsed.candidate.name) if isinstance(parsed, Record) else (parsed, "")
    )
    named = next((key for key in CLUSTER_KEYS if sample.metadata.get(key) is not None), None)
    if sample.context:
        group = f"context\x1f{sample.context}"
    elif named is not None:
        group = f"{named}\x1f{sample.metadata[named]}"
    else:
        group = f"id\x1f{sample.id}"
    tokens, length = sample.metadata.get("length"), len(sample.context or "") + len(sample.query)
    if isinstance(tokens, int | float) and 1 < tokens < 1e12:  # tokens, where the sample says so
        length = int(tokens)
    bin_ = math.ceil(math.log2(max(1, length)))
    position = EntryPlace(entry.position, entry.size, entry.number)
    return OrderEntry(
        source, position, sample_number(sample.id), who, _number(group), (sample.task, bin_)
    )


def _number(text: str) -> int:
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


@dataclass(frozen=True)
class SampleOrder:
    """The order of samples: their numbers, sorted, and the `positions` of these; the group of each
    place (from 0, rising), the stratum of each group; the candidates of responses that exist."""

    samples: npt.NDArray[np.uint64]
    positions: npt.NDArray[np.int64]
    groups: npt.NDArray[np.int64]
    strata: npt.NDArray[np.int64]
    candidates: tuple[str, ...] = ()

    @property
    def largest_group(self) -> int:
        return int(np.bincount(self.groups).max(initial=1))

    def places_of(self, sample_ids: Iterable[str]) -> npt.NDArray[np.int64]:
        """The place of each sample, -1 for one that is not known."""
        wanted = np.array([sample_number(name) for name in sample_ids], np.uint64)
        indexes = np.searchsorted(self.samples, wanted)
        indexes[indexes == self.samples.size] = 0
        return np.where(self.samples[indexes] == wanted, self.positions[indexes], -1)


@dataclass
class StratifiedOrder:
    """Collects a scan's entries and orders them."""

    seed: int = SEED
    entries: list[OrderEntry] = field(default_factory=list)

    def finish(self, rows_per_shard: int) -> tuple[list[Shard], SampleOrder]:
        """The shards in the order, of about so many rows, and the order of the samples."""
        ordered = self._shuffle()
        placed: dict[int, int] = {}
        groups: list[int] = []
        for number, group in enumerate(ordered):
            for entry in group:
                if placed.setdefault(entry.sample, len(placed)) == len(groups):
                    groups.append(number)
        samples = np.array(list(placed), np.uint64)
        by_number = np.argsort(samples, kind="stable")
        kinds = dict.fromkeys(group[0].stratum for group in ordered)
        strata = {stratum: code for code, stratum in enumerate(kinds)}
        order = SampleOrder(
            samples=samples[by_number],
            positions=by_number.astype(np.int64),
            groups=np.array(groups, np.int64),
            strata=np.array([strata[group[0].stratum] for group in ordered], np.int64),
            candidates=tuple(dict.fromkeys(filter(None, (e.answered_by for e in self.entries)))),
        )
        return list(self._cut(ordered, rows_per_shard)), order

    def _shuffle(self) -> list[Group]:
        """The groups in their order: of a stratum of n groups, the k-th of a shuffle stands at a
        random place between (k - 1) / n and k / n of the whole."""
        by_group, by_sample = defaultdict[int, Group](list), defaultdict[int, Group](list)
        for entry in self.entries:
            by_group[entry.group].append(entry)
            by_sample[entry.sample].append(entry)
        by_stratum = defaultdict[tuple[str, int], list[Group]](list)
        # By sample, if all have one context, or one user
        for group in (by_group if len(by_group) != 1 else by_sample).values():
            by_stratum[group[0].stratum].append(group)
        random = np.random.default_rng(self.seed)
        keyed: list[tuple[float, Group]] = []
        for groups in by_stratum.values():
            shuffled = random.permutation(len(groups))
            places = (np.arange(len(groups)) + random.random(len(groups))) / len(groups)
            keyed += zip(places.tolist(), (groups[index] for index in shuffled), strict=True)
        return [group for _, group in sorted(keyed, key=lambda pair: pair[0])]

    def _cut(self, ordered: Sequence[Sequence[OrderEntry]], rows_per_shard: int) -> Iterable[Shard]:
        """Shards of whole groups, up to the rows and CONTEXT_SHARD_BYTES; one for each source that
        a stretch of the order draws on."""
        rows = rows_per_shard
        if any(entry.source.is_read_from_start for entry in self.entries):
            rows = max(rows, math.ceil(len(self.entries) / MOST_SHARDS_OF_ONE_FILE))
        stretch: list[OrderEntry] = []
        for group in ordered:
            size = sum(entry.place.size for entry in (*stretch, *group))
            if stretch and (len(stretch) + len(group) > rows or size > CONTEXT_SHARD_BYTES):
                yield from _shards_of(stretch)
                stretch = []
            stretch.extend(group)
        yield from _shards_of(stretch)


def _shards_of(stretch: Sequence[OrderEntry]) -> Iterable[Shard]:
    by_source: dict[tuple[str, str], tuple[Shard, list[EntryPlace]]] = {}
    for entry in stretch:
        key = entry.source.path, entry.source.kind
        by_source.setdefault(key, (entry.source, []))[1].append(entry.place)
    for source, places in by_source.values():
        if source.is_read_from_start:  # in its own order
            places.sort()
        yield take_places(source, places)
