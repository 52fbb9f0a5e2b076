"""Paths of any storage, work beside each other, and scratch folders that go with their process."""

import gzip
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import fs

from memray_eval.errors import ConfigError, ResourceError
from memray_eval.storage.leases import ScratchFolder, hold_lease, sweep
from memray_eval.storage.paths import (
    locate,
    map_ahead,
    open_reader,
    translate_cloud_errors,
    whole_file,
    write_whole,
)

LOCAL = fs.LocalFileSystem()
URL = "s3://bucket/run"
# More than one buffer
LINES = b"".join(b"line %d of a file that is packed\n" % number for number in range(60_000))


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_a_packed_file_is_read_as_what_it_unpacks_to(tmp_path: Path, suffix: str) -> None:
    pack = gzip.compress if suffix == "gz" else partial(pa.Codec("zstd").compress, asbytes=True)
    path, second = str(tmp_path / f"d.jsonl.{suffix}"), LINES.index(b"\n") + 1
    Path(path).write_bytes(pack(LINES))
    with open_reader(LOCAL, path) as file:
        assert file.read() == LINES
    with open_reader(LOCAL, path, second) as file:
        assert file.readline() == b"line 1 of a file that is packed\n"
        for offset in (len(LINES) - 40, 0, second):  # on, and back
            file.seek(offset)
            assert file.read(30) == LINES[offset : offset + 30]


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = str(tmp_path / "f")
    write_whole(LOCAL, path, b"first")
    with pytest.raises(TypeError), whole_file(LOCAL, path) as file:
        file.writelines([b"second", 3])  # type: ignore[list-item]
    assert [entry.name for entry in tmp_path.iterdir()] == ["f"]
    assert (tmp_path / "f").read_bytes() == b"first"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("s3://key:S3CRET@bucket/x", "set in the environment"),
        ("s3://bucket/x?secret_key=S3CRET", "set in the environment"),
        ("s3://", "set in the environment"),
        ("gs://key:S3CRET@bucket", "set in the environment"),
        ("gs://b/x?a=S3CRET", "set in the environment"),
        ("abfs://account:S3CRET@container/x", "with a password in it"),
        ("s3a://key:S3CRET@bucket/x", "with a password in it"),
        ("S3://key:S3CRET@bucket/x", "with a password in it"),
    ],
)
def test_keys_in_a_url_are_refused_and_not_repeated(url: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        locate(url)
    assert "S3CRET" not in str(caught.value)


# What pyarrow 26 says of moto's answers, and of none.
AWS = (
    "When listing objects under key 'p/' in bucket 'token': AWS Error {} during ListObjectsV2 "
    "operation: {}"
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (AWS.format("ACCESS_DENIED", "Access Denied"), "access denied (ACCESS_DENIED)"),
        (AWS.format("NO_SUCH_BUCKET", "The specified bucket does not exist"), "no such bucket"),
        ("Bucket 'b' not found. To create buckets, enable the option.", "no such bucket"),
        (AWS.format("NETWORK_CONNECTION", "curlCode: 7"), "cannot be reached (NETWORK_CONNECTION)"),
        (AWS.format("SLOW_DOWN", "for the token"), "cannot be reached (SLOW_DOWN)"),
        ("google::cloud::Status(PERMISSION_DENIED: no)", "GOOGLE_APPLICATION_CREDENTIALS"),
        ("google::cloud::Status(UNAVAILABLE: exhausted)", "cannot be reached (UNAVAILABLE)"),
    ],
)
def test_what_a_cloud_refuses_is_one_message(
    monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    url = "gs://b/x" if text.startswith("google") else URL
    kind = ResourceError if "cannot be reached" in message else ConfigError
    with pytest.raises(kind) as caught, translate_cloud_errors(url):
        raise OSError(text)
    assert message in str(caught.value)
    assert str(caught.value).startswith(url)


def test_local_errors_and_absent_files_pass() -> None:
    with pytest.raises(OSError, match="disk full"), translate_cloud_errors("/a/path"):
        raise OSError("disk full")
    with pytest.raises(FileNotFoundError), translate_cloud_errors(URL):
        raise FileNotFoundError("x")


def no_wait(seconds: float) -> object:
    return None


def test_a_lease_is_held_and_given_back(tmp_path: Path) -> None:
    path = tmp_path / ".lease"
    with hold_lease(LOCAL, str(path), URL, beat_s=60, sleep=no_wait):
        assert '"host"' in path.read_text()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("before", "others", "message"),
    [
        (
            '{"token": "other", "beat": 1}',
            '{"token": "other", "beat": 2, "host": "far", "pid": 7}',
            r"at work in s3://bucket/run \(process 7 of far\)",
        ),
        ("", '{"token": "other"}', "another process is at work"),  # two that start at once
    ],
)
def test_a_lease_that_changes_has_a_holder(
    tmp_path: Path, before: str, others: str, message: str
) -> None:
    path = tmp_path / ".lease"
    if before:
        path.write_text(before)
    with (
        pytest.raises(ConfigError, match=message),
        hold_lease(LOCAL, str(path), URL, sleep=lambda seconds: path.write_text(others)),
    ):
        pytest.fail("two are at work")
    assert path.read_text() == others


