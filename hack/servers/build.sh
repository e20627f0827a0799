#!/usr/bin/env bash
# Builds the servers that the tests and the demo run (etcd, kube-apiserver, istiod, ...) from their Go modules, once.
#
#   build.sh               build the default servers that are not there yet; print only progress, on stderr
#   build.sh NAME ...      build these servers
#   build.sh --dir         print the folder that they are in, and build nothing
#   build.sh --list        print the names of the servers: those built by default, then the others
#
# The cache is outside the checkout. Each module has a folder <module>-<key>. The key is a hash of the module's files,
# its rows below, the Go version and the flags, so that a change of one module builds only this module's servers again.
# The folder that --dir prints is servers-<key of all modules>. It contains a symlink for each server that is built.
#
# CGO_ENABLED=0 throughout: the binaries go into images made from scratch. A package compiles once for all servers,
# hypergate and the demo: the flags are those of the Makefile's BUILD_FLAGS, and the modules require the same versions
# (TestModulesShareVersions), but for Istio's. Debug information would be stripped, and costs a tenth of the time.
# Where KUBEBUILDER_ASSETS is set, servers found there are used instead.
set -euo pipefail
cd "$(dirname "$0")"

kubernetes_version=1.36.3
# The version that is embedded, see pkg/charts.
istio_version=$(sed -n 's/^const EmbeddedVersion = "\(.*\)"$/\1/p' ../../pkg/charts/source.go)
kube=k8s.io/component-base/version
kube_ld="-X $kube.gitVersion=v$kubernetes_version -X $kube.gitMajor=1 -X $kube.gitMinor=36"
# The oldest version that a guest may have, see README.md. GUEST_KUBERNETES=1.30 selects it in tests.
oldest_ld="-X $kube.gitVersion=v1.30.14 -X $kube.gitMajor=1 -X $kube.gitMinor=30"
istio=istio.io/istio/pkg/version
istio_ld="-X $istio.buildVersion=$istio_version -X $istio.buildTag=$istio_version"
# The release before the embedded one, which hack/charts-1.28 also pins.
previous_ld="-X $istio.buildVersion=1.28.2 -X $istio.buildTag=1.28.2"
# Two development snapshots with newer versions of the Gateway API. They stand for the next minor, see test/charts.
next_ld="-X $istio.buildVersion=1.31-snapshot -X $istio.buildTag=1.31-snapshot"
later_ld="-X $istio.buildVersion=1.31-later -X $istio.buildTag=1.31-later"

# Each row is: name | when (default, or named: only if the command line names it) | module folder | package | linker
# flags | build tags, if any. Prometheus is built without its service discovery for clouds.
servers="etcd|default|etcd|go.etcd.io/etcd/server/v3|
kube-apiserver|default|kubernetes|k8s.io/kubernetes/cmd/kube-apiserver|$kube_ld
kube-controller-manager|default|kubernetes|k8s.io/kubernetes/cmd/kube-controller-manager|$kube_ld
kube-scheduler|default|kubernetes|k8s.io/kubernetes/cmd/kube-scheduler|$kube_ld
kubelet|default|kubernetes|k8s.io/kubernetes/cmd/kubelet|$kube_ld
kube-proxy|default|kubernetes|k8s.io/kubernetes/cmd/kube-proxy|$kube_ld
kube-apiserver-1.30|named|kubernetes-1.30|k8s.io/kubernetes/cmd/kube-apiserver|$oldest_ld
kube-controller-manager-1.30|named|kubernetes-1.30|k8s.io/kubernetes/cmd/kube-controller-manager|$oldest_ld
kube-scheduler-1.30|named|kubernetes-1.30|k8s.io/kubernetes/cmd/kube-scheduler|$oldest_ld
kubelet-1.30|named|kubernetes-1.30|k8s.io/kubernetes/cmd/kubelet|$oldest_ld
kube-proxy-1.30|named|kubernetes-1.30|k8s.io/kubernetes/cmd/kube-proxy|$oldest_ld
coredns|default|coredns|.|
pilot-discovery|default|istiod|istio.io/istio/pilot/cmd/pilot-discovery|$istio_ld
pilot-agent|named|istiod|istio.io/istio/pilot/cmd/pilot-agent|$istio_ld
pilot-discovery-1.28|named|istiod-1.28|istio.io/istio/pilot/cmd/pilot-discovery|$previous_ld
pilot-agent-1.28|named|istiod-1.28|istio.io/istio/pilot/cmd/pilot-agent|$previous_ld
pilot-discovery-next|named|istiod-next|istio.io/istio/pilot/cmd/pilot-discovery|$next_ld
pilot-agent-next|named|istiod-next|istio.io/istio/pilot/cmd/pilot-agent|$next_ld
pilot-discovery-later|named|istiod-later|istio.io/istio/pilot/cmd/pilot-discovery|$later_ld
sail-operator|named|origin|github.com/istio-ecosystem/sail-operator/cmd|
ingress-operator|named|origin|./ingress-operator|
proxy-server|named|konnectivity|sigs.k8s.io/apiserver-network-proxy/cmd/server|
proxy-agent|named|konnectivity|sigs.k8s.io/apiserver-network-proxy/cmd/agent|
kubectl|named|clients|./kubectl|-X $kube.gitVersion=v$kubernetes_version -X $kube.gitMajor=1 -X $kube.gitMinor=36
helm|named|clients|helm.sh/helm/v3/cmd/helm|
prometheus|named|prometheus|github.com/prometheus/prometheus/cmd/prometheus||remove_all_sd"

