"""What the kill tests share: a run in a process of its own that judges existing responses, and the
books kept at its end."""

import contextlib
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from memray_eval.config.sections import Budget
from memray_eval.results.run_folder import RunFolder
from memray_eval.results.schema import from_table
from tests.build import judging_job, wait_until, write_responses
from tests.conftest import HANG_S
from tests.servers.process import ServerProcess

# Of `make night KILLS=3`; three show that it was no luck
ROUNDS = int(os.environ.get("MEMRAY_EVAL_KILLS", "1"))
METRICS = ("helpfulness", "empathy", "safety")
UNITS, IN_FLIGHT = 90, 8
CALLS = UNITS * len(METRICS)
VICTIM = "tests.processes.victim"


@dataclass(frozen=True)
class Books:
    """A run after its end: rows and units in its records, units with every score, and calls at the
    provider."""

    rows: int
    units: int
    scored: int
    calls: int
    paid_again: int

    def hold(self, most_again: int, units: int = UNITS, calls: int = CALLS) -> None:
        """Every unit once, with every score, and no more than `most_again` calls paid twice."""
        assert (self.rows, self.units, self.scored) == (units, units, units)
        assert self.paid_again <= most_again
        assert self.calls - self.paid_again == calls


def books(folder: RunFolder, server: ServerProcess) -> Books:
    records = list(from_table(folder.records().to_table()))
    stats = server.stats()
    return Books(
        rows=len(records),
        units=len({record.unit_id for record in records}),
        scored=sum(
            [score.status for score in record.scores] == ["scored"] * len(METRICS)
            for record in records
        ),
        calls=stats["n_answered"],
        paid_again=stats["paid_again"],
    )


def config_file(
    tmp_path: Path,
    server: ServerProcess,
    actors: int,
    budget: Budget = Budget(),
    executor: str = "ray",
) -> Path:
    """A job that judges UNITS responses with `actors` judge actors, IN_FLIGHT calls in each, in
    small blocks."""
    dataset, limits = write_responses(tmp_path, UNITS), {"max_in_flight": IN_FLIGHT}
    config = judging_job(
        dataset, tmp_path / "out", server.base_url, METRICS, executor, actors=actors, **limits
    )
    config = config.model_copy(update={"rows_per_block": 10, "budget": budget})
    path = tmp_path / "job.yaml"
    path.write_text(config.model_dump_json())
    return path


@contextlib.contextmanager
def running(*words: str, log: Path, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """`python -m ...` in a session of its own, so that all its processes can be ended. The log gets
    what it says, and is shown if an assertion of the block fails."""
    command = [sys.executable, "-m", *words]
    with (
        log.open("ab") as out,
        subprocess.Popen(
            command, stdout=out, stderr=out, start_new_session=True, **options
        ) as process,
    ):
        try:
            yield process
        except AssertionError:
            print(log.read_text()[-4000:])
            raise
        finally:
            if process.poll() is None:
                process.kill()


def ran(*words: str, log: Path, **options: Any) -> tuple[int, str]:
    """The exit code of `python -m ...`, and all that its log holds then."""
    with running(*words, log=log, **options) as process:
        code = process.wait(HANG_S)
    return code, log.read_text()


def evaluating(
    config: Path, script: str = VICTIM
) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
    """The job as a process, with a file `log` beside it."""
    return running(script, str(config), log=config.with_name("log"))


def finish(config: Path, script: str = VICTIM) -> None:
    """The job, or what is left of its run, to a good end."""
    with evaluating(config, script) as process:
        assert process.wait(HANG_S) == 0


def finish_if_ended(code: int, config: Path) -> str:
    """Resumes a run that a kill has ended, and says what became of it."""
    if code:
        finish(config)
    return f"the run {'was resumed' if code else 'went on'}"


def wait_for(
    server: ServerProcess,
    calls: int,
    process: subprocess.Popen[Any],
    reason: Callable[[], str] = lambda: "the run ended before it could be killed",
) -> None:
    """Until the provider has answered so many calls; `reason` tells of a process that has ended."""

    def is_so() -> bool:
        if server.stats()["n_answered"] >= calls:
            return True
        assert process.poll() is None, reason()
        return False

    wait_until(is_so, "the run makes no calls")


def end_after(
    server: ServerProcess,
    calls: int,
    process: subprocess.Popen[bytes],
    number: signal.Signals = signal.SIGKILL,
) -> int:
    """Ends a run by a signal once the provider has answered so many calls; its exit code, when all
    that it had started is gone."""
    wait_for(server, calls, process)
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    code = process.wait(HANG_S)
    gone(children)
    return code


def some_moment() -> int:
    """A number of calls after which to kill: somewhere in the middle 70 %."""
    return random.randint(round(0.1 * CALLS), round(0.8 * CALLS))


def workers(parent: int, name: str) -> list[psutil.Process]:
    """The Ray processes below a process whose title holds a name."""
    matches = []
    for process in psutil.Process(parent).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if name in " ".join(process.cmdline()):
                matches.append(process)
    return matches


def gone(processes: list[psutil.Process]) -> None:
    """Waits until processes that lost their driver have ended, and ends those that stay."""
    _, alive = psutil.wait_procs(processes, timeout=30)
    for process in alive:
        process.kill()


def run_folder(tmp_path: Path) -> RunFolder:
    (path,) = [path for path in (tmp_path / "out").iterdir() if (path / "run.yaml").exists()]
    return RunFolder(str(path))


@contextlib.contextmanager
def small_disk(folder: Path, kb: int) -> Iterator[Path]:
    """A file system of so many KB at the folder; skips where none may be mounted."""
    folder.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kb}k", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("may mount no file system here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)


def counted(what: str, books: Books) -> None:
    """Prints a round's books: they are this project's evidence."""
    print(f"\n{what}: {Counter(vars(books))}", file=sys.__stdout__)
