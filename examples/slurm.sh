#!/usr/bin/env bash
# A run on several machines under SLURM: srun starts a process for each GPU, and the first machine is where they meet.
#
#   sbatch examples/slurm.sh --model_name_or_path MODEL --train_file train.jsonl --output_dir /shared/out
#
# Submit it where `burnish` is found (an activated environment that all machines see), with the --partition and --account
# that the cluster asks for. Numbers of machines and GPUs: below, or as options before the name of this script.
#
# Ten minutes before the time is up, SIGUSR1 comes to all processes: the step is finished and saved, and the job is queued
# again. So is it by SLURM itself when a machine fails. When a process is killed, all are started again, three times at
# most. Each of these starts goes on from the last checkpoint.
#
# One process without a GPU on each of two machines: sbatch --nodes=2 --ntasks-per-node=1 --gpus-per-node=0
# --cpus-per-task=8 examples/slurm.sh ... --use_cpu
#SBATCH --job-name=burnish
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
#SBATCH --signal=USR1@600
#SBATCH --requeue
#SBATCH --open-mode=append
set -uo pipefail

MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000)) # another for each job, since a machine may run several
SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}  # srun does not ask the job for it
OMP_NUM_THREADS=${OMP_NUM_THREADS:-$SRUN_CPUS_PER_TASK}
export MASTER_ADDR MASTER_PORT SRUN_CPUS_PER_TASK OMP_NUM_THREADS

for _ in 1 2 3 4; do
    # when one ends, the others end by themselves, after they have written what they have to
    srun --kill-on-bad-exit=0 --wait=600 burnish train "$@"
    code=$?
    case $code in
    138) scontrol requeue "$SLURM_JOB_ID" && exit $code ;; # 128 + SIGUSR1
    130 | 143) exit $code ;;                               # stopped by hand: Ctrl-C, scancel
    esac
    [ $code -lt 128 ] && exit $code # at its end, or an error that would come again; above, a process was killed
done
exit $code
