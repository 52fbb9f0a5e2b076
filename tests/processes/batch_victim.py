"""A run that judges in batches and kills itself: `python -m tests.processes.batch_victim CONFIG
STEP N` runs a job, or goes on with the run in its `out`, and dies by SIGKILL when it is at STEP for
the Nth time. STEP - : it is not killed."""

import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from memray_eval.config.schema import RunConfig
from memray_eval.errors import EvalError
from memray_eval.execution.runs import resume, run
from memray_eval.judges.batches.journal import BatchEntry, BatchJournal
from memray_eval.judges.batches.openai import OpenAIBatches
from memray_eval.judges.batches.port import BatchResult, BatchStatus
from tests.processes.test_cloud import only_run

STEPS = (
    "before the upload",
    "after the upload",
    "after the submit",
    "while waiting",
    "while collecting",
    "after collecting",
)


def kill_at(step: str, n: int) -> None:  # noqa: C901 - a mine a step
    """Lays the mine."""
    left = [n]

    def die() -> None:
        left[0] -= 1
        if left[0] <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def after(name: str, when: Callable[[BatchStatus], bool] = lambda of: True) -> None:
        real = getattr(OpenAIBatches, name)

        async def dying(self: OpenAIBatches, *args: Any) -> Any:
            result_of = await real(self, *args)
            if when(result_of):
                die()
            return result_of

        setattr(OpenAIBatches, name, dying)

    def after_written(name: str, when: Callable[[BatchEntry], bool] = lambda of: True) -> None:
        real = getattr(BatchJournal, name)

        def dying(self: BatchJournal, entry: BatchEntry, *args: Any) -> None:
            real(self, entry, *args)
            if when(entry):
                die()

        setattr(BatchJournal, name, dying)

    def while_collecting() -> None:
        real = OpenAIBatches.results

        async def dying(self: OpenAIBatches, status: BatchStatus) -> AsyncIterator[BatchResult]:
            n_yielded = 0
            async for result in real(self, status):
                yield result
                if (n_yielded := n_yielded + 1) == 10:
                    die()

        OpenAIBatches.results = dying  # type: ignore[method-assign]

    mines: dict[str, Callable[[], None]] = {
        "before the upload": lambda: after_written("begin"),
        "after the upload": lambda: after("upload"),
        "after the submit": lambda: after("submit"),
        "while waiting": lambda: after("status", lambda status: not status.end),
        "while collecting": while_collecting,
        "after collecting": lambda: after_written("write", lambda of: of.state == "collected"),
        "-": lambda: None,
    }
    mines[step]()


def main() -> None:
    config = RunConfig.model_validate_json(Path(sys.argv[1]).read_text())
    kill_at(sys.argv[2], int(sys.argv[3]))
    try:
        if "://" in config.out:
            begun = only_run(config.out.removesuffix("/results")).path
        else:
            (begun,) = [str(path.parent) for path in Path(config.out).glob("*/run.yaml")]
    except (ValueError, OSError):
        begun = ""
    try:
        finished = resume(begun, print) if begun else run(config, print)
    except EvalError as error:
        print(error)
        sys.exit(error.exit_code)
    sys.exit(finished.exit_code)


if __name__ == "__main__":
    main()
