#!/usr/bin/env bash
# Runs one step of `make test` and prints how long it took.
#
#   step.sh NAME COMMAND [ARGUMENT ...]
#
# Exits as the command did.
set -uo pipefail

name=$1
shift
echo "==> $name"
start=$SECONDS
"$@"
code=$?
if [ "$code" -eq 0 ]; then
	echo "<== $name: ok in $((SECONDS - start)) s"
else
	echo "<== $name: FAILED (exit status $code) after $((SECONDS - start)) s; run it alone with: make $name"
fi
exit "$code"
