package scripts_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestSeeded runs a program as `make test` runs a package's tests: property tests get a seed, and
// others, which would refuse the flag, get none.
func TestSeeded(t *testing.T) {
	script, err := filepath.Abs("seeded.sh")
	if err != nil {
		t.Fatal(err)
	}
	for source, want := range map[string]string{
		"package x\n\nimport \"pgregory.net/rapid\"\n": "-test.v two words -rapid.seed=1\n",
		"package x\n\nimport \"testing\"\n":            "-test.v two words\n",
		"":                                             "-test.v two words\n",
	} {
		cmd := exec.Command(script, "/bin/echo", "-test.v", "two words")
		if cmd.Dir = t.TempDir(); source != "" {
			if err := os.WriteFile(filepath.Join(cmd.Dir, "x_test.go"), []byte(source), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != want {
			t.Errorf("%q: %q, %v; want %q", source, out, err, want)
		}
	}
	cmd := exec.Command(script, "/bin/sh", "-c", "exit 3")
	if err := cmd.Run(); err == nil || cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("the tests' exit status 3 became %v", err)
	}
}
