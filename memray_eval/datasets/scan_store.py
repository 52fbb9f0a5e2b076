"""Keeps what a scan found, so that a resumed run need not read an unchanged dataset again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pyarrow import fs
from pydantic import ValidationError

from memray_eval.datasets.scan import Scan
from memray_eval.datasets.shards import Shard
from memray_eval.datasets.sources import sources_of
from memray_eval.errors import EvalError
from memray_eval.ports import PublishedFiles
from memray_eval.storage.paths import locate, translate_cloud_errors
from memray_eval.types import Frozen

# A file that was written so shortly before it was read may have been written again since, within
# the same tick of its file system's clock.
SETTLED_S = 3.0


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
    infos = [*_infos_of_sources(sources), *_infos_of_files(sorted(drawn_on))]
    digest = hashlib.blake2b(digest_size=16)
    for file, info in infos:
        digest.update(
            f"{file}\n{info.type}\n{info.size}\n{info.mtime_ns}\n".encode("utf-8", "surrogatepass")
        )
    times = [info.mtime_ns / 1e9 for _, info in infos if info.mtime_ns is not None]
    size = sum(info.size or 0 for _, info in infos)
    return FileStates(digest.hexdigest(), max(times, default=0.0), size, len(sources))


def _infos_of_sources(sources: Sequence[Shard]) -> Iterator[tuple[str, fs.FileInfo]]:
    yield from _infos_of_files([source.path for source in sources if source.kind != "folder"])
    for source in sources:
        if source.kind == "folder":  # one listing: a question a sample would take long in a cloud
            filesystem, inner = locate(source.path)
            with translate_cloud_errors(source.path):
                infos = filesystem.get_file_info(fs.FileSelector(inner, recursive=True))
            files = (info for info in infos if info.type == fs.FileType.File)
            for info in sorted(files, key=lambda info: str(info.path)):
                yield str(info.path).removeprefix(inner), info


def _infos_of_files(paths: Sequence[str]) -> Iterator[tuple[str, fs.FileInfo]]:
    if paths:
        filesystem, _ = locate(paths[0])  # all lie below one dataset
        with translate_cloud_errors(paths[0]):
            infos = filesystem.get_file_info([locate(path)[1] for path in paths])
        yield from zip(paths, infos, strict=True)


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
