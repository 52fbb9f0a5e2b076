"""How a run ends that does not finish: signals, dead services, no room for files. What is finished
is kept, the manifest and the last line say how it ended, and `resume` finishes it.
Every day two signals on the local executor are tried, at night all of them."""

import contextlib
import os
import signal
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
    end_after,
    gone,
    ran,
    run_folder,
    running,
    small_disk,
    wait_for,
    workers,
)
from tests.servers.process import ServerProcess, serving_process

LATENCY_S = 0.1


def resumed(tmp_path: Path, server: ServerProcess, lost: int) -> None:
    """Resumes the run to its end; every unit is there once, and no more than `lost` calls were paid
    twice."""
    words = ("memray_eval", "resume", run_folder(tmp_path).path)
    code, text = ran(*words, log=tmp_path / "resumed")
    assert code == 0, text[-2000:]
    books(run_folder(tmp_path), server).hold(lost)


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
        with running("memray_eval", "run", str(config), log=log) as process:
            assert end_after(server, CALLS // 2, process, number) == code
        folder = run_folder(tmp_path)
        manifest = folder.read_manifest()
        expected = ("interrupted", f"interrupted by {number.name}")
        assert (manifest["status"], manifest["error"]) == expected
        last = log.read_text().strip().splitlines()[-1]
        assert last.startswith(f"Interrupted by {number.name}: ")
        assert last.endswith(f"Go on with `memray-eval resume {folder.path}`.")
        kept = folder.records().count_rows() if folder.parts() else 0
        assert f"{kept} of {UNITS} answers are finished and kept" in last
        assert f"Stopping: {number.name} came: what is in flight is finished and written" in (
            log.read_text()
        )
        resumed(tmp_path, server, lost=0)
    sessions = run_folder(tmp_path).read_manifest()["sessions"]
    assert [session["status"] for session in sessions] == ["interrupted", "finished"]


@pytest.mark.night
@pytest.mark.parametrize(
    ("victim", "name"),
    [
        ("LedgerActor", "ledger of the run's budget"),
        ("src/ray/raylet/raylet", "raylet"),
        ("src/ray/gcs/gcs_server", "gcs_server"),
    ],
)
def test_a_service_that_dies(tmp_path: Path, victim: str, name: str) -> None:
    log = tmp_path / "log"
    with serving_process(latency_s=LATENCY_S) as server:
        config = config_file(tmp_path, server, 1, Budget(tokens=10**9))
        with running("memray_eval", "run", str(config), log=log) as process:
            wait_for(server, CALLS // 2, process)
            children = psutil.Process(process.pid).children(recursive=True)
            workers(process.pid, victim)[0].kill()
            assert process.wait(HANG_S) == 3
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
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of two megabytes with nothing left on it."""
    with small_disk(tmp_path / "disk", kb=2048) as disk:
        with contextlib.suppress(OSError), (disk / "full").open("wb") as file:
            while True:
                file.write(b"x" * 65536)
                file.flush()
        yield disk


def ran_job(config: Path, *words: str, **environment: str) -> tuple[int, str]:
    log, env = config.with_name("log"), os.environ | environment
    return ran("memray_eval", "run", str(config), *words, log=log, env=env)


@pytest.mark.night
def test_no_room_for_rays_files(tmp_path: Path, full_disk: Path) -> None:
    with serving_process() as server:
        folders = dict.fromkeys(("TMPDIR", "RAY_TMPDIR"), str(full_disk))
        code, text = ran_job(config_file(tmp_path, server, 1), **folders)
    assert code == 3, text[-3000:]
    assert "error: the local Ray cannot start" in text
    assert str(full_disk) in text
    assert "Traceback" not in text


@pytest.mark.night
def test_no_room_in_the_run_folder(tmp_path: Path, full_disk: Path) -> None:
    with serving_process() as server:
        config = config_file(tmp_path, server, 1)
        (full_disk / "full").write_bytes(b"x" * ((2 << 20) - 40_000))
        code, text = ran_job(config, "--out", str(full_disk))
    assert code in (1, 3), text[-3000:]
    assert "No space left on device" in text
    assert "memray-eval resume" in text


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
        code, text = ran_job(config, **environment)
    assert code in (2, 3), text[-3000:]
    assert "MEMRAY_EVAL_CACHE" in text
    assert "Traceback" not in text
