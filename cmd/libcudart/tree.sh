#!/usr/bin/env bash
# Puts a CUDA installation together from vgpud's parts, in the form that clang's --cuda-path and build
# systems expect:
#
#   DIR/bin      cuda-cc, and what clang calls
#   DIR/include  headers
#   DIR/lib64    a link to LIB, where the libraries are
#
# usage: tree.sh DIR LIB
set -euo pipefail
dir=$(realpath -m "${1:?directory}") lib=$(realpath -m "${2:?directory of the libraries}")
cd "$(dirname "$0")"
mkdir -p "$dir/bin"
new=$dir/.include.$$
trap 'rm -rf "$new"' EXIT
cp -r include "$new"
cp ../libcuda/include/*.h "$new/"
rm -rf "$dir/include"
mv "$new" "$dir/include"
install -m 755 toolchain/* "$dir/bin/"
CGO_ENABLED=0 "${GO:-go}" build -o "$dir/bin/mkfatbin" ../../guestagent/fatbin/mkfatbin
ln -sfn "$(realpath -m --relative-to="$dir" "$lib")" "$dir/lib64"
