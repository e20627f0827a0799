#!/usr/bin/env bash
# Runs targets of the Makefile one after the other, and prints the result and the duration of each.
#
#   step.sh [--within MINUTES] [--keep-going] TARGET ...
#
# The script stops at the first target that fails, and exits with its exit code. With --keep-going, it runs the other
# targets anyway, and exits with 1. With --within, it also fails if all targets together take longer than MINUTES. It
# checks the time after each target, so a target that can hang needs its own timeout.
set -uo pipefail

within=0
keep_going=false
while [[ "${1:-}" == --* ]]; do
	case $1 in
	--within)
		within=$((${2:?} * 60))
		shift
		;;
	--keep-going) keep_going=true ;;
	*)
		echo "step.sh: unknown option $1" >&2
		exit 2
		;;
	esac
	shift
done

rows=()
began=$(date +%s)
code=0
late=''

# row TARGET RESULT TIME adds a line to the table.
row() { rows+=("$(printf '%-18s %-8s %9s' "$1" "$2" "$3")"); }

for target in "$@"; do
	if [[ -n "$late" ]] || { [[ "$code" -ne 0 ]] && ! "$keep_going"; }; then
		row "$target" 'not run' ''
		continue
	fi
	echo "==> $target"
	start=$(date +%s)
	"${MAKE:-make}" "$target"
	got=$?
	now=$(date +%s)
	if [[ "$got" -eq 0 ]]; then
		row "$target" ok "$((now - start)) s"
		echo "<== $target: ok in $((now - start)) s"
	else
		row "$target" FAILED "$((now - start)) s"
		echo "<== $target: FAILED (exit status $got) after $((now - start)) s; run it alone with: make $target"
		code=$got
		"$keep_going" && code=1
	fi
	if [[ "$within" -gt 0 && $((now - began)) -gt "$within" ]]; then
		late=$target
	fi
done

now=$(date +%s)
echo
printf '%s\n' "${rows[@]}"
printf '%-18s %-8s %9s\n' total '' "$((now - began)) s"
if [[ -n "$late" ]]; then
	echo "step.sh: TOO LONG: $((now - began)) s when $late had ended, and all targets together may take $within s" \
		"($((within / 60)) minutes)." \
		"The table says how long each took; what need not run each time belongs to make stories." >&2
	[[ "$code" -ne 0 ]] || code=1
fi
exit "$code"
