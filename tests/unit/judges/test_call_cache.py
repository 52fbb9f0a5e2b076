"""A paid call is never paid twice: its key, and what was put is there, whoever else writes and
however the writer ends."""

import hashlib
import json
import random
import re
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pydantic import BaseModel

from memray_eval.config.sections import JudgingConfig
from memray_eval.errors import ConfigError, ResourceError
from memray_eval.judges.call_cache import (
    LEASE_S,
    CachedCall,
    CallCache,
    call_key,
    check_file,
    discard,
    schema_digest,
)
from memray_eval.judges.judge_factory import Services, build_judges
from memray_eval.judges.limits.rate_limiter import Limiter
from memray_eval.judges.paid_calls import SegmentLog
from memray_eval.judges.router import JudgeAssignment
from memray_eval.text_processing.judge_prompts import JudgePrompt
from memray_eval.types import Message
from tests.build import build_call
from tests.conftest import REPOSITORY
from tests.fake_judges import MemoryStore

WRITER = """
import random, sys
from memray_eval.judges.call_cache import CachedCall, CallCache

where, name, n_calls, size = *sys.argv[1:3], *map(int, sys.argv[3:])
print("ready", flush=True)
sys.stdin.readline()
cache, paid = CallCache(where), {"input_tokens": 1, "output_tokens": 1, "cost_usd": 0.5, "created": 1.0}
for key in ("shared", *(f"{name}-{number}" for number in range(n_calls))):
    body = random.randbytes(size // 2).hex()  # does not compress well
    cache.put([CachedCall(key=key, judge=name, judgment=body, **paid)])
    print(key, flush=True)
"""  # noqa: E501


