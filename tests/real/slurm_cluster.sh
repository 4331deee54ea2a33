#!/bin/bash
# slurm_cluster.sh DIR [COMMAND…]: a Slurm cluster of four nodes (n0 to n3) on this machine, for tests. Runs COMMAND with
# SLURM_CONF set, or waits for a signal or the end of its input; then stops the daemons and exits with COMMAND's code.
# Needs root and Debian's slurmctld, slurmd, slurm-client and munge. State, logs and the socket of munge are below DIR.
set -euo pipefail
dir=$(realpath "$1")
shift
mkdir -p "$dir/state" "$dir/log"
port=${SLURM_TEST_PORT:-17000}
cores=$(nproc)

pids=()
stop() {
    trap - EXIT
    # The nodes first, so that the controller does not wait for them.
    for ((i = ${#pids[@]} - 1; i >= 0; i--)); do kill "${pids[i]}" 2>/dev/null || true; done
    for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
}
trap stop EXIT

# An own munged: that of the machine may not run, and its key is not ours to read.
head -c 1024 /dev/urandom >"$dir/munge.key"
chmod 400 "$dir/munge.key"
munged --foreground --force --key-file "$dir/munge.key" --socket "$dir/munge.socket" --num-threads 2 \
    --pid-file "$dir/munged.pid" --seed-file "$dir/munged.seed" --log-file "$dir/log/munged.log" 2>>"$dir/log/munged.log" &
pids+=($!)

cat >"$dir/slurm.conf" <<END
ClusterName=test
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmctldPort=$port
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge.socket
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool.%n
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.%n.pid
SlurmctldLogFile=$dir/log/slurmctld.log
SlurmdLogFile=$dir/log/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
KillWait=30
MinJobAge=300
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=10000
NodeName=n[0-3] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[$((port + 10))-$((port + 13))] CPUs=$cores State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES OverSubscribe=FORCE:8 State=UP
END
export SLURM_CONF=$dir/slurm.conf

while [ ! -S "$dir/munge.socket" ]; do sleep 0.02; done
slurmctld -D >/dev/null 2>&1 &
pids+=($!)
for node in n0 n1 n2 n3; do
    mkdir -p "$dir/spool.$node"
    slurmd -D -N "$node" >/dev/null 2>&1 &
    pids+=($!)
done
for ((try = 0; ; try++)); do
    [ "$(sinfo --noheader --format '%D %t' 2>/dev/null)" = "4 idle" ] && break
    if [ $try -ge 300 ]; then
        sinfo --Node --long >&2 || true
        tail -n 5 "$dir"/log/*.log >&2
        exit 1
    fi
    sleep 0.1
done

if [ $# -gt 0 ]; then
    code=0
    "$@" || code=$?
    exit "$code"
fi
echo ready
trap exit TERM INT
read -r _ || true
