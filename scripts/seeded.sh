#!/bin/sh
# For go test -exec: runs the tests of a package. Property tests have the same cases each time, so the
# same tree gives the same answer. `make fuzz` looks for new ones.
program=$1
shift
if grep -qs '"pgregory.net/rapid"' ./*_test.go; then
	set -- "$@" -rapid.seed=1
fi
exec "$program" "$@"
