"""Paid calls in a folder of segments: written together, found at once, kept whatever dies, and
merged without a loss."""

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from memray_eval.errors import ConfigError, ResourceError
from memray_eval.judges import paid_calls
from memray_eval.judges.call_cache import CachedCall, CallCache
from memray_eval.judges.paid_calls import PaidCalls, Segment, SegmentLog
from tests.build import build_call
from tests.conftest import HANG_S
from tests.unit.judges.test_call_cache import killed_after


class FarLog(SegmentLog):
    """A folder that takes its time, as an object store does, and refuses what is in `failures`,
    first ones first."""

    def __init__(self, folder: Path, write_s: float = 0.0) -> None:
        super().__init__(str(folder))
        folder.mkdir(exist_ok=True)  # an object store needs none
        self.write_s, self.failures = write_s, list[Exception]()
        self.appended = list[int]()

    @property
    def is_remote(self) -> bool:
        return True

    def append(self, calls: Sequence[CachedCall]) -> Segment | None:
        time.sleep(self.write_s)
        if self.failures:
            raise self.failures.pop(0)
        self.appended.append(len(calls))
        return super().append(calls)


@contextmanager
def opened(log: SegmentLog | None, file: Path) -> Iterator[PaidCalls]:
    with closing(PaidCalls(CallCache(file, is_scratch=True), log)) as calls:
        calls.load()
        yield calls


def keys_in(folder: Path) -> list[str]:
    """The keys of all segments, one as often as it is there."""
    log = SegmentLog(str(folder))
    keys = [call.key for segment in log.load() for call in segment.calls]
    assert log.n_unreadable == 0
    return sorted(keys)


@pytest.mark.heavy
async def test_many_puts_are_few_objects(tmp_path: Path) -> None:
    log = FarLog(tmp_path / "log", write_s=0.02)

    async def actor(calls: PaidCalls, number: int) -> None:
        for call in range(10):
            await calls.put([build_call(f"{number}-{call}")])

    with opened(log, tmp_path / "file") as calls:
        await asyncio.gather(*(actor(calls, number) for number in range(100)))
    assert keys_in(tmp_path / "log") == sorted(f"{a}-{c}" for a in range(100) for c in range(10))
    assert len(log.appended) <= 50
    assert sum(log.appended) == 1000


