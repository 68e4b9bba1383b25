#!/usr/bin/env bash
# Runs every fuzz target for FUZZTIME (default 3s each), as many at a time as there are
# processors, since it takes longer to build one than to run it; one that fails leaves
# its input under testdata/fuzz of its package. Then it runs property tests with new seeds.
set -euo pipefail
cd "$(dirname "$0")/.."

export FUZZTIME=${FUZZTIME:-3s}

# Go before 1.27 may report the end of FUZZTIME itself as a failure
# (go.dev/issue/75804). It then says these three lines and nothing else beside its
# progress; what a target says has a file and line before it, and a finding its input.
spurious() {
	[ "$(grep -v '^fuzz: elapsed: ' "$2" | head -n 3 | sed 's/ ([0-9.]*s)$//')" = "--- FAIL: $1
    context deadline exceeded
FAIL" ]
}

# one runs a target of a package. xargs begins no other once it ends with 255.
one() {
	local dir=$1 target=$2 log
	log=$(mktemp)
	echo "fuzz $dir $target for $FUZZTIME"
	# The targets' seeds already ran with the other tests.
	if ! go test "$dir" -run '^$' -fuzz "^$target\$" -fuzztime "$FUZZTIME" -fuzzminimizetime 1x -parallel 1 >"$log" 2>&1 &&
		! spurious "$target" "$log"; then
		cat "$log"
		rm -f "$log"
		exit 255
	fi
	rm -f "$log"
}
export -f one spurious

for dir in $(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -rn1 dirname | sort -u); do
	for target in $(grep -h -o '^func Fuzz[A-Za-z0-9_]*' "$dir"/*_test.go | sed 's/^func //' | sort -u); do
		echo "$dir" "$target"
	done
done | xargs -P "$(nproc)" -n 2 bash -euc 'one "$@"' -

# Property tests with cases that no run had before: `make test` has the same ones each time.
grep -rl --include='*_test.go' '"pgregory.net/rapid"' . | xargs -rn1 dirname | sort -u | xargs -r go test -tags libvirt_dlopen,netgo,osusergo -count 1
