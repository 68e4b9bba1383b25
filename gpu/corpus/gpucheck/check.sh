#!/bin/sh
# Compares the references with the GPU of this machine:
#
#	check.sh GPUCHECK [SEED]
#
# GPUCHECK is the built command. It needs CUDA's compiler for the runner.
set -u
here=$(cd "$(dirname "$0")" && pwd)
gpucheck=$1
seed=${2:-1}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
nvcc -std=c++17 -O2 -o "$work/runner" "$here/runner/runner.cu" -lcuda || exit 1
"$gpucheck" -seed "$seed" export "$work" || exit 1
for arch in sm_80 sm_90; do
	for file in "$work/$arch"/*.ptx; do
		name=$(basename "$file" .ptx)
		set --
		for case in "$work/$name".*.case; do
			out=$work/$arch/$(basename "$case" .case)
			set -- "$@" "$case" "$out.out" "$out.printed"
		done
		# Each kernel has its own process: after a fault nothing in the process works any more.
		timeout 60 "$work/runner" "$file" "$@" 2>"$work/log" || echo "$arch $name: runner failed"
		sed "s#^$work/#$arch #" "$work/log"
	done
done
"$gpucheck" -seed "$seed" verify "$work"
