#!/usr/bin/env bash
# Gets clang, with which CUDA C++ programs are compiled: for tests, and for cmd/libcudart's
# cuda-cc. It comes from Debian's packages with all that it needs to compile and link
# (headers, C library, linker), through the mirror that this machine's apt is configured
# with or Debian's own, and is unpacked under a directory of its own. Nothing is installed:
# neither dpkg nor apt's own files are touched, root isn't needed.
#
# The directory is $VGPUD_CLANG_DEPS, or vgpud/clang in the user's cache:
#
#   manifest     every package's name, version, SHA-256 and file
#   debs/        those files
#   root/        the packages, unpacked
#   bin/         clang, clang++ and ld, which run root's by root's own dynamic linker
#
# Programs are linked against bookworm's C library, so they run on what is as new.
#
# Every run checks the packages by digest and root/ against what was unpacked, and does
# again only what doesn't match: where all does, no network is used.
#
#   VGPUD_DEBIAN_MIRROR   use this archive, and no other
set -eEuo pipefail
cd "$(dirname "$0")/.."
trap 'say "line $LINENO: $BASH_COMMAND: exit status $?"' ERR

deps=${VGPUD_CLANG_DEPS:-${XDG_CACHE_HOME:-${HOME:?neither VGPUD_CLANG_DEPS nor HOME is set}/.cache}/vgpud/clang}
suites=(bookworm)
llvm=19
packages=("clang-$llvm" libstdc++-12-dev libc6-dev binutils)

. scripts/debian.sh

wish="# ${suites[*]}: ${packages[*]}"

# wrapper writes bin/$2, which runs root's program $3 with the arguments $4 first. $1 is
# where it all is.
wrapper() {
	cat >"$1/bin/$2" <<-END
		#!/bin/sh
		# Runs root's $3 by root's own dynamic linker: this machine's may be older.
		bin=\${0%/*}
		root=\$bin/../root
		run() {
			exec "\$root/usr/lib64/ld-linux-x86-64.so.2" --inhibit-cache \\
				--library-path "\$root/usr/lib/x86_64-linux-gnu:\$root/usr/lib/llvm-$llvm/lib" \\
				--argv0 "\$0" "\$root/$3" "\$@"
		}
		$4
	END
	chmod +x "$1/bin/$2"
}

# unpack fills $1 with root/, bin/ and unpacked from debs/.
unpack() {
	local dir=$1 root=$1/root name
	say "unpacking $(grep -vc '^#' "$deps/manifest") packages"
	tail -n +2 "$deps/manifest" | awk '{ print $4 }' | unpack_debs "$root"
	mkdir -p "$dir/bin"
	# The driver starts itself anew for each job, by the name that it was called by. Only
	# the driver knows the options below.
	# shellcheck disable=SC2016 # the wrapper expands it
	for name in clang clang++; do
		wrapper "$dir" $name "usr/lib/llvm-$llvm/bin/clang" "[ \"\$1\" = -cc1 ] && run \"\$@\"
		run -no-canonical-prefixes -resource-dir \"\$root/usr/lib/llvm-$llvm/lib/clang/$llvm\" --sysroot=\"\$root\" -B\"\$bin\" \"\$@\""
	done
	wrapper "$dir" ld usr/bin/x86_64-linux-gnu-ld 'run "$@"'
	"$dir/bin/clang++" --version >"$dir/log" || die "clang does not run"
	rm "$dir/log"
	listing "$dir" >"$dir/unpacked"
}

# listing says what unpack left in $1 and what it worked from, so that a later run sees
# what is missing or was changed.
listing() {
	recipe
	(
		cd "$1"
		sha256sum bin/*
		find root/usr -type d -printf '%P %m\n' -o -printf '%P %m %s %T@ %l\n' | LC_ALL=C sort | sha256sum
	)
}

unpacked_match() {
	[ -e "$deps/unpacked" ] && listing "$deps" 2>/dev/null | cmp -s - "$deps/unpacked"
}

claim "clang is"
provide root bin
