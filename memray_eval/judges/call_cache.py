"""Judge calls by key in one SQLite file on this machine: a paid call is never paid twice. Runs in
the cloud keep them in segments as well: see segment_log.py."""

import hashlib
import os
import sqlite3
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import orjson
from pydantic import AfterValidator, Field, NonNegativeInt

from memray_eval.config.environment import calls_file
from memray_eval.errors import ConfigError, ResourceError, reason_of
from memray_eval.types import Frozen, Message, dumps

BUSY_S = 30.0  # how long to wait for another process's write
# Before a run: how long to wait for that, and how long to look for damage.
CHECK_BUSY_S, CHECK_S = 10.0, 5.0
SCRATCH_CACHE_KB = 64 << 10  # of pages: the index of two million keys is written at random
KEYS_A_QUERY = 500  # an older SQLite takes 999 parameters a statement
# A lease is renewed every BEAT_S; one that nobody has renewed for LEASE_S has lost its owner
BEAT_S, LEASE_S = 5.0, 30.0
# Ours to ask for; ours, and asked for before by an owner that is gone; another process's
Lease: TypeAlias = Literal["new", "again", "held"]
_ELSEWHERE = "name another file (--set judging.cache=PATH), or keep no verdicts (--no-cache)"
_APPLICATION = 0x4D45_4A43  # "MEJC" in the file's header
_VERSION = 1  # of the table below
# not there in files of older versions, to whose tables they are added
_ADDED = {
    "cached_input_tokens": "INTEGER NOT NULL DEFAULT 0",
    "cache_write_tokens": "INTEGER NOT NULL DEFAULT 0",
    "unpriced_calls": "INTEGER NOT NULL DEFAULT 0",
    "paid_for": "TEXT NOT NULL DEFAULT ''",
    "served_model": "TEXT NOT NULL DEFAULT ''",
}
# The long column last: what reads the others need not go past it
_TYPES = {
    "key": "TEXT PRIMARY KEY NOT NULL",
    "judge": "TEXT NOT NULL",
    "input_tokens": "INTEGER NOT NULL",
    "output_tokens": "INTEGER NOT NULL",
    **_ADDED,
    "cost_usd": "REAL NOT NULL",
    "created": "REAL NOT NULL",
    "judgment": "TEXT",
}
_TABLE = f"CREATE TABLE calls ({', '.join(f'{name} {kind}' for name, kind in _TYPES.items())})"
_FIELDS = tuple(_TYPES)
_COLUMNS = ", ".join(_FIELDS)
# Not INSERT OR IGNORE: that would drop a row with a forbidden NULL as well, without a word.
_INSERT = (
    f"INSERT INTO calls ({_COLUMNS}) VALUES ({', '.join('?' * len(_FIELDS))}) ON "
    "CONFLICT (key) DO NOTHING"
)
_row = attrgetter(*_FIELDS)
# Calls that are being asked for, by whom and for which run; older versions know nothing of them
_CLAIMS = (
    "CREATE TABLE IF NOT EXISTS claims (key TEXT PRIMARY KEY NOT NULL, owner TEXT NOT NULL, "
    "run TEXT NOT NULL, expires REAL NOT NULL)"
)


# Half of a surrogate pair, which has no UTF-8, becomes the JSON escape that means the same: one
# must not fail a batch.
_Json = Annotated[
    str, AfterValidator(lambda text: text.encode("utf-8", "backslashreplace").decode())
]
_Amount = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]


class CachedCall(Frozen):
    """One judge call that was paid. `judgment` is JSON, None if the judge refused; `created` is in
    epoch seconds. `paid_for` names the run, unit and metric whose score has the cost of a batch's
    call. `served_model` is "" if the server did not say."""

    key: str
    judge: str
    judgment: _Json | None
    input_tokens: NonNegativeInt
    output_tokens: NonNegativeInt
    cached_input_tokens: NonNegativeInt = 0
    cache_write_tokens: NonNegativeInt = 0
    unpriced_calls: NonNegativeInt = 0
    paid_for: str = ""
    served_model: str = ""
    cost_usd: _Amount
    created: _Amount


