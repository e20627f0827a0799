#!/usr/bin/env bash
# Installs the Debian packages that a real node needs (test/cluster, make demo), those that are missing, and nothing they recommend.
#
# The node runs its own containerd in private namespaces, and the tests their own haproxy; the host's must not run. Debian's packages enable and start
# them where systemd is at work, so those that this script brought in are disabled and stopped again. What was there before is left alone.
set -euo pipefail

# what to look for | the package that has it. A file, not a package name: Docker's containerd.io serves as well as Debian's containerd.
needed="containerd|containerd
runc|runc
ip|iproute2
nft|nftables
/usr/lib/cni/bridge|containernetworking-plugins
haproxy|haproxy"

PATH=$PATH:/usr/sbin:/sbin
missing=()
while IFS='|' read -r file package; do
	if ! command -v "$file" >/dev/null; then missing+=("$package"); fi
done <<<"$needed"
if [ ${#missing[@]} -eq 0 ]; then exit; fi

if ! command -v apt-get >/dev/null; then
	echo "system packages: missing ${missing[*]}, and this is no Debian system (no apt-get). Install what corresponds to these Debian packages by hand; the CNI plugins go into /usr/lib/cni. Then run the command again." >&2
	exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
	echo "system packages: missing ${missing[*]}, and installing needs root. Run: sudo apt-get install --no-install-recommends ${missing[*]}" >&2
	exit 1
fi

echo "system packages: installing ${missing[*]} ..." >&2
start=$SECONDS
export DEBIAN_FRONTEND=noninteractive
if ! { apt-get update -qq && apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null; } </dev/null >&2; then
	echo "system packages: apt-get failed, its message is above. Check that the Debian mirror is reachable and that no other apt-get runs, then run the command again." >&2
	exit 1
fi
for service in containerd haproxy; do
	if [[ " ${missing[*]} " = *" $service "* ]] && [ -d /run/systemd/system ]; then
		systemctl disable --now --quiet "$service.service"
		echo "system packages: stopped and disabled the $service service that came with the package; the tests run their own." >&2
	fi
done
echo "system packages: installed in $((SECONDS - start)) s" >&2
