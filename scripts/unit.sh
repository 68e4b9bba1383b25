#!/usr/bin/env bash
# Runs all tests, with the race detector where a C compiler is at hand, and says in
# the end which were skipped and why.
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
alone=$(go list ./e2e/... | grep -E '/e2e/(system|vm|libvirt|nvidia)$')
# Models, policies and references without goroutines, and commands that start
# themselves anew for each line of a script: the race detector would find nothing,
# and take ten times as long.
plain=$(go list ./fairshare/... ./gpu/soft/arith ./cmd/vgpuctl ./gpu/corpus ./e2e/preempt ./e2e/papers/preempt)
report=$(mktemp)
trap 'rm -f "$report"' EXIT
go build -o "$report" ./scripts/testreport
status=0
{
	go test -json "${flags[@]}" -timeout 30m $(go list ./... | grep -vxF "$alone" | grep -vxF "$plain") "$@" || status=1
	go test -json -tags libvirt_dlopen -timeout 30m $plain "$@" || status=1
	for package in $alone; do
		go test -json "${flags[@]}" -timeout 30m "$package" "$@" || status=1
	done
	exit "$status"
} | "$report"
