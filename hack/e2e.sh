#!/usr/bin/env bash
# Runs the tests that need a real node, and therefore root and some Debian packages.
#
#   e2e.sh PACKAGE ...
#
# Without root, no test can run. The script then fails, because a success without the main tests would be misleading.
# ALLOW_NO_ROOT=1 turns this failure into a success.
#
# MODULE is the folder of the packages' Go module. By default, it is the main module. TRAFFIC_REPORTS is the folder for
# the reports of the load, as JSON.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ $# -eq 0 ]; then
	echo "e2e: no packages given; \`make e2e\` passes those under test/ that start a real node." \
		"If go list failed, its message is above." >&2
	exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
	echo "e2e: NOT RUN, because this user is not root. These tests start a real node (containerd, kubelet, kube-proxy) in" \
		"namespaces of its own." >&2
	cat >&2 <<-EOF
		Not run:
		$(printf '  %s\n' "$@")
		To run them:                          sudo env "PATH=\$PATH" "HYPERGATE_CACHE=\${HYPERGATE_CACHE:-\$HOME/.cache/hypergate}" make e2e
		To let \`make test\` pass without them: ALLOW_NO_ROOT=1 make test
	EOF
	[ "${ALLOW_NO_ROOT:-}" = 1 ]
	exit
fi
hack/system-packages.sh
# Run one package at a time: the tests already start two management clusters at once, and a small machine cannot run
# more.
export TRAFFIC_REPORTS=${TRAFFIC_REPORTS:-$PWD/bin/traffic}
cd "${MODULE:-.}"
exec go test -count=1 -p 1 -timeout 60m "$@"
