#!/bin/sh
# Puts everything that the measurements on a GPU need into a directory, to be copied to
# a machine without Go and without a network: bundle.sh DIR. There, DIR/run measures.
# bundle.sh --programs DIR builds the programs alone.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
programs() {
	mkdir -p "$1"
	(cd "$here/../.." && CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o "$1/" ./cmd/vgpud &&
		CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o "$1/nvidiabench" ./e2e/nvidia)
}
case ${1:-} in
--programs) programs "$2" ;;
'' | -*)
	echo "usage: bundle.sh DIR" >&2
	exit 2
	;;
*)
	mkdir -p "$1"
	programs "$(cd "$1" && pwd)/bin"
	cp "$here/run" "$1/run"
	du -sh "$1"
	;;
esac
