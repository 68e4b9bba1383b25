// Package operators is the frame of the tests of what operators use beside the daemon and its
// command line: dashboards, the web page, packages, the service. They need programs of Debian's
// that take minutes to get or to run, so that they run with the flag -operators alone, as
// `make test-operators` does. Each package of tests imports this one, which defines the flag, and
// each test calls [Require] first.
package operators

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var enabled = flag.Bool("operators", false, "run the tests that need what scripts/operators-deps.sh and scripts/system-deps.sh provide")

// Require skips the test unless the flag -operators is set.
func Require(tb testing.TB) {
	tb.Helper()
	if !*enabled {
		tb.Skip("part of `make test-operators`: -operators is not set")
	}
}

// Enabled reports whether the flag -operators is set. Flags must have been parsed.
func Enabled() bool { return *enabled }

// Program returns the path of a program that scripts/operators-deps.sh provides, such as promtool.
// It fails the test if there is none.
func Program(tb testing.TB, name string) string {
	tb.Helper()
	return provided(tb, "operators", filepath.Join("bin", name))
}

// System returns the path of a file that scripts/system-deps.sh provides, such as clean.tar. It
// fails the test if there is none.
func System(tb testing.TB, name string) string {
	tb.Helper()
	return provided(tb, "system", name)
}

// provided returns the path of a file that scripts/KIND-deps.sh provides.
func provided(tb testing.TB, kind, name string) string {
	tb.Helper()
	dir := os.Getenv("VGPUD_" + strings.ToUpper(kind) + "_DEPS")
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			tb.Fatal(err)
		}
		dir = filepath.Join(cache, "vgpud", kind)
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err != nil {
		tb.Fatalf("%v: run scripts/%s-deps.sh first", err, kind)
	}
	return path
}