class CacheStats(Frozen):
    """What a cache holds: its file with its log in bytes, `saved` dollars that its calls cost, and
    when the `oldest` and `newest` were made (epoch seconds, None if it is empty)."""

    path: str
    entries: int
    size_bytes: int
    by_judge: dict[str, int]
    saved: float
    unpriced_calls: int = 0
    oldest: float | None
    newest: float | None


def schema_digest(schema: Mapping[str, Any]) -> str:
    """A judgment's JSON schema as 32 hex digits, whatever the order of its keys."""
    return _digest(dumps(schema))


def call_key(
    judge: str,
    messages: Sequence[Message],
    schema: str,
    parameters: Mapping[str, Any],
    repeat: int,
    layout: str = "",
    version: int = 0,
) -> str:
    """The identity of a judge call, 32 hex digits. `schema` is what schema_digest made; `layout`
    the prompt's and its version, "" for the first; `version` is the rubric's, not counted up to 1.
    Raises TypeError for parameters that are not JSON."""
    others: list[Any] = [schema, dict(parameters), repeat]
    if version > 1:
        others += [layout, version]
    elif layout:
        others.append(layout)
    turns = [{"content": message.content, "role": message.role} for message in messages]
    try:  # as `dumps`, of texts alone, in a tenth of the time
        text = orjson.dumps(turns).decode()
    except TypeError:  # half a surrogate pair
        text = dumps(turns)
    return _digest(f"{dumps([judge])[:-1]},{text},{dumps(others)[1:]}")


def _digest(text: str) -> str:
    # A tokenizer may cut an emoji in two: half of one is a str that UTF-8 proper has no bytes for.
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


