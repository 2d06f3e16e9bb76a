#!/usr/bin/env bash
# Two "machines" with a network of their own between them (network namespaces), and one process on each, under torchrun.
# The process of the second machine is killed once a checkpoint is there; both machines start again and go on from it.
# Needs root and `ip` (iproute2). Run from anywhere; the last lines say how the run went:
#
#   tests/distributed/two_machines.sh FOLDER [python]
set -euo pipefail

folder=$1 python=${2:-python} name=bn$$
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export OMP_NUM_THREADS=1 TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
pids=()

finish() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    ip netns del "${name}a" 2>/dev/null || true
    ip netns del "${name}b" 2>/dev/null || true
}
trap finish EXIT

ip netns add "${name}a"
ip netns add "${name}b"
ip link add "${name}va" netns "${name}a" type veth peer name "${name}vb" netns "${name}b"
for side in a b; do
    address=$([ $side = a ] && echo 1 || echo 2)
    ip -n "$name$side" addr add "10.99.0.$address/24" dev "${name}v$side"
    ip -n "$name$side" link set "${name}v$side" up
    ip -n "$name$side" link set lo up
done

start() { # side, number of the machine
    MACHINE=$2 GLOO_SOCKET_IFNAME=${name}v$1 ip netns exec "$name$1" "$python" -m torch.distributed.run \
        --nnodes=2 --nproc_per_node=1 --max-restarts=2 --monitor-interval=0.2 --rdzv-id=burnish \
        --rdzv-backend=c10d --rdzv-endpoint=10.99.0.1:29800 --rdzv-conf="is_host=$((1 - $2))" \
        --local-addr="10.99.0.$(($2 + 1))" "$here/two_machines.py" "$folder" >"$folder/machine-$2.log" 2>&1 &
    pids+=($!)
}
mkdir -p "$folder"
start a 0
start b 1

for _ in $(seq 600); do
    compgen -G "$folder/out/checkpoint-[4-9]*" >/dev/null && break
    sleep 0.1
done
victim=$(cat "$folder/pid-1") # of the second machine: each process writes down its own
kill -9 "$victim"
echo "killed process $victim of the second machine"
for pid in "${pids[@]}"; do wait "$pid"; done
pids=()
cat "$folder/how-it-went"
