#!/bin/bash
# Runs a command as Slurm's user on two nodes that are made for it: slurm.sh NTASKS COMMAND...
# To be started by `unshare -n -m -p -f --mount-proc`: everything here, daemons and files, ends with it.
set -e
place=$(mktemp -d /tmp/slurm.XXXXXX)
# Daemons may still write there: again for two seconds, and never what decides the status.
clear_up() {
  for _ in $(seq 20); do
    rm -rf "$place" 2>/dev/null && return
    sleep 0.1
  done
  return 0
}
trap clear_up EXIT
mount -t tmpfs tmpfs /run
ip link set lo up
ip addr add 127.0.0.2/8 dev lo
printf '127.0.0.1 localhost node1 %s\n127.0.0.2 node2\n' "$(hostname)" >"$place/hosts"
mount --bind "$place/hosts" /etc/hosts
mkdir -p /run/munge "$place/state" "$place/spool1" "$place/spool2"
dd if=/dev/urandom of="$place/key" bs=64 count=1 status=none
chmod 400 "$place/key"
munged --force --key-file="$place/key" --socket=/run/munge/munge.socket.2 --pid-file="$place/munged.pid" \
  --log-file="$place/munged.log" --seed-file="$place/seed"
cat >"$place/slurm.conf" <<END
ClusterName=trial
SlurmctldHost=$(hostname)(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=/run/munge/munge.socket.2
CredType=cred/munge
StateSaveLocation=$place/state
SlurmdSpoolDir=$place/%n
SlurmctldPidFile=$place/slurmctld.pid
SlurmdPidFile=$place/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_interval=1
MpiDefault=none
ReturnToService=2
NodeName=node1 NodeAddr=127.0.0.1 Port=17001 CPUs=4 RealMemory=1000 State=UNKNOWN
NodeName=node2 NodeAddr=127.0.0.2 Port=17002 CPUs=4 RealMemory=1000 State=UNKNOWN
PartitionName=all Nodes=node[1-2] Default=YES MaxTime=INFINITE State=UP
END
export SLURM_CONF=$place/slurm.conf
slurmctld -L "$place/slurmctld.log" -i
for node in node1 node2; do slurmd -N $node -L "$place/$node.log"; done
for _ in $(seq 100); do
  [ "$(sinfo -h -t idle -o %D 2>/dev/null)" = 2 ] && break
  sleep 0.1
done
status=0
srun "$@" || status=$?
[ $status = 0 ] || tail -n 5 "$place"/*.log >&2
exit $status
