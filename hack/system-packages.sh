#!/usr/bin/env bash
# Installs the missing Debian packages that a real node needs (test/cluster, make demo), without recommended packages.
#
# The node runs its own containerd in private namespaces, and the tests run their own haproxy. The services of the host
# must not run. On a host with systemd, Debian's packages enable and start them. The script therefore disables and stops
# the services of the packages that it installed. It does not change services that existed before.
set -euo pipefail

# Format: file | package that contains it. The script checks for files, not packages, because Docker's containerd.io
# also provides containerd.
needed="containerd|containerd
runc|runc
ip|iproute2
nft|nftables
/usr/lib/cni/bridge|containernetworking-plugins
haproxy|haproxy
curl|curl"

PATH=$PATH:/usr/sbin:/sbin
missing=()
while IFS='|' read -r file package; do
	if ! command -v "$file" >/dev/null; then missing+=("$package"); fi
done <<<"$needed"
if [ ${#missing[@]} -eq 0 ]; then exit; fi

if ! command -v apt-get >/dev/null; then
	echo "system packages: missing ${missing[*]}, and this is not a Debian system (no apt-get). Install what" \
		"corresponds to these Debian packages by hand; the CNI plugins go into /usr/lib/cni. Then run the command again." >&2
	exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
	echo "system packages: missing ${missing[*]}, and installing needs root." \
		"Run: sudo apt-get install --no-install-recommends ${missing[*]}" >&2
	exit 1
fi

echo "system packages: installing ${missing[*]} ..." >&2
start=$SECONDS
export DEBIAN_FRONTEND=noninteractive
if ! { apt-get update -qq && apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null; } </dev/null >&2; then
	echo "system packages: apt-get failed, its message is above. Check that the Debian mirror is reachable and that no" \
		"other apt-get runs, then run the command again." >&2
	exit 1
fi
for service in containerd haproxy; do
	if [[ " ${missing[*]} " = *" $service "* ]] && [ -d /run/systemd/system ]; then
		systemctl disable --now --quiet "$service.service"
		echo "system packages: stopped and disabled the $service service that came with the package; the tests run their own." >&2
	fi
done
echo "system packages: installed in $((SECONDS - start)) s" >&2