@contextmanager
def running(program: str, *words: object, **pipes: Any) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", program, *map(str, words)]
    with subprocess.Popen(
        command, text=True, stdout=subprocess.PIPE, cwd=REPOSITORY, **pipes
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def killed_after(n_printed: int, program: str, *words: object) -> set[str]:
    """What the program had printed when it was killed, that many lines or more."""
    with running(program, *words, stdin=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        printed = {process.stdout.readline().strip() for _ in range(n_printed)}
        process.kill()
        printed |= set(process.stdout.read().split())
    assert process.returncode == -signal.SIGKILL  # it was still at it
    return printed


def digest_of(value: Any) -> str:
    """The hash of a value as canonical JSON."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


@pytest.mark.parametrize("half", ["", "\ud83d"])
@pytest.mark.parametrize(
    ("layout", "version", "more"), [("", 0, []), ("l", 1, ["l"]), ("", 2, ["", 2])]
)
def test_a_key_is_the_digest_of_plain_json(
    half: str, layout: str, version: int, more: list[Any]
) -> None:
    """Another recipe would make every call that is kept already be paid once more."""
    surrogates = range(0xD800, 0xE000)
    text = "".join(chr(code) for code in range(0x20000) if code not in surrogates) + half
    message = Message.model_construct(role="user", content=text)
    parameters = {"t": 1e-7, "n": 1e16}
    digest = digest_of(["é/m", [message.model_dump()], "s", parameters, 3, *more])
    assert call_key("é/m", [message], "s", parameters, 3, layout, version) == digest
    assert schema_digest(parameters) == digest_of(parameters)


def test_what_was_put_is_got_again_also_by_another(tmp_path: Path) -> None:
    calls = [
        build_call(
            "a",
            judgment='{"quote": "Grüße 🙂 \u2028"}',
            cost_usd=0.1 + 0.2,
            created=1234567890.123456,
        ),
        build_call("b", judgment=None),
        build_call("c", judgment=""),
        build_call("d", judgment='{"quote": "\ud83d"}'),
    ]
    assert calls[-1].judgment == '{"quote": "\\ud83d"}', "half a pair does not cost a batch"
    with closing(CallCache(tmp_path / "deep" / "er" / "calls.sqlite")) as cache:
        cache.put(calls)
        cache.put([])
        with closing(CallCache(str(cache.path))) as other:
            assert other.get(["c", "a", "none", "b", "a", "d"]) == {
                call.key: call for call in calls
            }
        assert cache.get([]) == {}


@pytest.mark.parametrize(
    ("meanwhile", "lease"),
    [
        (lambda cache, now: None, "held"),
        (lambda cache, now: cache.put([build_call("k")]), "held"),  # paid: it is there to be got
        (lambda cache, now: cache.release(["k"], "a"), "new"),
        (lambda cache, now: cache.renew("a", 0.0), "again"),
        (lambda cache, now: cache.join("run of a"), "again"),
        (lambda cache, now: now.shift(LEASE_S + 1), "again"),
        (lambda cache, now: (now.shift(LEASE_S - 1), cache.renew("a"), now.shift(9)), "held"),
        (lambda cache, now: cache.clear(), "held"),
    ],
)
def test_a_lease_ends_with_its_owner(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    meanwhile: Callable[[CallCache, Any], object],
    lease: str,
) -> None:
    now = SimpleNamespace(s=time.time())
    now.shift = lambda s: setattr(now, "s", now.s + s)
    monkeypatch.setattr("memray_eval.judges.call_cache.time.time", lambda: now.s)
    with closing(CallCache(tmp_path / "calls")) as cache, closing(CallCache(cache.path)) as other:
        a, b = ("a", "run of a"), ("b", "run of b")
        assert [cache.join("run of a"), other.join("run of b")] == [0, 0]
        assert cache.claim(["k", "k"], *a) == cache.claim(["k"], *a) == {"k": "new"}
        meanwhile(cache, now)
        assert other.claim(["k", "free"], *b) == {"k": lease, "free": "new"}
        assert other.claim([], *b) == {}


def test_a_run_is_told_how_many_calls_it_was_killed_over(tmp_path: Path) -> None:
    with closing(CallCache(tmp_path / "calls")) as cache:
        cache.join("run")
        cache.claim(list("xyz"), "a", "run")
        cache.put([build_call("x")])
        assert [cache.join("run"), cache.join("run")] == [2, 0]
        assert cache.claim(list("xyz"), "c", "run") == {"x": "held", "y": "again", "z": "again"}


def test_many_keys_at_once(tmp_path: Path) -> None:
    # SQLite takes 32,766 parameters, Debian's 250,000
    keys = [f"{number:032x}" for number in range(260_000)]
    with closing(CallCache(tmp_path / "calls")) as cache:
        cache.put([build_call(key) for key in keys[::700]])
        assert set(cache.get(keys)) == set(keys[::700])


def test_the_first_writer_wins(tmp_path: Path) -> None:
    with (
        closing(CallCache(tmp_path / "calls")) as cache,
        closing(CallCache(tmp_path / "calls")) as other,
    ):
        cache.put([build_call("a", judgment="first"), build_call("a", judgment="second")])
        other.put([build_call("a", judgment="third"), build_call("b")])
        expected = {"a": "first", "b": '{"n": 1}'}
        assert {key: call.judgment for key, call in cache.get("ab").items()} == expected


def test_no_half_of_a_batch_is_kept(tmp_path: Path) -> None:
    with closing(CallCache(tmp_path / "calls")) as cache:
        wrong = CachedCall.model_construct(**build_call("b").model_dump() | {"judge": None})
        with pytest.raises(sqlite3.IntegrityError, match="judge"):
            cache.put([build_call("a"), wrong])
        assert cache.get("ab") == {}
        cache.put([build_call("a")])
        assert set(cache.get("ab")) == {"a"}


def test_many_threads_share_one_cache(tmp_path: Path) -> None:
    with closing(CallCache(tmp_path / "calls")) as cache, ThreadPoolExecutor(8) as threads:

        def put_and_get(number: int) -> set[str]:
            keys = [f"{number}-{position}" for position in range(20)]
            for key in keys:
                cache.put([build_call(key)])
            return set(cache.get(keys))

        assert set().union(*threads.map(put_and_get, range(16))) == {
            f"{n}-{p}" for n in range(16) for p in range(20)
        }


@pytest.mark.heavy
def test_eight_processes_write_one_new_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "new" / "calls"
    with ExitStack() as stack:
        writers = [
            stack.enter_context(running(WRITER, path, f"w{n}", 500, 1000, stdin=subprocess.PIPE))
            for n in range(8)
        ]
        assert [writer.stdout and writer.stdout.readline() for writer in writers] == ["ready\n"] * 8
        for writer in writers:
            print(file=writer.stdin, flush=True)
        assert [writer.wait(300) for writer in writers] == [0] * 8
    with closing(CallCache(path)) as cache:
        keys = {f"w{writer}-{number}" for writer in range(8) for number in range(500)}
        assert set(cache.get(keys)) == keys
        stats = cache.stats()
        assert stats.entries == 4001  # all were made with one shared key as well
        assert sorted(stats.by_judge.values()) == [500] * 7 + [501]


@pytest.mark.heavy
def test_kill_9_loses_nothing_that_was_put(tmp_path: Path) -> None:
    path, printed = tmp_path / "calls", set[str]()
    for number in range(3):
        # Enough for SQLite to move its log into the file now and then
        printed |= killed_after(700, WRITER, path, f"w{number}", 10**6, 8000) - {"ready"}
    with closing(CallCache(path)) as cache:
        verdicts = cache.get(printed)
    assert set(verdicts) == printed
    assert {len(call.judgment or "") for call in verdicts.values()} == {8000}
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_stats_say_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "calls"
    with closing(CallCache(path)) as cache:
        empty = cache.stats()
        assert (empty.path, empty.entries, empty.by_judge, empty.saved) == (str(path), 0, {}, 0.0)
        assert (empty.oldest, empty.newest) == (None, None)
        cache.put(
            [
                build_call("a", created=5.0),
                build_call("b", judge="other", created=3.0, cost_usd=1.0),
                build_call("c", created=4.0),
            ]
        )
        stats = cache.stats()
        assert (stats.entries, stats.by_judge) == (3, {"openai/gpt-4o": 2, "other": 1})
        assert (stats.saved, stats.oldest, stats.newest) == (1.5, 3.0, 5.0)
        cache.put([build_call("d", judgment="x" * 10**6)])
        # In the log still, and counted
        assert 10**6 < cache.stats().size_bytes - stats.size_bytes < 2 * 10**6


def test_clear_takes_what_is_old_and_gives_the_space_back(tmp_path: Path) -> None:
    with closing(CallCache(tmp_path / "calls")) as cache:
        cache.put(
            [build_call(f"{age}", created=1000.0 - age, judgment="x" * 10**6) for age in range(5)]
        )
        assert cache.clear(older_than_s=2.0, now=1000.0) == 2
        assert set(cache.get("01234")) == {"0", "1", "2"}
        assert cache.stats().size_bytes < 4 * 10**6
        cache.put([build_call("new", created=time.time())])
        assert cache.clear(older_than_s=60.0) == 3
        assert (cache.clear(), cache.clear()) == (1, 0)
        assert (cache.stats().entries, cache.stats().size_bytes < 10**5) == (0, True)


def test_a_file_of_an_older_version_is_read_and_written_and_older_ones_go_on_with_it(
    tmp_path: Path,
) -> None:
    def insert(key: str) -> str:
        columns = "key, judge, input_tokens, output_tokens, cost_usd, created, judgment"
        return f"INSERT INTO calls ({columns}) VALUES ('{key}', 'j', 5, 6, 0.5, 1.0, '{{}}')"

    run_sql(
        tmp_path / "calls",
        "CREATE TABLE calls (key TEXT PRIMARY KEY NOT NULL, judge TEXT NOT NULL, input_tokens "
        "INTEGER NOT NULL, output_tokens INTEGER NOT NULL, cost_usd REAL NOT NULL, created "
        f"REAL NOT NULL, judgment TEXT); PRAGMA application_id = {0x4D45_4A43}; PRAGMA "
        f"user_version = 1; {insert('old')}",
    )
    with ThreadPoolExecutor(4) as threads:  # several processes may be the first
        caches = list(threads.map(CallCache, [tmp_path / "calls"] * 4))
    new = build_call("new", cached_input_tokens=3, cache_write_tokens=2, served_model="m-2026")
    caches[0].put([new])
    run_sql(tmp_path / "calls", insert("older"))
    for cache in caches:
        verdicts = cache.get(["old", "new", "older"])
        assert verdicts["new"] == new
        assert (verdicts["old"].input_tokens, verdicts["old"].cached_input_tokens) == (5, 0)
        assert (verdicts["older"].cache_write_tokens, verdicts["older"].served_model) == (0, "")
        cache.close()


def test_segments_without_a_prompt_cache_are_as_older_versions_wrote_them(tmp_path: Path) -> None:
    log = SegmentLog(str(tmp_path))
    segment = log.append([build_call("a"), build_call("b", cached_input_tokens=3)])
    assert segment is not None
    with pa.CompressedInputStream(pa.OSFile(segment.path), "zstd") as stream:
        plain, cached = stream.read().decode().splitlines()
    assert "cached_input_tokens" not in plain
    assert "cached_input_tokens" in cached
    assert [call for segment in log.load() for call in segment.calls] == segment.calls


def run_sql(path: Path, script: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)


def spoilt(path: Path, start: int, filler: bytes) -> None:
    """A cache of which only the beginning is whole."""
    with closing(CallCache(path)) as cache:
        cache.put([build_call(f"{number}", judgment="x" * 5000) for number in range(50)])
    data = path.read_bytes()
    path.write_bytes(data[:start] + filler * (len(data) - start))


OTHER = "CREATE TABLE music (name TEXT); PRAGMA user_version = 1"
LATER = "PRAGMA user_version = 2"


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: run_sql(path, OTHER), "is a database of something else; start it anew with"),
        (
            lambda path: (CallCache(path).close(), run_sql(path, LATER)),
            "was written by a newer memray-eval .*: update memray-eval, or",
        ),
        (lambda path: path.write_bytes(b"no database"), "cannot be read .*; start it anew with"),
        (lambda path: spoilt(path, 50, b""), "cannot be read .*; start it anew with"),
    ],
    ids=["foreign", "of a later version", "garbage", "cut off"],
)
def test_a_file_that_is_no_cache_is_a_message_and_left_alone(
    tmp_path: Path, spoil: Callable[[Path], object], message: str
) -> None:
    path = tmp_path / "calls"
    spoil(path)
    before = path.read_bytes()
    what_to_do = f"{re.escape(str(path))} {message}.*`memray-eval cache clear` and --cache"
    for use in (CallCache, check_file):
        with pytest.raises(ConfigError, match=what_to_do) as raised:
            use(path)
        assert "name another file" in str(raised.value)
    assert path.read_bytes() == before
    discard(path)
    assert list(tmp_path.iterdir()) == []
    CallCache(path).close()


def test_damage_is_found_beforehand_or_later(tmp_path: Path) -> None:
    spoilt(tmp_path / "damaged", 8192, b"\xff")
    with pytest.raises(ConfigError, match=r"is damaged .*; start it anew with"):
        check_file(tmp_path / "damaged")
    spoilt(tmp_path / "calls", 4096, b"\xff")
    with (
        closing(CallCache(tmp_path / "calls")) as cache,
        pytest.raises(ConfigError, match=r"cannot be read .*`memray-eval cache clear`"),
    ):
        cache.get([f"{number}" for number in range(50)])


def test_a_place_that_cannot_be_written_is_a_message(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(
        ConfigError, match=r"cannot open the judge cache .*/file/calls.*; set MEMRAY_EVAL_CACHE"
    ):
        CallCache(tmp_path / "file" / "calls")
    with pytest.raises(ConfigError, match=r"cannot open the judge cache .*; set MEMRAY_EVAL_CACHE"):
        CallCache(tmp_path)
    with pytest.raises(ConfigError, match="needs a local disk"):
        CallCache(":memory:")
    with pytest.raises(ConfigError, match="delete it by hand"):
        discard(tmp_path)


def test_a_file_that_stays_locked_is_a_message_and_then_works_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memray_eval.judges.call_cache.CHECK_BUSY_S", 0.05)
    path = tmp_path / "calls"
    held = (
        rf"{re.escape(str(path))} cannot be used: database is locked; another program holds it: "
        "wait .*--no-cache"
    )
    with (
        closing(CallCache(path, busy_s=0.01)) as cache,
        closing(sqlite3.connect(path, isolation_level=None)) as other,
    ):
        for lock in ("BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"):
            other.execute(lock)
            for use in (lambda: cache.put([build_call("a")]), lambda: check_file(path)):
                with pytest.raises(ResourceError, match=held):
                    use()
            assert cache.get("a") == {}  # reading waits for no writer
            other.execute("ROLLBACK")
        check_file(path)
        cache.put([build_call("a")])
        assert set(cache.get("a")) == {"a"}


def test_a_file_that_is_to_be_made_is_not_made_by_the_check(tmp_path: Path) -> None:
    check_file(tmp_path / "new" / "calls")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("x")
    with pytest.raises(
        ConfigError, match="file is no folder that can be written; set MEMRAY_EVAL_CACHE"
    ):
        check_file(tmp_path / "file" / "calls")


def loaded(log: SegmentLog) -> list[list[CachedCall]]:
    return [segment.calls for segment in log.load()]


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_log_gives_back_what_was_appended_in_order(tmp_path: Path, scheme: str) -> None:
    folder = f"{scheme}{tmp_path}/a/log"
    calls = [
        build_call("a", judgment='{"quote": "Grüße 🙂 \u2028\\n"}', cost_usd=0.1 + 0.2),
        build_call("b", judgment=None),
    ]
    log = SegmentLog(folder + "/")
    assert loaded(log) == []
    log.append([])
    assert not (tmp_path / "a").exists()
    log.append([build_call("late", created=3e9)])
    log.append(calls)
    SegmentLog(folder).append([build_call("early", created=9e8)])
    seen = loaded(log)
    assert seen == [[build_call("early", created=9e8)], calls, [build_call("late", created=3e9)]]
    assert log.n_unreadable == 0


def test_segments_made_in_one_moment_do_not_meet(tmp_path: Path) -> None:
    for _ in range(20):
        SegmentLog(str(tmp_path)).append([build_call("a")])
    assert loaded(SegmentLog(str(tmp_path))) == [[build_call("a")]] * 20


def test_a_segment_cut_off_anywhere_is_skipped_and_counted(tmp_path: Path) -> None:
    log = SegmentLog(str(tmp_path))
    log.append([build_call("a", created=1.0), build_call("b", created=1.0)])
    (first,) = tmp_path.iterdir()
    log.append([build_call("c", created=2.0)])
    whole = first.read_bytes()
    for length in range(len(whole)):
        first.write_bytes(whole[:length])
        assert (loaded(log), log.n_unreadable) == ([[build_call("c", created=2.0)]], 1)
    first.write_bytes(whole)
    assert (sum(map(len, loaded(log))), log.n_unreadable) == (3, 0)


def test_what_is_no_segment_is_counted_and_what_was_pending_is_not(tmp_path: Path) -> None:
    log = SegmentLog(str(tmp_path))
    log.append([build_call("a")])
    (segment,) = tmp_path.iterdir()
    segment.with_name(f"{segment.name}.pending-1").write_bytes(segment.read_bytes()[:20])
    assert (loaded(log), log.n_unreadable) == ([[build_call("a")]], 0)
    (tmp_path / "other.jsonl.zst").write_bytes(b'{"key": "not compressed"}')
    (tmp_path / "folder.jsonl.zst").mkdir()
    assert (loaded(log), log.n_unreadable) == ([[build_call("a")]], 2)


def test_a_write_that_ends_in_its_middle_leaves_no_half_segment(tmp_path: Path) -> None:
    log = SegmentLog(str(tmp_path))
    log.append([build_call("a")])
    large = build_call("b", judgment=random.randbytes(500_000).hex())  # does not compress well
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(ResourceError, match="too large"):
            log.append([large])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (loaded(log), log.n_unreadable) == ([[build_call("a")]], 0)


def test_a_log_that_cannot_be_kept_is_a_message(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ResourceError, match=r"cannot write judge calls to .*/file/log"):
        SegmentLog(str(tmp_path / "file" / "log")).append([build_call("a")])
    with pytest.raises(ConfigError, match=r"cannot list the judge calls in .*/file"):
        loaded(SegmentLog(str(tmp_path / "file")))
    with pytest.raises(ConfigError, match="cannot open nowhere://x"):
        SegmentLog("nowhere://x")


LONG = {"MEMORY": "x" * 40_000, "QUERY": "Why?", "RESPONSE": "Because \ud83d of rain."}
PROMPT = JudgePrompt("Judge it.", LONG)
# By judge: the keys of its verdict and of a repeat. The first three have the shared part first
OPUS = ["614fedf06ddecfee3af22b158a387133", "7d1021e23b4f69622f3b4db4e824ec1c"]
KEYS = {
    "openai/gpt-4o": ["e6055dae4621ec3ee6d56a234f630270", "8edf2362436f84c1f64a3604b4029f72"],
    "anthropic/claude-opus-4-5": OPUS,
    "google/gemini-2.5-pro": [
        "76a21f5f5afb4dd0bdd92f889f6dba7b",
        "66a7390aa3be23915a264164c4b34fae",
    ],
    "lab/qwen3": ["f38cdea613c890d64fc0f3d2d8516ff5", "bc866477fb41d6e6840aff19541b9a42"],
    "second/claude-opus-4-5": OPUS,
}


class Rating(BaseModel):
    reason: str
    score: float


class Recorded(MemoryStore):
    """Remembers by what each call was looked up, and finds it."""

    def __init__(self) -> None:
        self.keys = list[str]()

    async def get(self, key: str) -> CachedCall:
        self.keys.append(key)
        verdict = '{"reason": "r", "score": 1}'
        tokens = {"input_tokens": 1, "output_tokens": 1}
        return CachedCall(key=key, judge="j", judgment=verdict, cost_usd=0.0, created=0.0, **tokens)


@pytest.mark.parametrize("judge", KEYS)
async def test_keys_are_those_of_earlier_versions_but_for_later_versions_of_a_rubric(
    judge: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = (PROMPT, *(PROMPT.having(version=version) for version in (1, 2, 3)))
    plain, first, second, third = [await keys_of(judge, prompt, monkeypatch) for prompt in prompts]
    assert plain == first == KEYS[judge]
    assert len({*first, *second, *third}) == 6


async def keys_of(judge: str, prompt: JudgePrompt, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a verdict and a repeat are looked up by."""
    for provider in ("OPENAI", "ANTHROPIC", "GOOGLE", "SECOND"):
        monkeypatch.setenv(f"{provider}_API_KEY", "k")
    servers: dict[str, Any] = {
        "lab": {"url": "http://localhost:9/v1"},
        "second": {"provider": "anthropic", "api_key_env": "SECOND_API_KEY"},
    }
    config = JudgingConfig.model_validate({"servers": servers, "repeats": 2})
    calls = Recorded()
    services = Services(limiter=Limiter(), calls=calls, secret=b"s" * 32)
    choice = JudgeAssignment(metric="m", judge=judge, why="")
    for juror in build_judges({"m": choice}, config, services)["m"]:
        await juror.judge(prompt.having(readers=9), Rating)
    return calls.keys
