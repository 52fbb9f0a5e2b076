#!/bin/bash
# One evaluation on Slurm: sbatch --nodes=2 --gpus-per-node=8 cluster/slurm.sh JOB --out FOLDER [--run-id ID] [...], as for
# `memray-eval run`, from a shell with the package's environment. Ray lives as long as the job. See README.md.
#SBATCH --job-name=memray-eval
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --no-kill
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --time=1-00:00:00
# exclusive: symmetric-run ends with `ray stop`, for all Rays of this user on a node. no-kill: a lost node is Ray's to bear.
# requeue: the run id is the job's, so that the job goes on if its first node is lost.
set -euo pipefail

head=$(hostname -I | cut -d' ' -f1)        # of the job's first node, which this runs on
RAY_AUTH_TOKEN=$(openssl rand -hex 32)     # whoever has a shell on a node would run code on all of them
export RAY_AUTH_TOKEN RAY_AUTH_MODE=token
export RAY_TMPDIR=/tmp/memray-$SLURM_JOB_ID RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT=300
export MEMRAY_EXIT_CODE=$PWD/memray-eval-$SLURM_JOB_ID.code     # symmetric-run ends with 0 if Ray did not start
rm -f "$MEMRAY_EXIT_CODE"

# shellcheck disable=SC2016  # the inner shell's variables
srun --nodes="$SLURM_JOB_NUM_NODES" --cpu-bind=none --kill-on-bad-exit=0 \
    ray symmetric-run --address "$head:6379" --min-nodes "$SLURM_JOB_NUM_NODES" --disable-usage-stats -- \
    bash -c 'memray-eval run "$@"; echo $? > "$MEMRAY_EXIT_CODE"' run \
    --run-id "slurm-$SLURM_JOB_ID" --set cluster.address=auto "$@" || true

if [ ! -s "$MEMRAY_EXIT_CODE" ]; then
    echo "The run did not end: Ray did not come up on $SLURM_JOB_NUM_NODES nodes ($head:6379), or the run was killed." \
        "Ray's logs: $RAY_TMPDIR of each node" >&2
    exit 3
fi
code=$(cat "$MEMRAY_EXIT_CODE")
rm "$MEMRAY_EXIT_CODE"
exit "$code"
