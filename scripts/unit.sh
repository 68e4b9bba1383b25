#!/usr/bin/env bash
# Runs all tests, with the race detector where a C compiler is at hand.
set -euo pipefail
cd "$(dirname "$0")/.."

flags=(-tags libvirt_dlopen)
if [ "$(go env CGO_ENABLED)" = 1 ] && command -v "${CC:-gcc}" >/dev/null; then
	flags+=(-race)
else
	echo "note: no C compiler, so the tests run without the race detector" >&2
fi
# The whole-system tests start many processes: they come last, and alone.
rest=$(go list ./... | grep -v '/e2e/system$')
go test "${flags[@]}" -timeout 14m $rest "$@"
go test "${flags[@]}" -timeout 14m ./e2e/system "$@"
