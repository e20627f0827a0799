#!/usr/bin/env bash
# Runs the tests again and again on a busy machine: none of them may depend on how fast it is.
#
#   busy.sh [CPUS]    beside stress-ng on so many CPUs (4)
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v stress-ng >/dev/null; then
	echo "busy.sh: there is no stress-ng. Install it: apt-get install stress-ng" >&2
	exit 1
fi
# The timeout is for a machine where this script was killed.
stress-ng --quiet --cpu "${1:-4}" --timeout 24h &
stress=$!
trap 'kill "$stress" 2>/dev/null; wait "$stress" || true' EXIT
# Each run is one: nothing is taken from the cache of test results.
export GOFLAGS="${GOFLAGS:-} -count=1"
hack/step.sh --keep-going unit unit unit unit unit integration integration integration integration integration e2e e2e
