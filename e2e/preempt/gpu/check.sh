#!/usr/bin/env bash
# Holds the preemptible forms to NVIDIA's assembler and to this machine's GPU:
#
#	check.sh VGPUCTL GPUCHECK [SEED]
#
# VGPUCTL is the built command line, GPUCHECK the built gpu/corpus/gpucheck. Every
# kernel of the corpus is transformed and assembled; then every case is run in each
# form, evicted at random, and compared with its reference; then the kernels of
# parted.cu are compared with themselves. It needs CUDA's compiler and assembler and
# a GPU of compute capability 9.0 or newer.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
vgpuctl=$(realpath "$1") gpucheck=$(realpath "$2") seed=${3:-1}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export work
nvcc -std=c++17 -O2 -o "$work/runner" "$here/runner.cu" -lcuda
"$gpucheck" -seed "$seed" export "$work" # the cases, and the PTX for each architecture
for arch in sm_80 sm_90; do
	mkdir -p "$work/ptx/$arch"
	for file in "$work/$arch"/*.ptx; do
		"$vgpuctl" ptx transform "$file" -o "$work/ptx/$arch/$(basename "$file")" >/dev/null
	done
done
nvcc -arch=sm_90 -ptx -o "$work/parted.ptx" "$here/parted.cu"
"$vgpuctl" ptx transform "$work/parted.ptx" -o "$work/ptx/parted.ptx" >/dev/null

failed=0
# Assembled once, rather than by the driver in each process below.
assemble() {
	ptxas -arch=sm_90 -o "${1%.ptx}.cubin" "$1" || { echo "refused: $1"; exit 1; }
}
perform() {
	arch=$(basename "$(dirname "$1")") name=$(basename "$1" .cubin)
	set -- "$1"
	for case in "$work/$name".*.case; do
		out=$work/@/$arch/$(basename "$case" .case)
		set -- "$@" "$case" "$out.out" "$out.printed"
	done
	# A process each: after a fault nothing in the process works any more.
	timeout 60 "$work/runner" "$forms" "$seed" "$@" 2>"$work/$arch/$name.log" || echo "$arch $name: $(tail -1 "$work/$arch/$name.log")"
}
export -f assemble perform
find "$work/ptx" -name '*.ptx' -print0 | xargs -0 -P "$(nproc)" -I{} bash -c 'assemble {}' || failed=1
echo "assembled: $(find "$work/ptx" -name '*.ptx' | wc -l) files"

# FORM:GROUP:EVERY, as runner.cu has them.
forms=1:1:1,2:1:1,2:3:1,2:32:1,4:1:2,4:5:1
export forms seed
mkdir -p "$work"/{0..5}/sm_{80,90}
find "$work/ptx/sm_80" "$work/ptx/sm_90" -name '*.cubin' -print0 | xargs -0 -P 8 -I{} bash -c 'perform {}'
"$work/runner" "$forms" "$seed" -compare "$work/ptx/parted.cubin" rounds returns stairs 2>"$work/sm_90/parted.log" || failed=1
sed '/^sum/d' "$work/sm_90/parted.log"
n=0
for form in ${forms//,/ }; do
	"$gpucheck" -seed "$seed" verify "$work/$n" >"$work/verdict" || { failed=1 && grep FAIL "$work/verdict" || true; }
	echo "form $form (form:group:every): $(cat "$work"/sm_*/*.log | awk -v form="$form" '$1 == "sum" && $2 == form {l += $3; e += $4; o += $5}
		END {print l + 0 " launches, " e + 0 " evictions, " o + 0 " originals"}'), $(tail -1 "$work/verdict")"
	n=$((n + 1))
done
exit $failed
