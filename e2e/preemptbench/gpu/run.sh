#!/usr/bin/env bash
# Compares the forms on this machine's GPU: run.sh DIR [RUNS [EVICTIONS]], where DIR
# has vecadd.ptx, stencil.ptx, matmul.ptx and nbody.ptx, transformed:
#   for k in vecadd stencil matmul nbody; do
#       vgpuctl ptx transform e2e/kernels/ptx/sm_90/$k.ptx -o DIR/$k.ptx
#   done
# It needs nvcc and a GPU of compute capability 9.0.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
runner=$(mktemp)
trap 'rm -f "$runner"' EXIT
nvcc -O2 -std=c++17 -o "$runner" "$here/runner.cu" -lcuda
"$runner" "$1" "${2:-15}" "${3:-40}"
