#!/usr/bin/env bash
# Adds inputs that `make fuzz` has found to the corpora under testdata/fuzz, which `go test` runs each time. Go keeps
# inputs that reach new code in its build cache. For each fuzz test, the script takes some of all sizes up to a limit.
#
#   fuzz-corpus.sh [NUMBER] [BYTES]    at most NUMBER (12) inputs for each test, of at most BYTES (2048) each
set -euo pipefail
cd "$(dirname "$0")/.."
number=${1:-12} bytes=${2:-2048}
module=$(go list -m)
cache=$(go env GOCACHE)/fuzz

while IFS=: read -r file name; do
	package=$(dirname "$file")
	found=$cache/$module/$package/$name
	corpus=$package/testdata/fuzz/$name
	if [ ! -d "$found" ]; then
		echo "fuzz-corpus: $name in ./$package: no inputs were found yet: run \`make fuzz\` first" >&2
		continue
	fi
	mkdir -p "$corpus"
	have=$(find "$corpus" -type f | wc -l)
	find "$found" -type f -size -"$bytes"c -printf '%s %p\n' | sort -n | cut -d' ' -f2- |
		awk -v want=$((number - have)) '
			{ line[NR] = $0 }
			END { for (i = 1; i <= want && i <= NR; i++) print line[int(i * NR / (want < NR ? want : NR))] }
		' |
		xargs -r -d '\n' cp -n -t "$corpus"
	echo "fuzz-corpus: $name in ./$package: $(find "$corpus" -type f | wc -l) inputs"
done < <(grep -rEo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' pkg cmd test hack | sed 's/func //' | sort)
