"""A run to be killed: `python -m tests.processes.victim CONFIG` runs a job, or goes on with it
where its folder is there already."""

import sys
from pathlib import Path

from memray_eval.config.schema import RunConfig
from memray_eval.execution.runs import resume, run


def main() -> None:
    config = RunConfig.model_validate_json(Path(sys.argv[1]).read_text())
    begun = sorted(Path(config.out).glob("*/run.yaml"))
    finished = resume(str(begun[0].parent), print) if begun else run(config, print)
    sys.exit(finished.exit_code)


if __name__ == "__main__":
    main()
