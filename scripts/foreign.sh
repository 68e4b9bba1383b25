#!/usr/bin/env bash
# Has vgpud's vfio-user server and client meet libvfio-user's tests and samples.
#
#   scripts/foreign.sh CHECKOUT [pytest's arguments]
#
# CHECKOUT is a source tree of libvfio-user, which no Debian package has. It is
# built with the C compiler into a temporary directory; what it and its tests need
# (json-c, pytest) is the machine's own, or is unpacked there from Debian's
# packages. Nothing is installed. docs/foreign-peers.md has the results.
set -euo pipefail

die() {
	echo "foreign.sh: $*" >&2
	exit 1
}

[ $# -ge 1 ] || die "usage: $0 CHECKOUT [pytest's arguments]"
lvu=$(cd "$1" && pwd)
shift
[ -f "$lvu/lib/libvfio-user.c" ] || die "$lvu is no source tree of libvfio-user"
cd "$(dirname "$0")/.."

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
root=$tmp/root
mkdir "$root"

# unpack gets Debian packages and unpacks them under $root.
unpack() {
	command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null ||
		die "this machine lacks $1, and has no apt-get and dpkg-deb to get it by"
	(cd "$tmp" && apt-get download -qq -o APT::Sandbox::User=root "$@") || die "apt-get can't get $* (is 'apt-get update' due?)"
	for deb in "$tmp"/*.deb; do
		dpkg-deb -x "$deb" "$root"
	done
	rm "$tmp"/*.deb
}

if echo '#include <json.h>' | cc -E -I/usr/include/json-c - >/dev/null 2>&1; then
	json=(-I/usr/include/json-c -ljson-c)
else
	unpack libjson-c-dev libjson-c5
	lib=$(dirname "$(find "$root" -name libjson-c.so)")
	json=("-I$root/usr/include/json-c" "-L$lib" "-Wl,-rpath,$lib" -ljson-c)
fi
if ! python3 -m pytest --version >/dev/null 2>&1; then
	unpack python3-pytest python3-pluggy python3-iniconfig python3-packaging python3-attr
fi

flags=(-std=gnu99 -g -D_GNU_SOURCE -DDEBUG "-I$lvu/include" "-I$lvu/lib")
sources=()
for s in btree dma fd_cache irq libvfio-user migration pci pci_caps tran tran_sock; do
	if [ -f "$lvu/lib/$s.c" ]; then # which of them there are differs
		sources+=("$lvu/lib/$s.c")
	fi
done
cc "${flags[@]}" -shared -fPIC -o "$tmp/libvfio-user.so" "${sources[@]}" "${json[@]}"
for s in gpio-pci-idio-16 server; do
	cc "${flags[@]}" -o "$tmp/$s" "$lvu/samples/$s.c" "${sources[@]}" "${json[@]}" -lpthread
done

# Whether the sample server of this checkout starts: some refuse their own BARs.
server=()
status=0
timeout 1 "$tmp/server" "$tmp/probe.sock" 2>"$tmp/server.log" || status=$?
if [ $status -eq 124 ]; then # it had to be ended
	server=("VGPUD_FOREIGN_SERVER=$tmp/server")
else
	echo "samples/server of this checkout does not start: $(tail -1 "$tmp/server.log")"
fi

echo "== our client against libvfio-user's samples"
env VGPUD_FOREIGN_GPIO="$tmp/gpio-pci-idio-16" ${server[@]+"${server[@]}"} \
	go test -count=1 -v -run Sample ./e2e/foreign

echo "== libvfio-user's tests against our server"
go build -o "$tmp/serve" ./e2e/foreign/serve
env VGPUD_FOREIGN_SERVE="$tmp/serve" LIBVFIO_SO_DIR="$tmp" PYTHONDONTWRITEBYTECODE=1 \
	PYTHONPATH="$PWD/e2e/foreign:$lvu/test/py:$root/usr/lib/python3/dist-packages" \
	timeout 600 python3 -m pytest -p no:cacheprovider -p vgpud_server -q -rs "$lvu/test/py" "$@"
