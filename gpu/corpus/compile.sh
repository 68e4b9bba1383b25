#!/bin/sh
# Compiles every source of the corpus to PTX, on a machine with CUDA's compiler:
#
#	./compile.sh [OUT]
#
# writes OUT/*.ptx for sm_80; OUT is ptx beside this script unless given. The same sources are
# compiled for sm_90 and must give the same PTX except for the .target directive: corpus.Kernel.PTX
# rewrites that directive. -fmad=false leaves every fused multiply-add to the sources, so that the
# PTX defines each result bit for bit (see doc.go).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/ptx}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out" "$work/sm_80" "$work/sm_90"
for arch in sm_80 sm_90; do
	for source in "$here"/src/*.cu; do
		name=$(basename "$source" .cu)
		nvcc -std=c++17 -O3 -fmad=false -ptx -arch="$arch" -o "$work/$arch/$name.ptx" "$source" &
	done
	wait
done
failed=
rm -f "$out"/*.ptx
for source in "$here"/src/*.cu; do
	name=$(basename "$source" .cu)
	if ! [ -s "$work/sm_80/$name.ptx" ] || ! [ -s "$work/sm_90/$name.ptx" ]; then
		failed="$failed $name"
	elif ! sed 's/^\.target sm_90$/.target sm_80/' "$work/sm_90/$name.ptx" | cmp -s "$work/sm_80/$name.ptx" -; then
		echo "compile.sh: $name differs between sm_80 and sm_90 in more than .target" >&2
		failed="$failed $name"
	else
		cp "$work/sm_80/$name.ptx" "$out/$name.ptx"
	fi
done
if [ -n "$failed" ]; then
	echo "compile.sh: no PTX for$failed" >&2
	exit 1
fi
