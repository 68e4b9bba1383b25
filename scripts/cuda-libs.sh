#!/bin/sh
# Builds the libraries that CUDA programs load into a folder: scripts/cuda-libs.sh DIR
set -eu
dir=$1
here=$(cd "$(dirname "$0")/.." && pwd)
cc=${CC:-gcc}
command -v "$cc" >/dev/null || { echo "no C compiler ($cc): the CUDA libraries need one" >&2; exit 1; }
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
cd "$here"
# A program may have the old files open: new ones take their places.
new=$dir/.new.$$
trap 'rm -rf "$new"' EXIT
mkdir "$new"
${GO:-go} build -buildmode=c-shared -ldflags='-s -w' -o "$new/libvgpucuda.so" ./cmd/libcuda
"$cc" -shared -fPIC -O2 -g -Wall -Wextra -Werror -fvisibility=hidden -Icmd/libcuda/include \
	-Wl,-soname,libcuda.so.1 -Wl,-z,defs -o "$new/libcuda.so.1" cmd/libcuda/front/*.c -ldl -lpthread
mv "$new/libvgpucuda.so" "$new/libcuda.so.1" "$dir"
ln -sf libcuda.so.1 "$dir/libcuda.so"