export CGO_ENABLED=0
flags=(-mod=readonly -trimpath -gcflags=all=-dwarf=false)
toolchain=$(go env GOVERSION GOOS GOARCH)

# key MODULE prints the key of a module's folder.
key() {
	{
		find "$1" -type f \( -name go.mod -o -name '*.go' \) -print0 | LC_ALL=C sort -z | xargs -0 cat
		grep -F "|$1|" <<<"$servers"
		echo "$toolchain" "${flags[@]}"
	} | sha256sum | cut -c1-12
}

cache=${HYPERGATE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/hypergate}
declare -A folder # of each module
for module in $(cut -d'|' -f3 <<<"$servers" | sort -u); do folder[$module]=$module-$(key "$module"); done
dir=$cache/servers-$(printf '%s\n' "${folder[@]}" | LC_ALL=C sort | sha256sum | cut -c1-12)

case ${1:-} in
--dir)
	echo "$dir"
	exit
	;;
--list)
	grep -F '|default|' <<<"$servers" | cut -d'|' -f1
	grep -vF '|default|' <<<"$servers" | cut -d'|' -f1
	exit
	;;
esac
for name; do
	if ! cut -d'|' -f1 <<<"$servers" | grep -qxF -e "$name"; then
		echo "servers: there is no server $name; build.sh --list prints the names" >&2
		exit 2
	fi
done

# build NAME MODULE PACKAGE LDFLAGS TAGS builds one server into its module's folder.
build() {
	local out=$cache/${folder[$2]}/$1 start=$SECONDS
	echo "servers: building $1 (the first time takes minutes) ..." >&2
	if ! (cd "$2" && go build "${flags[@]}" -tags "$5" -ldflags "-s -w $4" -o "$out.part" "$3"); then
		echo "servers: building $1 from hack/servers/$2 failed; the compiler's message is above. Check that the Go module" \
			"proxy is reachable and that /tmp has 2 GB free, then run the command again." >&2
		exit 1
	fi
	mv "$out.part" "$out"
	echo "servers: built $1 in $((SECONDS - start)) s, $(($(stat -c %s "$out") >> 20)) MiB" >&2
}

mkdir -p "$dir"
while IFS='|' read -r name when module package ldflags tags; do
	wanted=false
	if [ $# -eq 0 ] && [ "$when" = default ]; then wanted=true; fi
	for arg; do if [ "$arg" = "$name" ]; then wanted=true; fi; done
	# The tests look into this folder first.
	if [ -n "${KUBEBUILDER_ASSETS:-}" ] && [ -x "$KUBEBUILDER_ASSETS/$name" ]; then wanted=false; fi
	if "$wanted"; then
		mkdir -p "$cache/${folder[$module]}"
		# Two runs at once would build the same server twice. The second run waits for the first one.
		exec 9>"$cache/${folder[$module]}/.lock"
		flock 9
		if [ ! -x "$cache/${folder[$module]}/$name" ]; then build "$name" "$module" "$package" "$ldflags" "$tags"; fi
		exec 9>&-
	fi
	if [ -x "$cache/${folder[$module]}/$name" ]; then ln -sfn "../${folder[$module]}/$name" "$dir/$name"; fi
done <<<"$servers"