async def test_a_few_calls_wait_for_one_write_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where little is in flight a wait would make the run slower, and save no request."""
    monkeypatch.setattr(paid_calls, "COMMIT_S", HANG_S)
    log = FarLog(tmp_path / "log", write_s=0.02)
    with opened(log, tmp_path / "file") as calls:
        started = time.perf_counter()
        for call in range(10):
            await calls.put([build_call(str(call))])
        assert time.perf_counter() - started < HANG_S
    assert log.appended == [1] * 10


async def test_a_call_is_found_while_it_is_written_and_lookups_wait_for_nothing(
    tmp_path: Path,
) -> None:
    writable = threading.Event()

    class HeldLog(FarLog):
        def append(self, calls: Sequence[CachedCall]) -> Segment | None:
            assert writable.wait(60)
            return super().append(calls)

    with opened(HeldLog(tmp_path / "log"), tmp_path / "file") as calls:
        putting = asyncio.create_task(calls.put([build_call("a")]))
        await asyncio.sleep(0)
        try:
            for _ in range(3):
                assert await asyncio.wait_for(calls.get(["a", "b"]), 30) == [build_call("a"), None]
            assert not putting.done(), "it is not kept yet, and not said to be"
            assert keys_in(tmp_path / "log") == []
        finally:
            writable.set()
        await putting
        assert keys_in(tmp_path / "log") == ["a"]
        assert await calls.get(["a", "b"]) == [build_call("a"), None]


async def test_a_file_that_another_writes_to_is_read_all_the_same(tmp_path: Path) -> None:
    with opened(None, tmp_path / "file") as calls, closing(CallCache(tmp_path / "file")) as other:
        await calls.put([build_call("a")])
        with other._transaction():
            putting = asyncio.create_task(calls.put([build_call("b")]))
            await asyncio.sleep(0.05)
            seen = await asyncio.wait_for(calls.get(["a", "b", "c"]), 5)
            assert seen == [build_call("a"), build_call("b"), None]
            assert not putting.done()
        await putting
        assert set(other.get(["a", "b"])) == {"a", "b"}


async def test_a_write_that_fails_is_tried_again_then_told_and_its_calls_go_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paid_calls, "PAUSES_S", (0.0, 0.0))
    log = FarLog(tmp_path / "log")
    with opened(log, tmp_path / "file") as calls:
        log.failures = [ResourceError("503")] * 2
        await calls.put([build_call("a")])
        log.failures = [ResourceError("503")] * 3
        with pytest.raises(ResourceError, match="503"):
            await calls.put([build_call("b")])
        log.failures = [ConfigError("access denied")]
        with pytest.raises(ConfigError, match="access denied"):
            await calls.put([build_call("c")])
        assert log.failures == [], "a refusal is tried once"
        assert await calls.get(["b", "c"]) == [build_call("b"), build_call("c")], (
            "they need not be paid again"
        )
        assert keys_in(tmp_path / "log") == ["a"]
        await calls.put([build_call("d")])
        assert keys_in(tmp_path / "log") == ["a", "b", "c", "d"]
        log.failures = [ConfigError("access denied")]
        with pytest.raises(ConfigError):
            await calls.put([build_call("e")])
        await calls.compact()  # the last that may write it
    assert keys_in(tmp_path / "log") == ["a", "b", "c", "d", "e"]


async def test_one_failed_group_is_of_those_in_it(tmp_path: Path) -> None:
    log = FarLog(tmp_path / "log", write_s=0.05)
    log.failures = [ConfigError("access denied")]
    with opened(log, tmp_path / "file") as calls:
        first = asyncio.create_task(calls.put([build_call("a")]))
        await asyncio.sleep(0.02)
        others = [asyncio.create_task(calls.put([build_call(key)])) for key in "bc"]
        others[1].cancel()
        failed, kept, cancelled = await asyncio.gather(first, *others, return_exceptions=True)
    assert isinstance(failed, ConfigError)
    assert kept is None
    assert isinstance(cancelled, asyncio.CancelledError)


KEEPER = """
import asyncio, sys
from pathlib import Path
from memray_eval.judges.call_cache import CallCache
from memray_eval.judges.paid_calls import PaidCalls
from tests.build import build_call
from tests.unit.judges.test_paid_calls import FarLog

async def member(calls, name):
    for number in range(10**6):
        await calls.put([build_call(f"{name}-{number}")])
        print(f"{name}-{number}", flush=True)

async def main():
    folder = Path(sys.argv[1])
    calls = PaidCalls(CallCache(folder / "file", is_scratch=True), FarLog(folder / "log", 0.01))
    await asyncio.gather(*(member(calls, f"m{number}") for number in range(50)))

