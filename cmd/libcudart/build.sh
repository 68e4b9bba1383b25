#!/usr/bin/env bash
# Builds libcudart.so.11.0, .12 and .13 from one source into the directory given, or those of them
# that are named after it.
#
#   CC, CFLAGS   the C compiler and its options
set -euo pipefail
out=$(realpath -m "${1:?directory}")
cd "$(dirname "$0")"
mkdir -p "$out"
shift
wanted=" ${*:-libcudart.so.11.0 libcudart.so.12 libcudart.so.13} "
build() {
	local version=$1 soname=$2
	[[ $wanted == *" $soname "* ]] || return 0
	# shellcheck disable=SC2086 # options are words
	${CC:-gcc} -std=gnu11 -O2 -g -Wall -Wextra -Wno-missing-field-initializers ${CFLAGS:-} \
		-fPIC -fvisibility=hidden -shared -DCUDART_VERSION="$version" \
		-Iinclude -I../libcuda/include ./*.c -o "$out/.$soname.$$" \
		-Wl,-soname,"$soname" -Wl,--version-script="cudart-$((version / 1000)).map" -Wl,-z,defs -pthread -ldl
	mv "$out/.$soname.$$" "$out/$soname"
}
build 11080 libcudart.so.11.0
build 12090 libcudart.so.12
build 13000 libcudart.so.13
if [[ -e $out/libcudart.so.12 ]]; then
	ln -sf libcudart.so.12 "$out/libcudart.so"
fi
