#!/bin/sh
# Makes the samples in this directory, on a machine with CUDA's compiler and
# Triton: compile.sh OUT. Run it from /src/samples, since debug sections record
# where the source lay.
set -eu
out=$1
mkdir -p "$out"
nvcc -std=c++17 -O3 -ptx -arch=sm_90 -lineinfo -o "$out/lineinfo_sample_sm_90.ptx" sample.cu
nvcc -std=c++17 -O3 -ptx -arch=sm_80 -lineinfo -o "$out/lineinfo_sample_sm_80.ptx" sample.cu
nvcc -std=c++17 -G -ptx -arch=sm_90 -o "$out/debug_sample_sm_90.ptx" sample.cu
nvcc -std=c++17 -G -ptx -arch=sm_80 -o "$out/debug_sample_sm_80.ptx" sample.cu
python3 triton_samples.py "$out"
# Triton records where it was installed; that is no business of the samples.
sed -i 's#"/[^"]*/site-packages/triton/#"/usr/lib/python3/dist-packages/triton/#' "$out"/triton_*.ptx
