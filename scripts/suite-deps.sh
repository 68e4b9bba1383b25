#!/usr/bin/env bash
# Gets what `make test-cuda` needs: GCC with its offload compiler for nvptx, Halide, and
# the sources of their tests. All of it comes from Debian's packages and is unpacked
# under a directory of its own. Nothing is installed; root isn't needed.
#
# The directory is $VGPUD_SUITE_DEPS, or vgpud/suites in the user's cache:
#
#   manifest     every package's name, version, SHA-256 and file
#   debs/        those files
#   root/        the packages, unpacked
#   libs/        links to root's shared libraries, without the C library: the
#                LD_LIBRARY_PATH of root's programs, and of what they compiled
#   src/gcc      libgomp's tests, and what they include
#   src/halide   Halide's tests, tutorials and apps
#
# root's programs run by the machine's own dynamic linker and C library, which must
# be at least Debian 12's (glibc 2.36), and with --sysroot=root compilers use root's
# headers and libraries alone. So the machine needs no compiler of its own.
#
# Every run checks the packages by digest, and unpacks them again only where what is
# there is not from them.
#
#   VGPUD_DEBIAN_MIRROR   use this archive, and no other
set -eEuo pipefail
cd "$(dirname "$0")/.."
trap 'say "line $LINENO: $BASH_COMMAND: exit status $?"' ERR

deps=${VGPUD_SUITE_DEPS:-${XDG_CACHE_HOME:-${HOME:?neither VGPUD_SUITE_DEPS nor HOME is set}/.cache}/vgpud/suites}

# The versions of GCC's packages, of its offload compiler and of its sources are one,
# as all are of one release.
suites=(bookworm)
packages=(
	g++-12 gfortran-12 gcc-12-offload-nvptx libgomp-plugin-nvptx1
	libhalide14-0-dev python3-halide python3-numpy python3-imageio
	libpng-dev libjpeg62-turbo-dev xz-utils
)
# Not with its dependencies: what would compile it.
alone=(gcc-12-source)
source_packages=(halide)

. scripts/debian.sh

wish="# ${suites[*]}: ${packages[*]} ${alone[*]} ${source_packages[*]}"

# fetch fills $1 with debs/ and manifest.
fetch() {
	local dir=$1
	lists "$dir"
	say "downloading the closure of ${packages[*]}, and the sources of GCC and Halide"
	if ! { apt-get install -qq -y --download-only "${packages[@]}" &&
		(cd "$dir/apt/cache/archives" && apt-get download -qq "${alone[@]}" &&
			apt-get source -qq --download-only "${source_packages[@]}"); } >"$dir/log" 2>&1; then
		cat "$dir/log" >&2
		die "packages can't be had from this archive"
	fi
	keep "$dir"
}

# unpack fills $1 with root/, libs/, src/ and unpacked from debs/.
unpack() {
	local dir=$1 root=$1/root source c_library
	say "unpacking $(grep -vc '^#' "$deps/manifest") packages"
	awk '$4 ~ /\.deb$/ && $1 !~ /-source$/ { print $4 }' "$deps/manifest" | unpack_debs "$root"

	# The C library and what belongs to it is the machine's.
	mkdir "$dir/libs"
	c_library=$(dpkg-deb --fsys-tarfile "$(file libc6)" | tar -t | sed -n 's|.*/\([^/]*\.so[^/]*\)$|\1|p' | sort -u)
	(
		cd "$root/usr/lib/x86_64-linux-gnu"
		find . -maxdepth 1 -name '*.so.*' -printf '%f\n' | grep -vxF "$c_library" | LC_ALL=C sort
	) | while read -r name; do
		ln -s "../root/usr/lib/x86_64-linux-gnu/$name" "$dir/libs/$name"
	done
	ln -s ../root/usr/lib/x86_64-linux-gnu/libHalide14.so "$dir/libs/libHalide14.so"

	mkdir -p "$dir/src/gcc" "$dir/src/halide" "$dir/source"
	dpkg-deb --fsys-tarfile "$(file gcc-12-source)" | tar -x --no-same-owner -C "$dir/source" --wildcards '*/gcc-*.tar.xz'
	source=$(find "$dir/source" -name 'gcc-*.tar.xz')
	"$root/usr/bin/xz" -dc "$source" | tar -x --no-same-owner --strip-components=1 -C "$dir/src/gcc" --wildcards \
		'*/libgomp/testsuite' '*/libgomp/*.h' '*/libgomp/config' '*/include/gomp-constants.h' \
		'*/gcc/testsuite/c-c++-common/goacc' '*/gcc/testsuite/c-c++-common/gomp' \
		'*/gcc/testsuite/g++.dg/goacc' '*/gcc/testsuite/gfortran.dg/goacc'
	rm -rf "$dir/source"
	tar -xf "$(find "$deps/debs" -name 'halide_*.orig.tar.gz')" --no-same-owner --strip-components=1 -C "$dir/src/halide" --wildcards \
		'*/test' '*/tutorial' '*/apps' '*/tools' '*/src/runtime' '*/python_bindings'

	check "$dir"
	recipe >"$dir/unpacked"
}

# check has each compiler of $1 show its version.
check() {
	local program
	for program in gcc-12 g++-12 gfortran-12; do
		LD_LIBRARY_PATH=$1/libs "$1/root/usr/bin/$program" --version >/dev/null ||
			die "$program of Debian's ${suites[0]} doesn't run here: is this machine's C library older than 2.36?"
	done
}

claim "these packages are"
provide root libs src
