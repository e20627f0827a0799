#!/usr/bin/env bash
# Shows the pages of `hypergate status -o html` and `hypergate fleet -o html` in a real browser, for people to look at:
# wide and narrow, light and dark, and in print. The pages are the golden files of pkg/webpage. docs-status.png and
# docs-fleet.png are for docs/images: copy them if the pages have changed.
#
# Usage: hack/screenshots.sh [folder]. Needs chromium and pdftoppm (Debian: chromium, poppler-utils).
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-bin/screenshots}
pages=(ok degraded rolling paused silent hostile fleet)

for tool in chromium pdftoppm; do
	command -v "$tool" >/dev/null || { echo "screenshots: $tool is missing: apt-get install chromium poppler-utils" >&2; exit 1; }
done
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# browser runs chromium with a new profile. Nothing is loaded from a network.
browser() {
	local profile
	profile=$(mktemp -d "$work/profile.XXXX")
	timeout 120 chromium --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking \
		--disable-component-update --disable-sync --hide-scrollbars --user-data-dir="$profile" "$@" >"$work/log" 2>&1 || {
		cat "$work/log" >&2
		exit 1
	}
}

# frame writes a page that shows another one with a width. A window of the browser cannot be as narrow as a phone.
frame() {
	echo "<!DOCTYPE html><html style='color-scheme: light dark'><body style='margin:0'>" \
		"<iframe src='file://$1' style='border:0;display:block' width='$2' height='$3'></iframe></body></html>"
}

for page in "${pages[@]}"; do
	file=$PWD/pkg/webpage/testdata/$page.html
	for size in 1280x1000 390x1700; do
		width=${size%x*} height=${size#*x}
		frame "$file" "$width" "$height" >"$work/frame.html"
		for scheme in dark=0 light=1; do
			browser --blink-settings="preferredColorScheme=${scheme#*=}" --window-size="$((width < 500 ? 500 : width)),$height" \
				--screenshot="$PWD/$out/$page-$width-${scheme%=*}.png" "file://$work/frame.html"
		done
	done
	browser --no-pdf-header-footer --print-to-pdf="$work/print.pdf" "file://$file"
	pdftoppm -png -r 70 -f 1 -l 1 -singlefile "$work/print.pdf" "$out/$page-print"
done

# picture writes a picture of a page for the documentation: page, scheme, size, file.
picture() {
	browser --blink-settings="preferredColorScheme=$2" --window-size="$3" --screenshot="$PWD/$out/$4" \
		"file://$PWD/pkg/webpage/testdata/$1.html"
}
picture degraded 1 1000,940 docs-status.png
picture fleet 0 1000,560 docs-fleet.png
ls "$out"
