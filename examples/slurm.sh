#!/usr/bin/env bash
# A run on several machines under SLURM: one torchrun on each, which starts a process for each of its GPUs.
#
#   sbatch examples/slurm.sh --model_name_or_path MODEL --train_file train.jsonl --output_dir /shared/out
#
# SIGUSR1 comes ten minutes before the time is up: the step is finished and saved by all processes, and the job is queued
# again under the same number, by which the run knows that it goes on.
#SBATCH --job-name=burnish
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --time=24:00:00
#SBATCH --signal=B:USR1@600
#SBATCH --requeue
#SBATCH --open-mode=append
set -uo pipefail

first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
# a run that starts again must not find the addresses of processes that are gone
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=540 # seconds for the step and its checkpoint

srun --kill-on-bad-exit=0 torchrun \
    --nnodes="$SLURM_JOB_NUM_NODES" --nproc_per_node="$SLURM_GPUS_ON_NODE" --max-restarts=3 \
    --rdzv-id="$SLURM_JOB_ID" --rdzv-backend=c10d --rdzv-endpoint="$first:29500" \
    --signals-to-handle=SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1 \
    -m burnish train "$@" &
run=$!

stopped=no
stop() {
    stopped=yes
    scancel --signal=USR1 "$SLURM_JOB_ID.0"
}
trap stop USR1
wait "$run"
code=$?
if [ $stopped = yes ]; then
    wait "$run" # the first wait ended with the signal
    scontrol requeue "$SLURM_JOB_ID"
fi
exit $code
