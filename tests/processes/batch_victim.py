"""A run that judges in batches and kills itself: `python -m tests.processes.batch_victim CONFIG
STEP N` runs a job, or goes on with the run in its `out`, and dies by SIGKILL when it is at STEP for
the Nth time. STEP - : it is not killed."""

import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

from memray_eval.config.schema import RunConfig
from memray_eval.errors import EvalError
from memray_eval.execution.runs import resume, run
from memray_eval.judges.batches.journal import BatchedCall, BatchEntry, BatchJournal
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


def kill_at(step: str, n: int) -> None:  # noqa: C901 - a branch a step
    """Lays the mine."""
    left = [n]

    def die() -> None:
        left[0] -= 1
        if left[0] <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def after(owner: type, name: str, when: Callable[..., bool] = lambda *_: True) -> None:
        real = getattr(owner, name)

        async def dying(self: Any, *args: Any) -> Any:
            result_of = await real(self, *args)
            if when(result_of):
                die()
            return result_of

        setattr(owner, name, dying)

    if step == "before the upload":
        begin = BatchJournal.begin

        def dying_begin(
            self: BatchJournal, entry: BatchEntry, calls: Iterable[BatchedCall]
        ) -> None:
            begin(self, entry, calls)
            die()

        BatchJournal.begin = dying_begin  # type: ignore[method-assign]
    elif step == "after the upload":
        after(OpenAIBatches, "upload")
    elif step == "after the submit":
        after(OpenAIBatches, "submit")
    elif step == "while waiting":
        after(OpenAIBatches, "status", lambda status: not status.end)
    elif step == "while collecting":
        results = OpenAIBatches.results

        async def dying_results(
            self: OpenAIBatches, status: BatchStatus
        ) -> AsyncIterator[BatchResult]:
            n_yielded = 0
            async for result in results(self, status):
                yield result
                if (n_yielded := n_yielded + 1) == 10:
                    die()

        OpenAIBatches.results = dying_results  # type: ignore[method-assign]
    elif step == "after collecting":
        write = BatchJournal.write

        def dying_write(self: BatchJournal, entry: BatchEntry) -> None:
            write(self, entry)
            if entry.state == "collected":
                die()

        BatchJournal.write = dying_write  # type: ignore[method-assign]


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
