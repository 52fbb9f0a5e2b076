"""Which calls of a run are in batches, on the disk: memory does not grow with them."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NamedTuple

# held: it waits, or is in a batch under way; kept: its batch brought its verdict, in the store of
# paid calls; live: it is asked one by one
Standing = Literal["held", "kept", "live"]
PAGES_KB = 4096


class KeyEntry(NamedTuple):
    standing: Standing
    tag: str


class KeyBook:
    """Keys of calls, with where they stand and the batch that they are in."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="memray-eval-keys-")
        self._connection = sqlite3.connect(
            Path(self._folder.name) / "keys.sqlite", isolation_level=None
        )
        for pragma in ("journal_mode = OFF", "synchronous = OFF", f"cache_size = -{PAGES_KB}"):
            self._connection.execute(f"PRAGMA {pragma}")
        self._connection.execute(
            "CREATE TABLE keys (key TEXT PRIMARY KEY, standing TEXT, tag TEXT) WITHOUT ROWID"
        )

    def get(self, key: str) -> KeyEntry | None:
        query = "SELECT standing, tag FROM keys WHERE key = ?"
        row = self._connection.execute(query, (key,)).fetchone()
        return None if row is None else KeyEntry(*row)

    def put(self, keys: Iterable[str], standing: Standing, tag: str = "") -> None:
        rows = ((key, standing, tag) for key in keys)
        self._connection.execute("BEGIN")
        self._connection.executemany("REPLACE INTO keys VALUES (?, ?, ?)", rows)
        self._connection.execute("COMMIT")

    def free(self, keys: Iterable[str]) -> None:
        """These calls may be noted again."""
        self._connection.execute("BEGIN")
        self._connection.executemany("DELETE FROM keys WHERE key = ?", ((key,) for key in keys))
        self._connection.execute("COMMIT")

    def close(self) -> None:
        self._connection.close()
        self._folder.cleanup()