class CallCache:
    """Judge calls by key, in one SQLite file on a local disk, for many processes and threads. Once
    `put` returns, its calls outlive a kill. Methods raise ResourceError if the file cannot be used
    now (a full disk, locked for `busy_s`), ConfigError if it is damaged."""

    def __init__(
        self, path: Path | str, busy_s: float = BUSY_S, *, is_scratch: bool = False
    ) -> None:
        """Opens the file, made with its folders if need be. `is_scratch`: a copy that a power cut
        may take. Raises ConfigError if it cannot be opened, or holds something else."""
        self.path = Path(path)
        self._lock = threading.Lock()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(
                self.path, timeout=busy_s, isolation_level=None, check_same_thread=False
            )
        except (OSError, sqlite3.OperationalError) as error:
            raise _cannot_open(self.path, error) from None
        try:
            _prepare(self._connection, self.path, busy_s)
            if is_scratch:
                self._connection.execute("PRAGMA synchronous = OFF")
                self._connection.execute(f"PRAGMA cache_size = -{SCRATCH_CACHE_KB}")
        except BaseException:
            self._connection.close()
            raise

    def get(self, keys: Collection[str]) -> dict[str, CachedCall]:
        """The calls that are there, by key."""
        wanted, calls = list(keys), dict[str, CachedCall]()
        for start in range(0, len(wanted), KEYS_A_QUERY):
            chunk = wanted[start : start + KEYS_A_QUERY]
            query = f"SELECT {_COLUMNS} FROM calls WHERE key IN ({', '.join('?' * len(chunk))})"
            with self._lock, _translate_errors(self.path):
                rows = self._connection.execute(query, chunk).fetchall()
            calls |= {row[0]: CachedCall(**dict(zip(_FIELDS, row, strict=True))) for row in rows}
        return calls

    def put(self, calls: Sequence[CachedCall]) -> None:
        """Keeps all the calls or, when it raises, none. A present key changes nothing."""
        if not calls:
            return
        with self._transaction() as connection:
            connection.executemany(_INSERT, map(_row, calls))
            connection.executemany("DELETE FROM claims WHERE key = ?", [(c.key,) for c in calls])

    def join(self, run: str) -> int:
        """Begins a process of the run, which no other is in: whoever had leases for it is gone.
        Returns how many calls those were asking for."""
        with self._transaction() as connection:
            ended = "UPDATE claims SET run = '', expires = 0 WHERE run = ?"
            return connection.execute(ended, (run,)).rowcount

    def claim(self, keys: Sequence[str], owner: str, run: str) -> dict[str, Lease]:
        """Leases calls to the owner, as far as nobody else is asking for them, or has meanwhile
        paid them (`held` too: look again)."""
        leases: dict[str, Lease] = dict.fromkeys(keys, "new")
        with self._transaction() as connection:
            for start in range(0, len(keys), KEYS_A_QUERY):
                chunk = keys[start : start + KEYS_A_QUERY]
                among = f"WHERE key IN ({', '.join(f'?{n + 1}' for n in range(len(chunk)))})"
                query = (
                    f"SELECT key, owner, expires FROM claims {among} "
                    f"UNION ALL SELECT key, '', 9e99 FROM calls {among}"
                )
                for key, holder, expires in connection.execute(query, chunk).fetchall():
                    if holder != owner:
                        leases[key] = "held" if expires > time.time() else "again"
            rest = owner, run, time.time() + LEASE_S
            ours = [(key, *rest) for key, lease in leases.items() if lease != "held"]
            connection.executemany("INSERT OR REPLACE INTO claims VALUES (?, ?, ?, ?)", ours)
        return leases

    def renew(self, owner: str, for_s: float = LEASE_S) -> None:
        """0 ends an owner: calls that were cancelled in flight keep their leases, of a gone one."""
        with self._transaction() as connection:
            ends = time.time() + for_s
            connection.execute("UPDATE claims SET expires = ? WHERE owner = ?", (ends, owner))

    def release(self, keys: Sequence[str], owner: str) -> None:
        """Gives up leases on calls that came to nothing."""
        with self._transaction() as connection:
            query = "DELETE FROM claims WHERE key = ? AND owner = ?"
            connection.executemany(query, [(key, owner) for key in keys])

    def check(self) -> None:
        """Raises if calls could not be kept now, or CHECK_S of looking find damage."""
        deadline = time.monotonic() + CHECK_S
        with self._lock, _translate_errors(self.path):
            self._connection.set_progress_handler(lambda: time.monotonic() > deadline, 100_000)
            try:
                (state,) = self._connection.execute("PRAGMA quick_check(1)").fetchone()
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
                    raise
                state = "ok"
            finally:
                self._connection.set_progress_handler(None, 0)
            if state != "ok":
                raise _unusable(self.path, f"is damaged ({state.splitlines()[-1]})")
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute("ROLLBACK")

    def stats(self) -> CacheStats:
        query = (
            "SELECT judge, count(*), sum(cost_usd), min(created), max(created), "
            "sum(unpriced_calls) FROM calls GROUP BY judge ORDER BY judge"
        )
        with self._lock, _translate_errors(self.path):
            rows = self._connection.execute(query).fetchall()
        return CacheStats(
            path=str(self.path),
            entries=sum(row[1] for row in rows),
            size_bytes=sum(file.stat().st_size for file in _files(self.path)[:2] if file.exists()),
            by_judge={row[0]: row[1] for row in rows},
            saved=sum(row[2] for row in rows),
            unpriced_calls=sum(row[5] for row in rows),
            oldest=min((row[3] for row in rows), default=None),
            newest=max((row[4] for row in rows), default=None),
        )

    def clear(self, older_than_s: float | None = None, now: float | None = None) -> int:
        """Deletes calls older than that (or all) by `now` in epoch seconds. Returns how many."""
        oldest = (time.time() if now is None else now) - (older_than_s or 0.0)
        chosen = "" if older_than_s is None else f" WHERE created < {oldest!r}"
        with self._transaction() as connection:
            connection.execute("DELETE FROM claims WHERE expires <= ?", (time.time(),))
            deleted = connection.execute(f"DELETE FROM calls{chosen}").rowcount
        with self._lock, _translate_errors(self.path):
            self._connection.execute("VACUUM")
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return deleted

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """One transaction, begun as a writer's, so that it waits for those before it."""
        with self._lock, _translate_errors(self.path), self._connection as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection


def check_file(path: Path | str) -> None:
    """Makes sure that a cache can be used, and makes nothing. Raises ConfigError or ResourceError
    that says what to do: damaged, something else, a newer version's, locked, not writable."""
    path = Path(path)
    if path.exists():
        with closing(CallCache(path, CHECK_BUSY_S)) as cache:
            cache.check()
        return
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise _cannot_open(path, f"{folder} is no folder that can be written")


