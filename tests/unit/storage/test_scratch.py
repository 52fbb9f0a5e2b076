"""Scratch folders go with their process, and those of killed ones with the next."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from memray_eval.storage.scratch import ScratchFolder, sweep

MAKES = """
import os, signal, sys, time
from memray_eval.storage.scratch import ScratchFolder
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
    with subprocess.Popen(
        [sys.executable, "-c", MAKES, "waits"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        used = Path(process.stdout.readline().decode().strip())
        (tmp_path / "memray-eval-of-somebody-else").mkdir()
        assert sweep() == 0
        assert (used / "big").exists()
        process.communicate()
    assert [path.name for path in tmp_path.iterdir()] == ["memray-eval-of-somebody-else"]
    assert os.path.exists(tmp_path)
