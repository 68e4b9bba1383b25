#!/usr/bin/env bash
# Runs every fuzz target for FUZZTIME (default 3s each); one that fails leaves
# its input under testdata/fuzz of its package.
set -euo pipefail
cd "$(dirname "$0")/.."

time=${FUZZTIME:-3s}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Go before 1.27 may report the end of FUZZTIME itself as a failure
# (go.dev/issue/75804). It then says these three lines and nothing else beside its
# progress; what a target says has a file and line before it, and a finding its input.
spurious() {
	[ "$(grep -v '^fuzz: elapsed: ' "$log" | head -n 3 | sed 's/ ([0-9.]*s)$//')" = "--- FAIL: $1
    context deadline exceeded
FAIL" ]
}

for dir in $(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -rn1 dirname | sort -u); do
	for target in $(grep -h -o '^func Fuzz[A-Za-z0-9_]*' "$dir"/*_test.go | sed 's/^func //' | sort -u); do
		echo "fuzz $dir $target for $time"
		# The targets' seeds already ran with the other tests.
		if go test "$dir" -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 1x >"$log" 2>&1; then
			continue
		fi
		spurious "$target" && continue
		cat "$log"
		exit 1
	done
done
