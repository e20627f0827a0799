#!/usr/bin/env bash
# Runs Gateway API's conformance suite with hypergate and with an istiod in the guest, and compares both (see
# test/conformance). Needs root.
#
#   SETS    what runs, one after the other (standard tls)
#   SIDES   where istiod runs (split in-guest); with one of them, nothing is compared
#   RUN     names of tests, separated by commas (all)
#   UPDATE  1 writes the reports into docs/conformance; it needs all tests
#
# Results and logs are in bin/conformance. A test that fails does not end the script: it fails if the split loses a
# test, if a test fails that is not known to fail, and if the suite did not reach its end.
set -euo pipefail
cd "$(dirname "$0")/.."

sets=${SETS:-standard tls}
sides=${SIDES:-split in-guest}
out=$PWD/bin/conformance
if [ "$(id -u)" -ne 0 ]; then
	echo "conformance: NOT RUN, because this user is not root. The suite needs real nodes." >&2
	exit 1
fi
if [ "${UPDATE:-}" = 1 ] && [ -n "${RUN:-}" ]; then
	echo "conformance: UPDATE=1 needs all tests; leave RUN out" >&2
	exit 2
fi
mkdir -p "$out"
code=0

# run SET SIDE runs the suite once.
run() {
	local file=$out/$1-$2
	rm -f "$file".{json,yaml,log}
	echo "==> $1, $2 (log: ${file#"$PWD"/}.log)"
	# Failed tests are judged below. Without results, the run itself has failed.
	MODULE=test/conformance hack/e2e.sh -v -run '^TestConformance$' . -args -set="$1" -side="$2" -tests="${RUN:-}" -out="$out" \
		-hypergate-version="$(git describe --tags --exact-match 2>/dev/null || echo unreleased)" 2>&1 |
		tee "$file.log" | { grep --line-buffered -E '^=== RUN +TestConformance/[^/]+$|^( {4})?--- (PASS|FAIL)' || true; } || true
	if [ ! -f "$file.json" ]; then
		echo "conformance: the suite did not start; the end of $file.log:" >&2
		tail -n 40 "$file.log" >&2
		exit 1
	fi
	if [ "${UPDATE:-}" = 1 ]; then cp "$file.yaml" docs/conformance/; fi
}

for set in $sets; do
	files=()
	for side in $sides; do
		run "$set" "$side"
		files+=("$out/$set-$side.json")
	done
	(cd test/conformance && go run ./compare "${files[@]}") || code=1
done
exit "$code"
