#!/usr/bin/env bash
# Compiles every source of the corpus to PTX, with clang and this project's own headers:
#
#	./compile.sh [OUT [ARCH...]]
#
# writes OUT/*.ptx for sm_80; OUT is ptx beside this script unless given. The same sources are
# compiled for each ARCH (sm_90 unless OUT is given) and must give the same PTX except for the
# .target directive: corpus.Kernel.PTX rewrites that directive. -ffp-contract=off leaves every fused
# multiply-add to the sources, so that the PTX defines each result bit for bit (see doc.go).
#
#   VGPUD_CLANG_DEPS   where scripts/clang-deps.sh has put clang, if not in the user's cache
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/ptx}
others=("${@:2}")
[ $# -gt 0 ] || others=(sm_90)
root=$here/../..
deps=${VGPUD_CLANG_DEPS:-${XDG_CACHE_HOME:-${HOME:?neither VGPUD_CLANG_DEPS nor HOME is set}/.cache}/vgpud/clang}
export CUDA_CLANG=$deps/bin/clang++
[ -x "$CUDA_CLANG" ] || { echo "compile.sh: no $CUDA_CLANG: run make clang-deps" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$root/cmd/libcudart/tree.sh" "$work/cuda" "$work/lib"
mkdir -p "$out"
cd "$here/src"
compile() { # SOURCE ARCH
	"$work/cuda/bin/cuda-cc" -std=c++17 -O3 -ffp-contract=off --cuda-gpu-arch="$2" --cuda-feature=+ptx80 --cuda-device-only -S \
		-o "$work/$2/$(basename "$1" .cu).ptx" "$1"
}
export -f compile
export work
for arch in sm_80 "${others[@]}"; do
	mkdir "$work/$arch"
	for source in *.cu; do
		printf '%s %s\n' "$source" "$arch"
	done
done | xargs -P "$(nproc)" -n 2 bash -euc 'compile "$@"' -
for arch in "${others[@]}"; do
	for source in *.cu; do
		name=$(basename "$source" .cu)
		if ! sed "s/^\.target $arch\$/.target sm_80/" "$work/$arch/$name.ptx" | cmp -s "$work/sm_80/$name.ptx" -; then
			echo "compile.sh: $name differs between sm_80 and $arch in more than .target" >&2
			exit 1
		fi
	done
done
rm -f "$out"/*.ptx
cp "$work"/sm_80/*.ptx "$out/"