def test_a_lease_that_nobody_writes_is_taken_over(tmp_path: Path) -> None:
    path, waited = tmp_path / ".lease", list[float]()
    path.write_text('{"token": "killed", "beat": 9}')
    with hold_lease(LOCAL, str(path), URL, beat_s=60, sleep=waited.append):
        assert "killed" not in path.read_text()
    assert waited[:3] == [60, 60, 60]


def test_who_loses_the_lease_is_interrupted_and_leaves_it_alone(tmp_path: Path) -> None:
    path, lost = tmp_path / ".lease", threading.Event()
    other = tmp_path / "other"

    def until_interrupted() -> None:
        while not lost.wait(0.05):  # again where a beat came between
            other.write_text('{"token": "other"}')
            other.rename(path)
        raise KeyboardInterrupt

    with (
        pytest.raises(ResourceError, match="another process took over s3://bucket/run"),
        hold_lease(LOCAL, str(path), URL, beat_s=0.01, sleep=no_wait, on_lost=lost.set),
    ):
        until_interrupted()
    assert path.read_text() == '{"token": "other"}'


def test_results_come_in_the_order_of_the_items_however_long_each_takes() -> None:
    def slow_first(number: int) -> int:
        time.sleep(0.05 if number % 4 == 0 else 0.0)
        return number

    assert list(map_ahead(slow_first, range(20), at_once=4)) == list(range(20))
    assert list(map_ahead(slow_first, [], at_once=4)) == []


def test_calls_are_side_by_side_and_never_more_than_are_taken_soon() -> None:
    meeting, started = threading.Barrier(3, timeout=20), []

    def numbers() -> Iterator[int]:
        for number in range(9):
            started.append(number)
            yield number

    def meet(number: int) -> int:
        meeting.wait()  # for two others: one after the other, none would ever end
        return number

    results = map_ahead(meet, numbers(), at_once=3)
    assert next(results) == 0
    assert len(started) <= 4
    assert list(results) == list(range(1, 9))


def test_an_error_ends_it_and_calls_that_wait_are_not_made() -> None:
    calls = []

    def fail(number: int) -> int:
        calls.append(number)
        time.sleep(0.01)
        raise ValueError(f"no {number}")

    with pytest.raises(ValueError, match="no 0"):
        list(map_ahead(fail, range(100), at_once=2))
    assert len(calls) <= 3


MAKES = """
import os, signal, sys, time
from memray_eval.storage.leases import ScratchFolder
folder = ScratchFolder("calls")
(folder.path / "big").write_bytes(b"x" * 1000)
print(folder.path, flush=True)
if sys.argv[1] == "forks" and os.fork() == 0:
    sys.exit()  # takes nothing of its parent's
if sys.argv[1] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[1] == "waits":
    sys.stdin.read()
if sys.argv[1] == "fails":
    raise ValueError
print((folder.path / "big").exists(), flush=True)
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def run(how: str) -> Path:
    done = subprocess.run([sys.executable, "-c", MAKES, how], capture_output=True, text=True)
    assert done.returncode == {"killed": -signal.SIGKILL, "fails": 1}.get(how, 0)
    path, *rest = done.stdout.split()
    assert "False" not in rest
    return Path(path)


@pytest.mark.parametrize("how", ["ends", "fails", "forks"])
def test_nothing_stays_after_an_end(how: str, tmp_path: Path) -> None:
    assert not run(how).exists()
    assert not list(tmp_path.iterdir())


def test_the_next_one_removes_what_a_kill_left(tmp_path: Path) -> None:
    left = run("killed")
    assert (left / "big").exists()
    with ScratchFolder("keys") as folder:
        assert not left.exists()
        assert list(tmp_path.iterdir()) == [Path(folder).parent]
        assert not list(Path(folder).iterdir())
    assert not list(tmp_path.iterdir())


def test_one_that_is_in_use_stays(tmp_path: Path) -> None:
    program = [sys.executable, "-c", MAKES, "waits"]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        used = Path(process.stdout.readline().decode().strip())
        (tmp_path / "memray-eval-of-somebody-else").mkdir()
        assert sweep() == 0
        assert (used / "big").exists()
        process.communicate()
    assert [path.name for path in tmp_path.iterdir()] == ["memray-eval-of-somebody-else"]
