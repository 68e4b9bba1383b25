#!/usr/bin/env bash
# Compares the forms on this machine's GPU: run.sh VGPUCTL [RUNS [EVICTIONS]], where
# VGPUCTL is the built command line. After this project's forms it measures the papers'
# ways to read the evict word, with fewer runs since they take long: by all threads, from
# host memory, and through a proxy. It needs nvcc and a GPU of compute capability 9.0.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
vgpuctl=$(realpath "$1") runs=${2:-15} evictions=${3:-40}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
nvcc -O2 -std=c++17 -o "$work/runner" "$here/runner.cu" -lcuda
measure() { # WORD READERS KERNELS RUNS EVICTIONS [WORD]
	rm -f "$work"/*.ptx
	for k in $3; do
		sed 's/^\.target sm_80$/.target sm_90/' "$here/../../../../gpu/corpus/ptx/$k.ptx" >"$work/$k.original"
		"$vgpuctl" ptx transform "$work/$k.original" --word "$1" --readers "$2" -o "$work/$k.ptx" >/dev/null
	done
	echo "word: $1, readers: $2"
	"$work/runner" "$work" "${@:4}"
}
all="vecadd stencil matmul nbody"
measure device one "$all" "$runs" "$evictions"
measure device all "$all" 3 5 device
measure proxy one "$all" 3 5 proxy
measure proxy all "$all" 3 5 proxy
measure host one "$all" 1 3 host
measure host all "matmul nbody" 1 3 host # each of the others would take minutes
