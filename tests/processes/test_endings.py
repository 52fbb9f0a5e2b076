"""How a run ends that does not finish: signals, dead services, no room for files. What is finished
is kept, the manifest and the last line say how it ended, and `resume` finishes it.
Every day two signals on the local executor are tried, at night all of them."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from memray_eval.config.sections import Budget
from tests.conftest import HANG_S
from tests.processes.killing import (
    CALLS,
    IN_FLIGHT,
    UNITS,
    books,
    config_file,
    gone,
    run_folder,
    wait_for,
    workers,
)
from tests.servers.process import ServerProcess, serving_process

PROGRAM = [sys.executable, "-m", "memray_eval"]
LATENCY_S = 0.1


@contextlib.contextmanager
def command(*words: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The command line as a process, in a session of its own."""
    with (
        log.open("ab") as out,
        subprocess.Popen(
            [*PROGRAM, *words], stdout=out, stderr=out, start_new_session=True
        ) as process,
    ):
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def last_lines(log: Path) -> list[str]:
    return [line for line in log.read_text().splitlines() if line.strip()]


def resumed(tmp_path: Path, server: ServerProcess, lost: int) -> None:
    """Resumes the run to its end; every unit is there once, and no more than `lost` calls were paid
    twice."""
    log = tmp_path / "resumed"
    with command("resume", run_folder(tmp_path).path, log=log) as process:
        assert process.wait(HANG_S) == 0, log.read_text()[-2000:]
    results = books(run_folder(tmp_path), server)
    assert (results.rows, results.units, results.scored) == (UNITS, UNITS, UNITS)
    assert results.paid_again <= lost
    assert results.calls - results.paid_again == CALLS


@pytest.mark.parametrize(
    ("executor", "number", "code"),
    [
        ("local", signal.SIGTERM, 143),
        ("local", signal.SIGINT, 130),
        pytest.param("ray", signal.SIGTERM, 143, marks=pytest.mark.night),
        pytest.param("ray", signal.SIGINT, 130, marks=pytest.mark.night),
    ],
)
def test_a_signal(tmp_path: Path, executor: str, number: signal.Signals, code: int) -> None:
    log = tmp_path / "log"
    with serving_process(latency_s=LATENCY_S) as server:
        config = config_file(tmp_path, server, 1, executor=executor)
        with command("run", str(config), log=log) as process:
            wait_for(server, CALLS // 2, process)
            children = psutil.Process(process.pid).children(recursive=True)
            process.send_signal(number)
            assert process.wait(HANG_S) == code, log.read_text()[-2000:]
        gone(children)
        folder = run_folder(tmp_path)
        manifest = folder.read_manifest()
        assert (manifest["status"], manifest["error"]) == (
            "interrupted",
            f"interrupted by {number.name}",
        )
        last = last_lines(log)[-1]
        assert last.startswith(f"Interrupted by {number.name}: ")
        assert last.endswith(f"Go on with `memray-eval resume {folder.path}`.")
        kept = folder.records().count_rows() if folder.parts() else 0
        assert f"{kept} of {UNITS} answers are finished and kept" in last
        assert f"Stopping: {number.name} came: what is in flight is finished and written" in (
            log.read_text()
        )
        resumed(tmp_path, server, lost=0)
    assert [session["status"] for session in run_folder(tmp_path).read_manifest()["sessions"]] == [
        "interrupted",
        "finished",
    ]


@pytest.mark.night
@pytest.mark.parametrize(
    ("victim", "name"),
    [
        ("LedgerActor", "ledger of the run's budget"),
        ("raylet", "raylet"),
        ("gcs_server", "gcs_server"),
    ],
)
def test_a_service_that_dies(tmp_path: Path, victim: str, name: str) -> None:
    log = tmp_path / "log"
    with serving_process(latency_s=LATENCY_S) as server:
        config = config_file(tmp_path, server, 1, Budget(tokens=10**9))
        with command("run", str(config), log=log) as process:
            wait_for(server, CALLS // 2, process)
            children = psutil.Process(process.pid).children(recursive=True)
            results = workers(
                process.pid,
                victim
                if victim == "LedgerActor"
                else f"src/ray/{'raylet/' if victim == 'raylet' else 'gcs/'}{victim}",
            )
            results[0].kill()
            assert process.wait(HANG_S) == 3, log.read_text()[-2000:]
        gone(children)
        folder = run_folder(tmp_path)
        manifest = folder.read_manifest()
        assert manifest["status"] == "failed"
        assert name in manifest["error"]
        text = log.read_text()
        assert "Traceback" not in text
        assert name in text
        assert f"Go on with `memray-eval resume {folder.path}`." in text
        resumed(tmp_path, server, 2 * IN_FLIGHT)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of two megabytes with nothing left on it."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("may mount no file system here")
    try:
        with contextlib.suppress(OSError), (disk / "full").open("wb") as file:
            while True:
                file.write(b"x" * 65536)
                file.flush()
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=False)


def ended(config: Path, log: Path, **environment: str) -> tuple[int, str]:
    with log.open("wb") as out:
        done = subprocess.run(
            [*PROGRAM, "run", str(config)],
            stdout=out,
            stderr=out,
            env=os.environ | environment,
            timeout=HANG_S,
            check=False,
        )
    return done.returncode, log.read_text()


@pytest.mark.night
def test_no_room_for_rays_files(tmp_path: Path, small_disk: Path) -> None:
    with serving_process() as server:
        code, text = ended(
            config_file(tmp_path, server, 1),
            tmp_path / "log",
            TMPDIR=str(small_disk),
            RAY_TMPDIR=str(small_disk),
        )
    assert code == 3, text[-3000:]
    assert "error: the local Ray cannot start" in text
    assert str(small_disk) in text
    assert "Traceback" not in text


@pytest.mark.night
def test_no_room_in_the_run_folder(tmp_path: Path, small_disk: Path) -> None:
    with serving_process() as server:
        config = config_file(tmp_path, server, 1)
        (small_disk / "full").write_bytes(b"x" * ((2 << 20) - 40_000))
        code, text = ended_at(config, tmp_path / "log", small_disk)
    assert code in (1, 3), text[-3000:]
    assert "No space left on device" in text
    assert "memray-eval resume" in text


def ended_at(config: Path, log: Path, out: Path) -> tuple[int, str]:
    with log.open("wb") as output:
        command = [*PROGRAM, "run", str(config), "--out", str(out)]
        done = subprocess.run(command, stdout=output, stderr=output, timeout=HANG_S, check=False)
    return done.returncode, log.read_text()


@pytest.mark.night
def test_a_home_that_cannot_be_written(tmp_path: Path) -> None:
    """It matters where calls are to be remembered there, and is said; a run by rules needs none."""
    home = tmp_path / "home"
    home.write_text("a file, not a folder")
    environment = {"HOME": str(home), "XDG_CACHE_HOME": "", "MEMRAY_EVAL_CACHE": ""}
    with serving_process() as server:
        config = config_file(tmp_path, server, 1)
        config.write_text(
            config.read_text().replace(f'"cache":"{tmp_path}/out/calls.sqlite"', '"cache":"auto"')
        )
        code, text = ended(config, tmp_path / "log", **environment)
    assert code in (2, 3), text[-3000:]
    assert "MEMRAY_EVAL_CACHE" in text
    assert "Traceback" not in text
