#!/bin/sh
# Installs what some tests need besides Python packages: SLURM, network namespaces, and a browser. `make test` calls it.
# Where that cannot be done (another system, not root, no network) those tests are skipped and say why.
PATH=$PATH:/usr/sbin:/sbin
export DEBIAN_FRONTEND=noninteractive

install() { # what is absent, and the packages that bring it
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        echo "not installed: $1. As root on Debian or Ubuntu this script installs them; without them tests are skipped."
        return
    fi
    echo "installing $2 for the tests (absent: $1)"
    log=$(mktemp)
    if ! { timeout 120 apt-get -q update &&
           timeout 300 apt-get -q -y --no-install-recommends install $2; } >"$log" 2>&1 </dev/null; then
        tail -n 5 "$log"
        echo "could not install them: the tests that need them are skipped"
    fi
    rm -f "$log"
}

absent=
for program in slurmctld slurmd srun munged ip; do
    command -v "$program" >/dev/null || absent="$absent $program"
done
[ -z "$absent" ] || install "${absent# }" "slurmctld slurmd slurm-client munge iproute2"
command -v jq >/dev/null || install "jq" "jq"

for program in chromium chromium-browser google-chrome google-chrome-stable; do
    command -v "$program" >/dev/null && exit 0
done
install "a browser" "chromium"
exit 0
