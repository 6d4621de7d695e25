#!/bin/sh
# Installs what some tests need besides Python packages: SLURM, network namespaces, Prometheus, a browser.
# `make test` calls it. Where that cannot be done (another system, not root, no network) those tests are skipped and say
# why.
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

absent=
for program in prometheus promtool; do
    command -v "$program" >/dev/null || absent="$absent $program"
done
if [ -n "$absent" ]; then
    install "${absent# }" "prometheus"
    # The tests start it themselves; Debian's package would have it watch this machine from now on.
    ! command -v systemctl >/dev/null || systemctl --quiet disable --now prometheus 2>/dev/null
fi

for program in chromium chromium-browser google-chrome google-chrome-stable; do
    command -v "$program" >/dev/null && exit 0
done
install "a browser" "chromium"
exit 0
