"""The published files of benchmarks of conversation memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pyarrow import fs

from memray_eval.ports import PublishedFile
from memray_eval.storage.paths import locate

Fault = tuple[str, str]  # a field, and what is wrong with it


def find_json(path: str) -> list[PublishedFile] | None:
    """The JSON file at a path, or those of the folder there where it holds nothing else that could
    be read; None where there are none."""
    if path.endswith(".json"):
        return [PublishedFile(path, "json")]
    names = names_in(path)
    found = sorted(name for name in names if name.endswith(".json"))
    others = any(name.endswith((".jsonl", ".parquet", ".csv")) for name in names)
    if not found or others or "manifest.json" in names:
        return None
    return [PublishedFile(f"{path.rstrip('/')}/{name}", "json") for name in found]


def names_in(folder: str) -> list[str]:
    """The names of what is in a folder, sorted; none where there is no such folder."""
    filesystem, inner = locate(folder)
    if filesystem.get_file_info(inner).type != fs.FileType.Directory:
        return []
    return sorted(str(info.base_name) for info in filesystem.get_file_info(fs.FileSelector(inner)))


def find_lacking(raw: Mapping[str, Any], names: Collection[str]) -> list[Fault]:
    """A fault for each field that a record lacks."""
    return [(name, "missing") for name in names if raw.get(name) is None]


def require(raw: Any, kind: str, names: Collection[str]) -> None:
    """Raises ValueError that says which of the fields an item lacks that every `kind` has."""
    if not isinstance(raw, Mapping):
        raise ValueError(f"no {kind}: it is {type(raw).__name__}, not an object")
    if missing := [name for name in names if name not in raw]:
        raise ValueError(
            f"no {kind}: it lacks {', '.join(missing)}; has the file another version or benchmark?"
        )


def as_text(answer: Any) -> str | None:
    """An answer that is a text or a number, as text; None for anything else."""
    if isinstance(answer, bool) or not isinstance(answer, str | int | float):
        return None
    return str(answer).strip() or None
