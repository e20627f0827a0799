#!/usr/bin/env bash
# Runs the tests repeatedly on a busy machine: no test is allowed to depend on the speed of the machine.
#
#   busy.sh [CPUS] [STEP ...]    CPUS is the number of CPUs that stress-ng keeps busy (default 4). The steps are those of
#                                make, in this order (default: unit and integration five times, e2e twice).
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v stress-ng >/dev/null; then
	echo "busy.sh: there is no stress-ng. Install it: apt-get install stress-ng" >&2
	exit 1
fi
cpus=${1:-4}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- unit unit unit unit unit integration integration integration integration integration e2e e2e

# The timeout ends stress-ng if this script was killed.
stress-ng --quiet --cpu "$cpus" --timeout 24h &
stress=$!
trap 'kill "$stress" 2>/dev/null; wait "$stress" || true' EXIT
busy() {
	if ! kill -0 "$stress" 2>/dev/null; then
		echo "busy.sh: stress-ng has ended, so the machine was not busy" >&2
		exit 1
	fi
}
# Run every test: do not use cached test results.
export GOFLAGS="${GOFLAGS:-} -count=1"
failed=
for step in "$@"; do
	busy
	hack/step.sh "$step" || failed="$failed $step"
	busy
done
if [ -n "$failed" ]; then
	echo "busy.sh: failed:$failed" >&2
	exit 1
fi
