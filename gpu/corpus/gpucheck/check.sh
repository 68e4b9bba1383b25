#!/bin/sh
# Compares the references with the GPU of this machine:
#
#	check.sh GPUCHECK PTX [SEED]
#
# GPUCHECK is the built command, PTX a directory with sm_80/*.ptx and
# sm_90/*.ptx. Needs CUDA's compiler for the runner.
set -u
here=$(cd "$(dirname "$0")" && pwd)
gpucheck=$1
ptx=$2
seed=${3:-1}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
nvcc -std=c++17 -O2 -o "$work/runner" "$here/runner/runner.cu" -lcuda || exit 1
"$gpucheck" -seed "$seed" export "$work" || exit 1
for arch in sm_80 sm_90; do
	mkdir "$work/$arch"
	for file in "$ptx/$arch"/*.ptx; do
		name=$(basename "$file" .ptx)
		set --
		for case in "$work/$name".*.case; do
			out=$work/$arch/$(basename "$case" .case)
			set -- "$@" "$case" "$out.out" "$out.printed"
		done
		# A process each: after a fault nothing in the process works any more.
		timeout 60 "$work/runner" "$file" "$@" 2>"$work/log" || echo "$arch $name: runner failed"
		sed "s#^$work/#$arch #" "$work/log"
	done
done
"$gpucheck" -seed "$seed" verify "$work"
