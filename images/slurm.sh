#!/bin/bash
#SBATCH --job-name=digits --nodes=2 --ntasks-per-node=1 --cpus-per-task=8 --time=01:00:00
# sbatch images/slurm.sh train.py: a container on every node, by apptainer or another; not run here, where there is no Slurm.
set -euo pipefail
image=${IMAGE:-oci-archive:build/images/training.tar}
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun apptainer run --bind "$PWD:/work" "$image" launch \
  --nnodes "$SLURM_NNODES" --nproc-per-node 1 --node-rank "$SLURM_NODEID" --master-addr "$first" --master-port 29500 "$@"
