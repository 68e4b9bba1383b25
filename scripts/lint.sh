#!/usr/bin/env bash
# Holds the code to its style: gofmt, go vet, staticcheck, and the floors
# (which package may import which; e2e/floors).
set -euo pipefail
cd "$(dirname "$0")/.."

# Programs that end after some minutes need not collect garbage as often as those that stay: that
# takes a quarter of staticcheck's processor time.
export GOGC=400 GOMEMLIMIT=3GiB

# say tells on standard error what takes a while.
say() { echo "lint: $*" >&2; }

say "gofmt, go vet, staticcheck and the floors; the first build takes some minutes"
unformatted=$(find . -name '*.go' -not -path './.*' -print0 | xargs -0 gofmt -l)
if [ -n "$unformatted" ]; then
	echo "not gofmt'd:" >&2
	echo "$unformatted" >&2
	exit 1
fi
go vet -tags libvirt_dlopen,netgo,osusergo ./...
say "staticcheck"
go tool staticcheck -tags libvirt_dlopen,netgo,osusergo ./...
say "floors"
go test -count=1 ./e2e/floors
