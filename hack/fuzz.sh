#!/usr/bin/env bash
# Runs every fuzz test of the module for a while, one after the other: `go test -fuzz` takes just one at a time.
#
#   fuzz.sh DURATION    for each test, as go test -fuzztime takes it: 10s, 1000x
set -euo pipefail
cd "$(dirname "$0")/.."

grep -rEo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' pkg cmd test hack | sed 's/func //' | while IFS=: read -r file name; do
	echo "fuzz: $name in $(dirname "$file") for $1"
	go test -run '^$' -fuzz "^$name\$" -fuzzminimizetime 20x -fuzztime "$1" "./$(dirname "$file")"
done
