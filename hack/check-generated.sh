#!/usr/bin/env bash
# Fails if `make generate` changes a file, and names the files.
#
# It compares the checkout before and after `make generate`, not with the last commit. Uncommitted work is not an error.
set -euo pipefail
cd "$(dirname "$0")/.."

# state prints one line for each file that is or could be committed. For a file that is deleted but still in git's
# index, sha256sum prints an error instead of a line.
state() { git ls-files -z --cached --others --exclude-standard | xargs -0 sha256sum 2>/dev/null || true; }

before=$(state)
make --no-print-directory generate
after=$(state)
if [ "$before" = "$after" ]; then exit; fi

echo "generated files were out of date; make generate has just changed these, commit them:" >&2
diff <(echo "$before") <(echo "$after") | sed -n 's/^> [0-9a-f]*  /  /p; s/^< [0-9a-f]*  /  /p' | sort -u >&2
exit 1
