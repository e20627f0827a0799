#!/usr/bin/env bash
# Runs the tests that need a real node, and so root and some Debian packages.
#
#   e2e.sh PACKAGE ...
#
# Without root nothing can run: it says so and fails, because a green that left out the main stories would mislead. ALLOW_NO_ROOT=1 turns
# that failure into a success, for those who know what they left out.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ $# -eq 0 ]; then
	echo "e2e: no packages given; \`make e2e\` passes those under test/ that start a real node. If go list failed, its message is above." >&2
	exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
	cat >&2 <<-EOF
		e2e: NOT RUN, because this user is not root. These tests start a real node (containerd, kubelet, kube-proxy) in namespaces of its own.
		Not run:
		$(printf '  %s\n' "$@")
		To run them:                          sudo env "PATH=\$PATH" "HYPERGATE_CACHE=\${HYPERGATE_CACHE:-\$HOME/.cache/hypergate}" make e2e
		To let \`make test\` pass without them: ALLOW_NO_ROOT=1 make test
	EOF
	[ "${ALLOW_NO_ROOT:-}" = 1 ]
	exit
fi
hack/system-packages.sh
# One package at a time: the stories start two management clusters at once already, and more want more than a small machine has.
exec go test -count=1 -p 1 -timeout 40m "$@"
