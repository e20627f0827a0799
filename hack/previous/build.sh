#!/usr/bin/env bash
# Builds a previous hypergate from this repository's history, once: its binary and its manifests. Stories start with it and go on with
# the current one, and back. For the tests of the tunnel, it builds a previous hypergate-tunnel alone.
#
#   build.sh NAME          build it unless it is already there; print nothing but progress on stderr
#   build.sh --dir NAME    print the folder that it is in (the program, deploy/), and build nothing
#
#   NAME           Commit
#   chart-names    the last one with the names of Istio's chart in the guest
#   own-names      the first one with hypergate's own names in the guest
#   rollouts       one that holds Gateways, and rolls them one by one
#   tunnel         the last hypergate-tunnel that sends a frame in two writes
#
# The folder is outside the checkout, named by the commit, the Go version and a hash over this script.
set -euo pipefail
cd "$(dirname "$0")"

only_dir=
program=hypergate
if [ "${1:-}" = --dir ]; then only_dir=1 && shift; fi
case ${1:-} in
chart-names) commit=43adff5e4963907d677406765f2c9db5ccc9b3c0 ;;
own-names) commit=71f4b5de531f5af2c04c09dd7625263bb72155a1 ;;
rollouts) commit=6fd1dc024e78c0b908b2ff469b24aa9589157dbe ;;
tunnel) commit=72418f2b38b67e820db586f278a539b9d603004e program=hypergate-tunnel ;;
*)
	echo "previous: there is no previous hypergate named \"${1:-}\". The names are in hack/previous/build.sh." >&2
	exit 2
	;;
esac

key=$({ cat build.sh; go env GOVERSION GOOS GOARCH; } | sha256sum | cut -c1-12)
dir=${HYPERGATE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/hypergate}/previous-${commit:0:12}-$key
if [ -n "$only_dir" ]; then echo "$dir"; exit; fi

if [ -x "$dir/$program" ]; then exit; fi
if [ "$(git rev-parse --show-toplevel 2>/dev/null)" != "$(cd ../.. && pwd -P)" ]; then
	echo "previous: this checkout has no git history, which contains the previous hypergate. Clone the repository with git, then run the command again." >&2
	exit 1
fi
if ! git cat-file -e "$commit^{commit}" 2>/dev/null; then
	next="Fetch it from a clone that has it: git fetch <remote> $commit"
	if [ "$(git rev-parse --is-shallow-repository)" = true ]; then next="This clone is shallow. Run: git fetch --unshallow"; fi
	echo "previous: the commit $commit, from which the previous hypergate is built, is not in this repository. $next" >&2
	exit 1
fi

mkdir -p "$dir"
# Two runs at once would build the same thing twice; the second waits for the first and then finds all done.
exec 9>"$dir/.lock"
flock 9
if [ -x "$dir/$program" ]; then exit; fi

start=$SECONDS
echo "previous: building $program from commit ${commit:0:12} ..." >&2
source=$(mktemp -d)
trap 'rm -rf "$source"' EXIT
git -C ../.. archive "$commit" | tar -x -C "$source"
if ! (cd "$source" && CGO_ENABLED=0 go build -mod=readonly -trimpath -buildvcs=false -ldflags '-s -w' -o "$dir/program.part" "./cmd/$program"); then
	echo "previous: building $program from commit $commit failed; the compiler's message is above. Check that the Go module proxy is reachable and that /tmp has 2 GB free, then run the command again." >&2
	exit 1
fi
rm -rf "$dir/deploy"
cp -r "$source/deploy" "$dir/deploy"
mv "$dir/program.part" "$dir/$program" # last: it says that all is there
echo "previous: built $program in $((SECONDS - start)) s" >&2
