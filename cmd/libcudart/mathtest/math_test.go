package mathtest

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestFunctions holds each function to its distance from the exact result, in units in the last
// place, and to its values at the ends.
func TestFunctions(t *testing.T) {
	compiler, err := exec.LookPath("g++")
	if err != nil {
		t.Skip("no g++: the functions are not compiled for the host")
	}
	program := filepath.Join(t.TempDir(), "math")
	cmd := exec.CommandContext(t.Context(), compiler, "-std=c++17", "-O2", "-mfma", "-ffp-contract=off",
		"-Wall", "-I../include", "-o", program, "testdata/math.cc")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	out, err := exec.CommandContext(t.Context(), program).CombinedOutput()
	if err != nil || !strings.HasSuffix(string(out), "right\n") {
		t.Errorf("%v\n%s", err, out)
	}
}
