"""What the kill tests share: a run in a process of its own that judges existing responses, and the
books kept at its end."""

import contextlib
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from memray_eval.config.sections import Budget
from memray_eval.results.run_folder import RunFolder
from memray_eval.results.schema import from_table
from tests.build import judging_job, write_responses
from tests.conftest import HANG_S
from tests.servers.process import ServerProcess

# Of `make night KILLS=3`; three show that it was no luck
ROUNDS = int(os.environ.get("MEMRAY_EVAL_KILLS", "1"))
METRICS = ("helpfulness", "empathy", "safety")
UNITS, IN_FLIGHT = 90, 8
CALLS = UNITS * len(METRICS)


@dataclass(frozen=True)
class Books:
    """A run after its end: rows and units in its records, units with every score, and calls at the
    provider."""

    rows: int
    units: int
    scored: int
    calls: int
    paid_again: int


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
    dataset = write_responses(tmp_path, UNITS)
    config = judging_job(
        dataset,
        tmp_path / "out",
        server.base_url,
        METRICS,
        executor,
        actors=actors,
        max_in_flight=IN_FLIGHT,
    )
    config = config.model_copy(update={"rows_per_block": 10, "budget": budget})
    path = tmp_path / "job.yaml"
    path.write_text(config.model_dump_json())
    return path


@contextlib.contextmanager
def evaluating(
    config: Path, log: Path, script: str = "tests.processes.victim"
) -> Iterator[subprocess.Popen[bytes]]:
    """The run as a process, in a session of its own so that all its processes can be ended."""
    command = [sys.executable, "-m", script, str(config)]
    with (
        log.open("ab") as out,
        subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True) as process,
    ):
        try:
            yield process
        except AssertionError:
            print(log.read_text()[-4000:])
            raise
        finally:
            if process.poll() is None:
                process.kill()


def wait_for(server: ServerProcess, calls: int, process: subprocess.Popen[bytes]) -> None:
    """Until the provider has answered so many calls."""
    deadline = time.monotonic() + HANG_S
    while server.stats()["n_answered"] < calls:
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < deadline, "the run makes no calls"
        time.sleep(0.02)


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


def counted(what: str, books: Books) -> None:
    """Prints a round's books: they are this project's evidence."""
    print(f"\n{what}: {Counter(vars(books))}", file=sys.__stdout__)
