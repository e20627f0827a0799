#!/usr/bin/env bash
# Builds the developer tools from tools/go.mod, once.
#
#   build.sh          build those that are not there yet; print nothing but progress on stderr
#   build.sh --dir    print the folder that they are in, and build nothing
#
# The folder is outside the checkout, named by a hash over the module files, the Go version and this script, so that a clean checkout of
# the same versions builds nothing. `go tool` would link golangci-lint again whenever Go's own cache was trimmed.
set -euo pipefail
cd "$(dirname "$0")"

tools="golangci-lint|github.com/golangci/golangci-lint/v2/cmd/golangci-lint"

key=$({ cat build.sh go.mod go.sum; go env GOVERSION GOOS GOARCH; } | sha256sum | cut -c1-12)
dir=${HYPERGATE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/hypergate}/tools-$key
if [ "${1:-}" = --dir ]; then echo "$dir"; exit; fi

mkdir -p "$dir"
# Two runs at once would build the same thing twice; the second waits for the first and then finds all done.
exec 9>"$dir/.lock"
flock 9

export CGO_ENABLED=0
while IFS='|' read -r name package; do
	if [ -x "$dir/$name" ]; then continue; fi
	start=$SECONDS
	echo "tools: building $name (the first time takes minutes) ..." >&2
	if ! go build -mod=readonly -trimpath -ldflags "-s -w" -o "$dir/$name.part" "$package"; then
		echo "tools: building $name from tools/go.mod failed; the compiler's message is above. Check that the Go module proxy is reachable and that the temporary folder has 2 GB free, then run the command again." >&2
		exit 1
	fi
	mv "$dir/$name.part" "$dir/$name"
	echo "tools: built $name in $((SECONDS - start)) s" >&2
done <<<"$tools"
