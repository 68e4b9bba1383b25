#!/bin/sh
# Puts everything that the measurements on a GPU need into a directory, to be copied to
# a machine without Go and without a network: bundle.sh DIR. There, DIR/run measures.
# bundle.sh --programs DIR builds the programs alone.
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
case ${1:-} in
--programs) programs "$2" ;;
'' | -*)
	echo "usage: bundle.sh DIR" >&2
	exit 2
	;;
*)
	programs "$1/bin"
	cp "$here/run" "$1/run"
	du -sh "$1"
	;;
esac
