#!/usr/bin/env bash
# Gets what `make test-operators` needs: Prometheus with promtool, and Chromium without a
# window. All of it comes from Debian's packages and is unpacked under a directory of its
# own. Nothing is installed; root isn't needed.
#
# The directory is $VGPUD_OPERATORS_DEPS, or vgpud/operators in the user's cache:
#
#   manifest     every package's name, version, SHA-256 and file
#   debs/        those files
#   root/        the packages, unpacked
#   libs/        links to root's shared libraries, without the C library: the
#                LD_LIBRARY_PATH of root's programs
#   fonts.conf   fontconfig's configuration, for root's fonts alone
#   bin/         prometheus, promtool and chromium, which run root's programs
#
# root's programs run by the machine's own dynamic linker and C library, which must be at
# least Debian 12's (glibc 2.36): Chromium starts itself anew by /proc/self/exe, so it can't
# run by root's.
#
# Every run checks the packages by digest, and unpacks them again only where what is there
# is not from them.
#
#   VGPUD_DEBIAN_MIRROR   use this archive, and no other
set -eEuo pipefail
cd "$(dirname "$0")/.."
trap 'say "line $LINENO: $BASH_COMMAND: exit status $?"' ERR

deps=${VGPUD_OPERATORS_DEPS:-${XDG_CACHE_HOME:-${HOME:?neither VGPUD_OPERATORS_DEPS nor HOME is set}/.cache}/vgpud/operators}

suites=(bookworm)
packages=(
	prometheus
	chromium-headless-shell fonts-inter fonts-dejavu-core fontconfig-config
)

. scripts/debian.sh

wish="# ${suites[*]}: ${packages[*]}"

# wrapper writes bin/$2, which runs root's program $3.
wrapper() {
	cat >"$1/bin/$2" <<-END
		#!/bin/sh
		dir=\$(cd "\${0%/*}/.." && pwd)
		export LD_LIBRARY_PATH="\$dir/libs:\$dir/root/usr/lib/x86_64-linux-gnu/pulseaudio" FONTCONFIG_FILE="\$dir/fonts.conf"
		exec "\$dir/root/$3" "\$@"
	END
	chmod +x "$1/bin/$2"
}

# unpack fills $1 with root/, libs/, bin/, fonts.conf and unpacked from debs/.
unpack() {
	local dir=$1 root=$1/root c_library
	say "unpacking $(grep -vc '^#' "$deps/manifest") packages"
	tail -n +2 "$deps/manifest" | awk '{ print $4 }' | unpack_debs "$root"

	# The C library and what belongs to it is the machine's.
	mkdir "$dir/libs" "$dir/bin"
	c_library=$(dpkg-deb --fsys-tarfile "$(file libc6)" | tar -t | sed -n 's|.*/\([^/]*\.so[^/]*\)$|\1|p' | sort -u)
	(
		cd "$root/usr/lib/x86_64-linux-gnu"
		find . -maxdepth 1 -name '*.so.*' -printf '%f\n' | grep -vxF "$c_library" | LC_ALL=C sort
	) | while read -r name; do
		ln -s "../root/usr/lib/x86_64-linux-gnu/$name" "$dir/libs/$name"
	done
	cat >"$dir/fonts.conf" <<-'END'
		<?xml version="1.0"?>
		<!DOCTYPE fontconfig SYSTEM "urn:fontconfig:fonts.dtd">
		<fontconfig>
		  <dir prefix="relative">root/usr/share/fonts</dir>
		  <cachedir prefix="xdg">fontconfig</cachedir>
		  <alias><family>system-ui</family><prefer><family>Inter</family></prefer></alias>
		  <alias><family>sans-serif</family><prefer><family>Inter</family></prefer></alias>
		  <alias><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>
		</fontconfig>
	END
	wrapper "$dir" prometheus usr/bin/prometheus
	wrapper "$dir" promtool usr/bin/promtool
	wrapper "$dir" chromium usr/lib/chromium/chromium-headless-shell
	check "$dir"
	recipe >"$dir/unpacked"
}

# check has each program of $1 show its version.
check() {
	local program
	for program in prometheus promtool chromium; do
		"$1/bin/$program" --version >"$1/log" 2>&1 || {
			cat "$1/log" >&2
			die "$program of Debian's ${suites[0]} doesn't run here: is this machine's C library older than 2.36?"
		}
	done
	rm "$1/log"
}

claim "these packages are"
provide root libs bin fonts.conf
