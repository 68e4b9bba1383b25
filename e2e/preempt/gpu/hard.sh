#!/usr/bin/env bash
# Runs the kernels of e2e/preempt/hard on this machine's GPU, evicted at random:
#
#	hard.sh VGPUCTL EXPORT [SEED [GENERATED]]
#
# VGPUCTL is the built command line, EXPORT the built program beside this file. Each
# kernel written by hand, and so many generated ones (200), are transformed, assembled
# and run five times in each form; memory must be what the original leaves on this
# GPU, where it leaves the same each time. It needs CUDA's compiler and assembler and a GPU of compute capability 9.0 or
# newer.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
vgpuctl=$(realpath "$1") export=$(realpath "$2") seed=${3:-1} generated=${4:-200}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export vgpuctl work seed
nvcc -std=c++17 -O2 -o "$work/runner" "$here/runner.cu" -lcuda
"$export" -from "$seed" -generated "$generated" "$work"

assemble() {
	ptxas -arch=sm_90 -o /dev/null "$1" 2>/dev/null || { echo "refused as it is: $(basename "$1")"; exit 0; }
	"$vgpuctl" ptx transform "$1" -o "$1.out" >/dev/null
	ptxas -arch=sm_90 -o "${1%.ptx}.cubin" "$1.out" || { echo "refused transformed: $(basename "$1")"; exit 1; }
}
perform() {
	timeout 120 "$work/runner" "$forms" "$seed" -same "$@" 2>"$work/log.$$" || { sed "/^sum/d; s#^$work/##" "$work/log.$$"; exit 1; }
}
export -f assemble perform
failed=0
find "$work" -name '*.ptx' -print0 | xargs -0 -P "$(nproc)" -I{} bash -c 'assemble {}' || failed=1
echo "assembled: $(find "$work" -name '*.cubin' | wc -l) of $(find "$work" -name '*.ptx' | wc -l) files"

# FORM:GROUP:EVERY, as runner.cu has them.
forms=1:1:1,2:1:1,2:3:1,2:32:1,4:1:2,4:5:1
export forms
# Some in a process: after a fault nothing in it works any more, and starting one takes long.
for cubin in "$work"/*.cubin; do
	for case in "${cubin%.cubin}".[0-9]*.case; do
		printf '%s\0%s\0' "$cubin" "$case"
	done
done | xargs -0 -P 8 -n 32 bash -c 'perform "$@"' perform || failed=1
for form in ${forms//,/ }; do
	echo "form $form (form:group:every): $(cat "$work"/log.* | awk -v form="$form" '$1 == "sum" && $2 == form {l += $3; e += $4; o += $5}
		END {print l + 0 " launches, " e + 0 " evictions, " o + 0 " originals"}')"
done
exit $failed
