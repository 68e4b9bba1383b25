#!/usr/bin/env bash
# Runs every fuzz target for FUZZTIME (default 3s each); one that fails leaves
# its input under testdata/fuzz of its package.
set -euo pipefail
cd "$(dirname "$0")/.."

time=${FUZZTIME:-3s}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for dir in $(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -rn1 dirname | sort -u); do
	for target in $(grep -h -o '^func Fuzz[A-Za-z0-9_]*' "$dir"/*_test.go | sed 's/^func //' | sort -u); do
		echo "fuzz $dir $target for $time"
		# The targets' seeds already ran with the other tests.
		if go test "$dir" -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 1x >"$log" 2>&1; then
			continue
		fi
		# A worker that is busy when the time is over makes the go command report
		# its own deadline as a failure. A finding comes with its input.
		if grep -q 'context deadline exceeded' "$log" && ! grep -q 'Failing input written' "$log"; then
			continue
		fi
		cat "$log"
		exit 1
	done
done
