#!/usr/bin/env bash
# Runs all tests, with the race detector where a C compiler is at hand, and says in
# the end which were skipped and why.
set -euo pipefail
cd "$(dirname "$0")/.."

# make lint has run go vet and the floors.
flags=(-tags=libvirt_dlopen,netgo,osusergo -vet=off)
if [ "$(go env CGO_ENABLED)" = 1 ] && command -v "${CC:-gcc}" >/dev/null; then
	flags+=(-race)
else
	echo "note: no C compiler, so the tests run without the race detector" >&2
fi
# The whole-system tests start many processes and VMs: they come last, and each
# package alone.
alone=$(go list ./e2e/... | grep -E '/e2e/(system|vm|libvirt|nvidia|cuda)$')
# Models, policies, references and compilers without goroutines, simulations of parts that have
# race tests of their own, and commands that start themselves anew for each line of a script: the
# race detector would find nothing, and take ten times as long.
plain=$(go list ./fairshare/... ./ptx/... ./guestagent/preempt ./guestagent/fatbin ./gpu/soft/arith ./gpu/soft/machine/warps \
	./cmd/vgpuctl ./cmd/vgpu-hook ./gpu/corpus ./e2e/preempt ./e2e/papers/... ./e2e/quotas ./e2e/scheduling |
	grep -vxF vgpud/e2e/papers/case/live) # which has processes
# Property tests have the same cases each time: the same tree gives the same answer. `make fuzz`
# looks for new ones.
properties=$(grep -rl --include='*_test.go' '"pgregory.net/rapid"' . | xargs -rn1 dirname | sort -u | xargs -r go list)
run() { # flags of go test, each one word, and packages
	local flags=() with without failed=0
	while [[ $1 == -* ]]; do flags+=("$1"); shift; done
	with=$(printf '%s\n' "$@" | grep -xF "$properties" || true)
	without=$(printf '%s\n' "$@" | grep -vxF "$properties" || true)
	if [ -n "$without" ]; then go test -json "${flags[@]}" -timeout 30m $without || failed=1; fi
	if [ -n "$with" ]; then go test -json "${flags[@]}" -timeout 30m $with -rapid.seed=1 || failed=1; fi
	return "$failed"
}
echo "unit: a line follows for each package, the first after some minutes of building; skipped and failed tests are listed in the end" >&2
report=$(mktemp)
trap 'rm -f "$report"' EXIT
go build -o "$report" ./scripts/testreport
status=0
{
	run "${flags[@]}" "$@" $(go list ./... | grep -vxF "$alone" | grep -vxF "$plain" | grep -vxF vgpud/e2e/floors) || status=1
	run -tags=libvirt_dlopen,netgo,osusergo -vet=off "$@" $plain || status=1
	for package in $alone; do
		run "${flags[@]}" "$@" "$package" || status=1
	done
	exit "$status"
} | "$report"
