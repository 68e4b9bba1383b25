#!/usr/bin/env bash
# Runs all tests, with the race detector where a C compiler is at hand, and says in
# the end which were skipped and why.
set -euo pipefail
cd "$(dirname "$0")/.."

# make lint has run go vet and the floors.
flags=(-tags=libvirt_dlopen,netgo,osusergo)
race=()
if [ "$(go env CGO_ENABLED)" = 1 ] && command -v "${CC:-gcc}" >/dev/null; then
	race=(-race)
else
	echo "note: no C compiler, so the tests run without the race detector" >&2
fi
# The whole-system tests start many processes and VMs: they come last, and two packages at a time,
# because each waits about half of its time for its GPU.
whole=$(go list ./e2e/{system,vm,libvirt,nvidia,cuda})
# The tests that take longest start first, and the others run beside them.
long=$(go list ./mediator/daemon ./accounting)
# Models, policies, references and compilers without goroutines, simulations of parts that have
# race tests of their own, and commands that start themselves anew for each line of a script: the
# race detector would find nothing, and take ten times as long.
plain=$(go list ./fairshare/... ./ptx/... ./guestagent/preempt ./guestagent/preempt/tune ./guestagent/fatbin ./guestagent/tasks \
	./gpu/soft/arith ./gpu/soft/machine/... ./gpu/soft/sim ./mediator/launchqueue ./mediator/libvirt/domain ./mediator/tasks \
	./cmd/vgpuctl ./cmd/vgpu-hook ./gpu/corpus ./e2e/preempt ./e2e/callable ./e2e/variables ./e2e/papers/... ./e2e/quotas ./e2e/scheduling |
	grep -vxF vgpud/e2e/papers/case/live) # which has processes
# At its end each process with the race detector waits a second for its goroutines' last races. Some
# tests start hundreds of such processes, one after the other.
export GORACE="atexit_sleep_ms=20${GORACE:+ $GORACE}"
# tested runs the tests of packages in their order, with flags of go build, each one word. All are
# compiled before the first starts, because go test starts none before those listed earlier. More are
# under way than there are processors, because many only wait.
tested() {
	local build=("${flags[@]}")
	while [[ $1 == -* ]]; do build+=("$1"); shift; done
	GOGC=400 go list -e -export -test "${build[@]}" "$@" >/dev/null
	go test -json -p $(($(nproc) + 2)) -vet=off "${build[@]}" -exec "$PWD/scripts/seeded.sh" -timeout 90m "${arguments[@]}" "$@"
}
arguments=("$@")
echo "unit: a line follows for each package, the first after some minutes of building; the slowest, skipped and failed tests are listed in the end" >&2
report=$(mktemp)
trap 'rm -f "$report"' EXIT
go build -o "$report" ./scripts/testreport
status=0
{
	tested $plain || status=1
	tested "${race[@]}" $long $(go list ./... | grep -vxF "$long" | grep -vxF "$whole" | grep -vxF "$plain" | grep -vxF vgpud/e2e/floors) || status=1
	tested "${race[@]}" -p=2 $whole || status=1
	exit "$status"
} | "$report"
