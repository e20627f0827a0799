#!/usr/bin/env bash
# Makes the files of a release in bin/release/VERSION.
#
#   release.sh VERSION IMAGE      IMAGE is without a tag
#
# It builds twice, from the checkout and from a copy of the commit in another folder, and compares the checksums of all
# files. So the files contain no time, no path and no change that is not committed. Both builds share Go's cache, which
# has each package by its content. GOCACHE=<empty folder> compiles everything.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$1 image=$2
if [[ ! $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]]; then
	echo "release: \"$version\" is not a version: make release VERSION=v0.1.0" >&2
	exit 1
fi
if [ -n "$(git status --porcelain)" ]; then
	echo "release: a release is made from a commit, and this checkout has changes: commit them, or stash them" >&2
	git status --short >&2
	exit 1
fi
unset MAKEFLAGS MAKELEVEL
# Settings of the user that would change the binaries.
export GOFLAGS= GOAMD64=v1 GOARM64=v8.0 GOEXPERIMENT= GOFIPS140=off GOWORK=off

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# make_files SOURCE BINARIES OUT builds a folder's source, and makes the files of a release from it.
make_files() {
	for arch in amd64 arm64; do
		mkdir -p "$2/$arch"
		GOOS=linux GOARCH=$arch "${MAKE:-make}" -C "$1" build VERSION="$version" BIN="$2/$arch"
	done
	(cd "$1" && go run ./hack/release -version "$version" -image "$image:$version" -binaries "$2" -out "$3")
}

out=$PWD/bin/release/$version
rm -rf "$out"
make_files "$PWD" "$work/first" "$out"
mkdir "$work/copy"
git archive HEAD | tar -x -C "$work/copy"
make_files "$work/copy" "$work/second" "$work/out" >"$work/log"
if ! diff "$out/SHA256SUMS" "$work/out/SHA256SUMS" >&2; then
	echo "release: two builds of the same commit differ in the files above" >&2
	rm -rf "$out"
	exit 1
fi
echo "Two builds are equal. The files are in bin/release/$version."
