"""Files of a batch on this machine: requests on their way out, results on their way in."""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def scratch_file() -> Iterator[Path]:
    """A path for a file that goes with the block."""
    with tempfile.TemporaryDirectory(prefix="memray-eval-batch-") as folder:
        yield Path(folder) / "file"


async def save(pieces: AsyncIterator[bytes], path: Path) -> None:
    with path.open("wb") as file:
        async for piece in pieces:
            file.write(piece)


def read_objects(path: Path) -> Iterator[Mapping[str, Any]]:
    """The JSON objects of a file, one a line; what is none is left out. Lines end at \\n alone: a
    model may write any other separator, and SDKs that read lines as text break there."""
    with path.open("rb") as file:
        for line in file:
            try:
                said = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(said, dict):
                yield said


def to_line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
