#!/bin/bash
# Tries the README in an empty system: `make demo`, then every block of the README.
#
#   sudo tools/bare_root.sh FOLDER [SUITE [MIRROR]]
#
# SUITE is bookworm (Debian 12) or noble (Ubuntu 24.04). Needs root, the package debootstrap, a
# network and 6 GB. FOLDER is made, or used again. Signatures of Ubuntu's packages are checked if
# the host has Ubuntu's keyring. Variables of pip (PIP_*), of proxies (*_proxy) and SSL_CERT_FILE
# are passed on. COPY names files and folders that are copied to the same place in FOLDER.
set -euo pipefail
folder=${1:?usage: $0 FOLDER [SUITE [MIRROR]]}
suite=${2:-bookworm}
case $suite in
  noble) mirror=${3:-http://archive.ubuntu.com/ubuntu}; components=main,universe; family=gutsy ;;
  *) mirror=${3:-http://deb.debian.org/debian}; components=main; family=sid ;;
esac
source=$(cd "$(dirname "$0")/.." && pwd)
[ "$(id -u)" = 0 ] || { echo "$0: run it as root" >&2; exit 1; }
command -v debootstrap > /dev/null || { echo "$0: apt-get install debootstrap" >&2; exit 1; }

if [ ! -e "$folder/etc/os-release" ]; then
  # Packages that the README requires, with make and certificates, which every machine with a clone
  # has. Debian 12's debootstrap has no script for noble, but all newer suites share one script.
  debootstrap --variant=minbase --components="$components" \
    --include=make,python3,ca-certificates,g++ "$suite" "$folder" "$mirror" "$family"
fi
cp /etc/resolv.conf "$folder/etc/resolv.conf"
for path in ${COPY:-}; do
  mkdir -p "$folder$(dirname "$path")"
  cp -rT "$path" "$folder$path"
done

rm -rf "$folder/opwright"
mkdir "$folder/opwright"
(cd "$source" && git ls-files -z | xargs -0 tar c --ignore-failed-read) | tar x -C "$folder/opwright"
mountpoint -q "$folder/proc" || mount -t proc proc "$folder/proc"
trap 'umount "$folder/proc"' EXIT

kept=$(env | grep -E '^(PIP_[A-Z_]+|[a-zA-Z]+_proxy|SSL_CERT_FILE)=' || true)
mapfile -t kept <<< "$kept"
inside() {
  chroot "$folder" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
    "${kept[@]:-UNUSED=}" bash -ec "cd /opwright; $1"
}
echo "== make demo"
inside "make demo"
echo "== the README's blocks"
# Nothing else that the tests need is installed or built, as for a reader of the README.
inside ".venv/bin/python -m pip install -q pytest
  .venv/bin/python -m pytest -q tests/python/project/test_docs.py -k README"
echo "== $(. "$folder/etc/os-release"; echo "$PRETTY_NAME"): the README is true"