def discard(path: Path | str) -> None:
    """Deletes a cache that CallCache will not open. Raises ConfigError if it cannot."""
    try:
        for file in _files(Path(path)):
            file.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(
            f"cannot delete the judge cache {path}: {reason_of(error)}; delete it by hand"
        ) from None


def _files(path: Path) -> list[Path]:
    """The file, its write-ahead log, and the log's index."""
    return [path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")]


def _cannot_open(path: Path, why: object) -> ConfigError:
    return ConfigError(
        f"cannot open the judge cache {path}: {why}; set MEMRAY_EVAL_CACHE to a folder that can be "
        "written"
    )


def _prepare(connection: sqlite3.Connection, path: Path, busy_s: float) -> None:
    """Makes the table in a new file. Raises ConfigError for a file that is something else."""
    with _translate_errors(path):
        connection.execute("PRAGMA synchronous = NORMAL")
        if not _is_current(connection, path):
            _set_write_ahead(connection, path, busy_s)
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                if not _is_current(connection, path):  # another process may have been faster
                    connection.execute(_TABLE)
                    connection.execute(f"PRAGMA application_id = {_APPLICATION}")
                    connection.execute(f"PRAGMA user_version = {_VERSION}")
        has_claims = "SELECT count(*) FROM sqlite_master WHERE name = 'claims'"
        if _missing_columns(connection) or connection.execute(has_claims).fetchone() != (1,):
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute(_CLAIMS)
                for name in _missing_columns(connection):  # another process may have been faster
                    # An older memray-eval goes on reading and writing such a file
                    column = f"{name} {_ADDED[name]}"
                    connection.execute(f"ALTER TABLE calls ADD COLUMN {column}")


def _missing_columns(connection: sqlite3.Connection) -> list[str]:
    names = {name for (name,) in connection.execute("SELECT name FROM pragma_table_info('calls')")}
    return [name for name in _ADDED if name not in names]


def _is_current(connection: sqlite3.Connection, path: Path) -> bool:
    """True for a cache of this version; False: it is empty. Raises ConfigError for others."""
    query = (
        "SELECT (SELECT * FROM pragma_application_id), (SELECT * FROM pragma_user_version), "
        "count(*) FROM sqlite_master"
    )
    application, version, tables = connection.execute(query).fetchone()
    if application == _APPLICATION and version > _VERSION:
        raise ConfigError(
            f"the judge cache {path} was written by a newer memray-eval (version {version}; this "
            f"one reads {_VERSION}): update memray-eval, or {_ELSEWHERE}, or start it anew with "
            f"{_clear_command(path)}"
        )
    if application == _APPLICATION and version != _VERSION:
        raise _unusable(path, f"is of version {version}, not {_VERSION}")
    if application != _APPLICATION and (application, version, tables) != (0, 0, 0):
        raise _unusable(path, "is a database of something else")
    return bool(application == _APPLICATION)


def _set_write_ahead(connection: sqlite3.Connection, path: Path, busy_s: float) -> None:
    """Readers and a writer at once. The file keeps the mode."""
    deadline = time.monotonic() + busy_s
    while True:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            break
        except sqlite3.OperationalError as error:
            # While others open a new file SQLite is busy, and does not wait by itself.
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
        time.sleep(0.05)
    if mode != "wal":
        raise ConfigError(
            f"the judge cache {path} needs a local disk; set MEMRAY_EVAL_CACHE to a folder on one"
        )


@contextmanager
def _translate_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        is_locked = error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
        held = "another program holds it: wait until that has ended, or " if is_locked else ""
        raise ResourceError(
            f"the judge cache {path} cannot be used: {reason_of(error)}; {held}{_ELSEWHERE}"
        ) from error
    except sqlite3.DatabaseError as error:
        # A subclass is a bug of this file; itself it means a file that is no database.
        if type(error) is not sqlite3.DatabaseError:
            raise
        raise _unusable(path, f"cannot be read ({error})") from None


def _unusable(path: Path, what: str) -> ConfigError:
    return ConfigError(
        f"the judge cache {path} {what}; start it anew with {_clear_command(path)}, or {_ELSEWHERE}"
    )


def _clear_command(path: Path) -> str:
    return "`memray-eval cache clear`" + ("" if path == calls_file() else f" and --cache {path}")
