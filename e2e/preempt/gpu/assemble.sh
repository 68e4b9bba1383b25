#!/usr/bin/env bash
# Holds what the transformation makes to NVIDIA's assembler:
#
#	assemble.sh VGPUCTL FILE...
#
# VGPUCTL is the built command line. Each FILE is PTX, or CUDA C, which is compiled
# for sm_80 and sm_90 first, with $NVCCFLAGS (-O3). The text is assembled for sm_90 as
# it is and transformed: an input that the assembler refuses is its own matter, an
# output refused where the input is not is ours, and makes the exit code 1. Without a FILE: the corpus, the
# kernels written to be hard, what the parser is tested with, and inputs/. It needs
# CUDA's compiler and assembler, no GPU.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
vgpuctl=$(realpath "$1")
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ $# = 0 ]; then
	set -- "$here"/../../../gpu/corpus/ptx/*.ptx "$here"/../hard/ptx/*.ptx \
		"$here"/../../../ptx/testdata/*.ptx "$here"/../../../ptx/testdata/real/*.ptx "$here"/inputs/*.cu "$here"/parted.cu
	for file in "$here"/../../../gpu/corpus/ptx/*.ptx; do # written for sm_80; its code for sm_90 is the same
		sed 's/^\.target sm_80$/.target sm_90/' "$file" >"$work/$(basename "$file" .ptx).sm_90.ptx"
	done
fi
export vgpuctl work

# A word for each file, in $work/NAME.verdict.
judge() {
	name=$(echo "$1" | tr / _) arch=sm_90
	say() { printf '%s\n%s\n' "$1" "$2" >"$work/$name.verdict"; }
	say unsaid "$1"
	if ! grep -q '^\.target sm_[0-9]*$\|^\.target sm_[0-9]*,' "$1"; then # sm_90a is an architecture of its own
		arch=$(sed -n 's/^\.target *\(sm_[0-9a-z]*\).*/\1/p' "$1" | head -1)
	fi
	if ! ptxas -arch="${arch:-sm_90}" -o /dev/null "$1" >"$work/$name.log" 2>&1; then
		say input "$1"
	elif ! "$vgpuctl" ptx transform "$1" -o "$work/$name.out" >/dev/null 2>>"$work/$name.log"; then
		say untransformed "$1"
	elif ! ptxas -arch="${arch:-sm_90}" -o /dev/null "$work/$name.out" >"$work/$name.log" 2>&1; then
		say output "$1"
	else
		say accepted "$1"
		grep -c '\.entry' "$1" >"$work/$name.kernels" || true
		grep -o '\.entry.*__vgpud_[a-z]*' "$work/$name.out" >"$work/$name.list" || true
		wc -l <"$work/$name.list" >"$work/$name.forms"
		sed 's/__vgpud_[a-z]*$//' "$work/$name.list" | sort -u | wc -l >"$work/$name.preemptible"
	fi
}
compile() {
	file=${1%:*} arch=${1#*:}
	# shellcheck disable=SC2086 # several flags
	nvcc -std=c++17 ${NVCCFLAGS:--O3} -arch="$arch" -ptx -o "$work/$(basename "$file" .cu).$arch.ptx" "$file" 2>"$work/nvcc.$(basename "$file").$arch" ||
		{ echo "does not compile: $file for $arch: $(head -3 "$work/nvcc.$(basename "$file").$arch")"; exit 1; }
}
export -f judge compile

failed=0
for file; do
	case $file in
	*.cu) printf '%s:%s\0' "$file" sm_80 "$file" sm_90 ;;
	esac
done | xargs -0 -r -P "$(nproc)" -I{} bash -c 'compile {}' || failed=1
{
	for file; do
		[ "${file%.cu}" != "$file" ] || printf '%s\0' "$file"
	done
	find "$work" -maxdepth 1 -name '*.ptx' -print0
} | xargs -0 -P "$(nproc)" -I{} bash -c 'judge {}'
for verdict in input output untransformed unsaid; do
	for of in $(grep -lx "$verdict" "$work"/*.verdict || true); do
		echo "$verdict refused: $(sed -n 2p "$of"): $(grep -m1 -v '^$' "${of%.verdict}.log" || true)"
	done
done | sed "s#$work/##; s#$here/##; s/^untransformed refused/not transformed/; s/^unsaid refused/no answer/"
count() { { grep -lx "$1" "$work"/*.verdict || true; } | wc -l; }
sum() { cat "$work"/*."$1" 2>/dev/null | awk '{n += $1} END {print n + 0}'; }
echo "$(ls "$work"/*.verdict | wc -l) files: $(count input) refused as they are, $(count untransformed) not transformed," \
	"$(count output) refused transformed; $(count accepted) accepted: $(sum kernels) kernels, $(sum preemptible) of them preemptible, in $(sum forms) forms"
[ "$failed" = 0 ] && [ "$(count output)" = 0 ] && [ "$(count untransformed)" = 0 ] && [ "$(count unsaid)" = 0 ]