asyncio.run(main())
"""


@pytest.mark.heavy
def test_kill_9_loses_no_call_that_put_has_returned_from(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    printed = killed_after(300, KEEPER, tmp_path)
    (tmp_path / "file").unlink()  # its machine is lost
    log = SegmentLog(str(tmp_path / "log"))
    with opened(log, tmp_path / "file") as calls:
        stored = asyncio.run(calls.get(sorted(printed)))
    assert log.n_unreadable == 0, "no half of a segment"
    assert len(printed) >= 300
    assert [call.key if call else None for call in stored] == sorted(printed)


def written(folder: Path, names: Sequence[str]) -> None:
    """One segment for each name, with one call."""
    log = SegmentLog(str(folder))
    for name in names:
        log.append([build_call(name)])


def compacted(folder: Path, file: Path) -> int:
    """How many segments there are after a session that only loads and ends."""
    with opened(SegmentLog(str(folder)), file) as calls:
        asyncio.run(calls.compact())
    return len(list(folder.iterdir()))


def test_what_cannot_be_read_is_counted_and_stays(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    written(folder, "abc")
    (folder / "calls-0.jsonl.zst").write_bytes(b"cut off")
    log = SegmentLog(str(folder))
    with closing(PaidCalls(CallCache(tmp_path / "file"), log)) as calls:
        assert calls.load() == 1
        asyncio.run(calls.compact())
    assert (folder / "calls-0.jsonl.zst").read_bytes() == b"cut off"
    assert len(list(folder.iterdir())) == 2


class Killed(BaseException):
    """Ends a merge as a kill would: nothing after it happens."""


def test_a_kill_between_the_merged_segment_and_the_deletions_loses_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    for n_deleted in range(5):
        written(folder, [f"{n_deleted}{key}" for key in "abcd"])
        before = set(keys_in(folder))

        class DyingLog(SegmentLog):
            n_left = n_deleted

            def _try_delete(self, path: str) -> bool:
                if not self.n_left:
                    raise Killed
                self.n_left -= 1
                return super()._try_delete(path)

        log = DyingLog(str(folder))
        segments = list(log.load())
        by_key = {call.key: call for segment in segments for call in segment.calls}
        paths = [segment.path for segment in segments]
        if n_deleted < len(paths):
            with pytest.raises(Killed):
                log.merge(list(by_key.values()), paths)
        assert set(keys_in(folder)) == before
        assert compacted(folder, tmp_path / f"file{n_deleted}") == 1
        assert keys_in(folder) == sorted(before), "each once again"


def test_a_merge_that_cannot_be_written_deletes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    written(folder, "abc")
    log = FarLog(folder)
    log.failures = [ResourceError("503")]
    with opened(log, tmp_path / "file") as calls:
        asyncio.run(calls.compact())
    assert log.failures == []
    assert keys_in(folder) == ["a", "b", "c"]
    assert len(list(folder.iterdir())) == 3


async def test_a_cache_that_lost_a_call_merges_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    with opened(SegmentLog(str(folder)), tmp_path / "file") as calls:
        for key in "abc":
            await calls.put([build_call(key)])
        calls._cache.clear()
        await calls.compact()
    assert keys_in(folder) == ["a", "b", "c"]


def test_sessions_that_merge_one_folder_at_once_lose_nothing(tmp_path: Path) -> None:
    """Six sessions write, merge and load in one folder; readers look all the time."""
    folder, ended, lost = tmp_path / "log", threading.Event(), list[str]()
    written(folder, [f"old{number:02}" for number in range(40)])
    kept = [f"old{number:02}" for number in range(40)]

    def session(number: int) -> None:
        async def main(calls: PaidCalls) -> None:
            for call in range(8):
                await calls.put([build_call(f"s{number}-{call}")])
                if call % 3 == 2:
                    await calls.compact()
            await calls.compact()

        with opened(SegmentLog(str(folder)), tmp_path / f"file{number}") as calls:
            asyncio.run(main(calls))

    def look() -> int:
        n_looks = 0
        while not ended.is_set():
            log = SegmentLog(str(folder))
            keys = {call.key for segment in log.load() for call in segment.calls}
            lost.extend(set(kept) - keys)
            n_looks += 1
        return n_looks

    with ThreadPoolExecutor(8) as threads:
        looking = threads.submit(look)
        try:
            list(threads.map(session, range(6)))
        finally:
            ended.set()
        assert looking.result() > 3
    assert lost == []
    everything = sorted([*kept, *(f"s{n}-{call}" for n in range(6) for call in range(8))])
    assert sorted(set(keys_in(folder))) == everything
    compacted(folder, tmp_path / "last")
    assert keys_in(folder) == everything


def test_a_reader_whose_segments_were_merged_lists_again(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    written(folder, "abcd")

    class RacedLog(SegmentLog):
        is_first = True

        def _list(self) -> list[Any]:
            infos = super()._list()
            if self.is_first:
                self.is_first = False
                assert compacted(folder, tmp_path / "other") == 1
            return infos

    log = RacedLog(str(folder))
    assert sorted(call.key for part in log.load() for call in part.calls) == ["a", "b", "c", "d"]
    assert log.n_unreadable == 0


@pytest.mark.parametrize("largest", [10, 1000])
async def test_a_run_never_leaves_many_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, largest: int
) -> None:
    """Merged while it goes on, so that a killed run is resumed as fast as one that ended."""
    monkeypatch.setattr(paid_calls, "SMALL_SEGMENTS", 5)
    monkeypatch.setattr(paid_calls, "MERGED_CALLS", largest)
    folder, most = tmp_path / "log", 0
    with opened(SegmentLog(str(folder)), tmp_path / "file") as calls:
        for call in range(100):
            await calls.put([build_call(f"{call:03}")])
            if call % 5 == 4:
                most = max(most, len(list(folder.iterdir())))
        await calls.compact()
    assert most <= 21
    assert keys_in(folder) == [f"{call:03}" for call in range(100)]
    sizes = [len(segment.calls) for segment in SegmentLog(str(folder)).load()]
    assert max(sizes) <= largest
    assert len(sizes) <= 2 * 100 // largest + 1
