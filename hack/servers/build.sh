#!/usr/bin/env bash
# Builds the servers that the tests and the demo run (etcd, kube-apiserver, istiod, ...) from their Go modules, once.
#
#   build.sh [NAME ...]    build these (default: all) unless they are already there; print nothing but progress on stderr
#   build.sh --dir         print the folder that they are in, and build nothing
#
# The folder is outside the checkout, named by a hash over the module files, the Go version and this script, so that a clean checkout of
# the same versions builds nothing. CGO_ENABLED=0 throughout: the binaries go into images made from scratch, and one setting means that
# shared packages compile once. Where KUBEBUILDER_ASSETS is set, servers found there are used instead.
set -euo pipefail
cd "$(dirname "$0")"

kubernetes_version=1.36.3
# The version that is embedded, see pkg/charts.
istio_version=$(sed -n 's/^const EmbeddedVersion = "\(.*\)"$/\1/p' ../../pkg/charts/source.go)
# name, module folder, package, linker flags
kube_ld="-X k8s.io/component-base/version.gitVersion=v$kubernetes_version -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36"
istio_ld="-X istio.io/istio/pkg/version.buildVersion=$istio_version -X istio.io/istio/pkg/version.buildTag=$istio_version"
servers="etcd|etcd|go.etcd.io/etcd/server/v3|
kube-apiserver|kubernetes|k8s.io/kubernetes/cmd/kube-apiserver|$kube_ld
kube-controller-manager|kubernetes|k8s.io/kubernetes/cmd/kube-controller-manager|$kube_ld
kube-scheduler|kubernetes|k8s.io/kubernetes/cmd/kube-scheduler|$kube_ld
kubelet|kubernetes|k8s.io/kubernetes/cmd/kubelet|$kube_ld
kube-proxy|kubernetes|k8s.io/kubernetes/cmd/kube-proxy|$kube_ld
coredns|coredns|.|
pilot-discovery|istiod|istio.io/istio/pilot/cmd/pilot-discovery|$istio_ld"

key=$({ cat build.sh ./*/go.mod ./*/*.go; echo "$istio_version"; go env GOVERSION GOOS GOARCH; } | sha256sum | cut -c1-12)
dir=${HYPERGATE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/hypergate}/servers-$key
if [ "${1:-}" = --dir ]; then echo "$dir"; exit; fi

mkdir -p "$dir"
# Two runs at once would build the same thing twice; the second waits for the first and then finds all done.
exec 9>"$dir/.lock"
flock 9

export CGO_ENABLED=0
while IFS='|' read -r name module package ldflags; do
	if [ $# -gt 0 ] && ! printf '%s\n' "$@" | grep -qx "$name"; then continue; fi
	if [ -x "$dir/$name" ]; then continue; fi
	if [ -n "${KUBEBUILDER_ASSETS:-}" ] && [ -x "$KUBEBUILDER_ASSETS/$name" ]; then
		continue # the tests look there first
	fi
	start=$SECONDS
	echo "servers: building $name (the first time takes minutes) ..." >&2
	if ! (cd "$module" && go build -mod=readonly -trimpath -ldflags "-s -w $ldflags" -o "$dir/$name.part" "$package"); then
		echo "servers: building $name from hack/servers/$module failed; the compiler's message is above. Check that the Go module proxy is reachable and that /tmp has 2 GB free, then run the command again." >&2
		exit 1
	fi
	mv "$dir/$name.part" "$dir/$name"
	echo "servers: built $name in $((SECONDS - start)) s" >&2
done <<<"$servers"
