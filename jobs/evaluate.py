"""A run on the cluster that this process is in: the entrypoint of `ray job submit` and of KubeRay's
RayJob.

    ray job submit --address http://HEAD:8265 --working-dir . -- \
        python jobs/evaluate.py jobs/memory.yaml --out s3://bucket/results --run-id nightly-1

It takes the options of `memray-eval run` and has its exit codes. With a --run-id a job that is
started again goes on where the one before ended. `memray-eval submit` does the same from a machine
that has only the cluster's address. With `--results FILE` it is `memray-eval evaluate FILE`.
"""

from __future__ import annotations

import sys

from memray_eval.cli import program

if __name__ == "__main__":
    judges = any(word.partition("=")[0] == "--results" for word in sys.argv)
    command = ["evaluate"] if judges else ["run", "--set", "cluster.address=auto"]
    sys.argv[1:] = [*command, *sys.argv[1:]]
    program()
