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
# The whole-system tests start many processes and VMs: they come last, and each
# package alone.
alone=$(go list ./e2e/... | grep -E '/e2e/(system|vm|libvirt)$')
go test "${flags[@]}" -timeout 14m $(go list ./... | grep -vxF "$alone") "$@"
for package in $alone; do
	go test "${flags[@]}" -timeout 14m "$package" "$@"
done
