#!/bin/sh
# Compiles every source of the corpus to PTX, on a machine with CUDA's compiler:
#
#	./compile.sh [OUT]
#
# writes OUT/sm_80/*.ptx and OUT/sm_90/*.ptx; OUT is ptx beside this script unless
# given. -fmad=false leaves every fused multiply-add to the sources, so that the
# PTX defines each result bit for bit (see doc.go).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/ptx}
failed=
for arch in sm_80 sm_90; do
	mkdir -p "$out/$arch"
	rm -f "$out/$arch"/*.ptx
	for source in "$here"/src/*.cu; do
		name=$(basename "$source" .cu)
		nvcc -std=c++17 -O3 -fmad=false -ptx -arch="$arch" -o "$out/$arch/$name.ptx" "$source" &
	done
	wait
done
for source in "$here"/src/*.cu; do
	name=$(basename "$source" .cu)
	for arch in sm_80 sm_90; do
		[ -s "$out/$arch/$name.ptx" ] || failed="$failed $arch/$name"
	done
done
if [ -n "$failed" ]; then
	echo "compile.sh: no PTX for$failed" >&2
	exit 1
fi
