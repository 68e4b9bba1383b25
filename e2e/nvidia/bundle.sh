#!/bin/sh
# Puts everything that the measurements on a GPU need into a directory, to be copied to
# a machine without Go and without a network: bundle.sh DIR. There, DIR/run measures.
# bundle.sh --programs DIR builds the programs alone, and --cuda DIR the CUDA programs and
# the libraries that they load, for which it needs a C compiler, and clang for some.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
programs() {
	mkdir -p "$1"
	to=$(cd "$1" && pwd)
	(
		cd "$here/../.."
		CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o "$to/" ./cmd/vgpud
		CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o "$to/nvidiabench" ./e2e/nvidia
		# It has C in it. Without it the daemon hears nothing of the GPU's health.
		CGO_CFLAGS=${CGO_CFLAGS:-'-O2 -g -Wno-deprecated-declarations'} \
			go build -trimpath -ldflags='-s -w' -o "$to/" ./cmd/vgpu-nvml ||
			echo "bundle.sh: no vgpu-nvml, which takes a C compiler" >&2
	)
}
cuda() {
	mkdir -p "$1/lib" "$1/checks"
	to=$(cd "$1" && pwd)
	(
		cd "$here/../.."
		scripts/cuda-libs.sh "$to/lib"
		cmd/libcudart/build.sh "$to/lib"
		cp e2e/nvidia/apps/apps.cu e2e/nvidia/apps/operations.py "$to/"
		c() {
			gcc -std=gnu11 -O1 -Icmd/libcuda/include -Ie2e/cuda/testdata -o "$2" "$1.c" \
				-L"$to/lib" -lcuda -lpthread -ldl -lm
		}
		c e2e/cuda/testdata/launchtime "$to/launchtime"
		c e2e/nvidia/apps/begins "$to/begins"
		for source in e2e/cuda/testdata/*.c; do
			name=$(basename "$source" .c)
			case $name in
			completion | launchtime | modules | signals | nulls | floating | lazily) ;; # want arguments, a signal or guests that float
			*) c "${source%.c}" "$to/checks/$name" ;;
			esac
		done
		clang=${VGPUD_CLANG_DEPS:-${XDG_CACHE_HOME:-$HOME/.cache}/vgpud/clang}/bin/clang++
		if [ ! -x "$clang" ]; then
			echo "bundle.sh: no programs for the runtime: make clang-deps gets their compiler" >&2
			return
		fi
		tree=$(mktemp -d)
		trap 'rm -rf "$tree"' EXIT
		cmd/libcudart/tree.sh "$tree/cuda" "$to/lib"
		for source in e2e/cuda/testdata/rt_*.cu; do
			CUDA_CLANG=$clang "$tree/cuda/bin/cuda-cc" -std=c++17 -O2 -Ie2e/cuda/testdata \
				-o "$to/checks/$(basename "$source" .cu)" "$source"
		done
	)
}
case ${1:-} in
--programs) programs "$2" ;;
--cuda) cuda "$2" ;;
'' | -*)
	echo "usage: bundle.sh DIR" >&2
	exit 2
	;;
*)
	programs "$1/bin"
	cuda "$1/bin/cuda"
	cp "$here/run" "$1/run"
	du -sh "$1"
	;;
esac
