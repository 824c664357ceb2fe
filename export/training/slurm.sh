#!/bin/bash
# One process for each GPU, on as many hosts as --nodes says:
#
#     sbatch --nodes 2 export/training/slurm.sh /shared/run --epochs 50
#
# JAX reads from Slurm where process 0 is, how many there are, and which of the
# host's GPUs is its own. When one process ends, all do, and the job goes back
# into the queue: it goes on behind the last checkpoint.
#SBATCH --job-name=train-hosts
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
# A signal 120 s before the time is over, to the shell below.
#SBATCH --signal=B:USR1@120
set -euo pipefail

folder=${1:?"the folder, on a file system that all hosts share"}
shift

again() {
    # A job that was put into the queue often enough has another fault.
    if ((${SLURM_RESTART_COUNT:-0} < 20)); then
        scontrol requeue "$SLURM_JOB_ID"
    fi
}
# Not TERM, which is what `scancel` sends: a job that was cancelled stays so.
trap 'again; exit 0' USR1

# In the background: bash hears signals only between commands. Since Slurm 22.05
# srun takes the job's CPUs for each task only if it is told.
srun --kill-on-bad-exit=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" \
    python examples/train_hosts.py --folder "$folder" "$@" &
wait $! || {
    code=$?
    again
    exit "$code"
}
