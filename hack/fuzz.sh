#!/usr/bin/env bash
# Runs every fuzz test of the module, one after the other, because `go test -fuzz` accepts only one at a time. Prints
# the number of executions of each test, and the total. A failure ends the run, and go test prints the file under
# testdata/fuzz that reproduces it.
#
#   fuzz.sh DURATION    for each test, in the format of go test -fuzztime: 10s, 1000x
#
# FUZZ_FLAGS are passed to go test. For example, FUZZ_FLAGS=-parallel=1 uses only one processor.
set -euo pipefail
cd "$(dirname "$0")/.."
log=$(mktemp)
trap 'rm -f "$log"' EXIT

total=0 targets=0
while IFS=: read -r file name; do
	package=./$(dirname "$file")
	# shellcheck disable=SC2086 # several flags
	if ! go test -run '^$' -fuzz "^$name\$" -fuzzminimizetime 20x -fuzztime "$1" ${FUZZ_FLAGS:-} "$package" >"$log" 2>&1; then
		# When the time is over, Go 1.26 can fail with this line alone and without an input (golang/go#75804).
		if ! grep -qx '    context deadline exceeded' "$log" || grep -q 'Failing input' "$log"; then
			cat "$log"
			echo "fuzz: $name in $package found something" >&2
			exit 1
		fi
	fi
	count=$(sed -n 's/.*execs: \([0-9]*\).*/\1/p' "$log" | tail -n 1)
	printf 'fuzz: %-16s %-18s %12d executions\n' "$name" "$package" "${count:-0}"
	total=$((total + ${count:-0})) targets=$((targets + 1))
done < <(grep -rEo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' pkg cmd test hack | sed 's/func //' | sort)
echo "fuzz: $targets tests, $total executions in all"
