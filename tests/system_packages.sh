#!/bin/sh
# Installs what some tests need besides Python packages: SLURM, and network namespaces. `make test` calls it.
# Where that cannot be done (another system, not root, no network) those tests are skipped and say why.
PATH=$PATH:/usr/sbin:/sbin
absent=
for program in slurmctld slurmd srun munged ip; do
    command -v "$program" >/dev/null || absent="$absent $program"
done
[ -z "$absent" ] && exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "not installed:$absent. As root on Debian or Ubuntu this script installs them; without them tests are skipped."
    exit 0
fi
echo "installing slurmctld slurmd slurm-client munge iproute2 for the tests (absent:$absent)"
log=$(mktemp)
export DEBIAN_FRONTEND=noninteractive
if ! { timeout 120 apt-get -q update &&
       timeout 300 apt-get -q -y --no-install-recommends install slurmctld slurmd slurm-client munge iproute2; } \
       >"$log" 2>&1 </dev/null; then
    tail -n 5 "$log"
    echo "could not install them: the tests that need them are skipped"
fi
rm -f "$log"
