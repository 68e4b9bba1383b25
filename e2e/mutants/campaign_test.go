package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func needGit(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("no git, which applies patches: ", err)
	}
}

// toy is a module whose only mechanism is doubling.
var toy = map[string]string{
	"go.mod":     "module toy\n\ngo 1.26\n",
	".gitignore": "ignored\n",
	"ignored":    "",
	"double/double.go": `package double

// Of returns twice n.
func Of(n int) int {
	return 2 * n
}

// Half returns half of n.
func Half(n int) int {
	return n / 2
}
`,
	"double/double_test.go": `package double

import "testing"

func TestOf(t *testing.T) {
	t.Run("two", func(t *testing.T) {
		if got := Of(2); got != 4 {
			t.Errorf("got %d, want 4", got)
		}
	})
}

func TestFails(t *testing.T) {
	t.Error("it always does")
}

func TestSkips(t *testing.T) {
	t.Skip("it always does")
}
`,
	"user/user.go": `package user

import "toy/double"

var _ = double.Half
`,
}

// toyTree writes the toy into a checkout without commits, and patches that each replace one line of
// double.go by others.
func toyTree(t *testing.T, patches map[string][3]string) string {
	t.Helper()
	needGit(t)
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range toy {
		write(name, text)
	}
	for name, p := range patches {
		test, from, to := p[0], p[1], p[2]
		write("e2e/mutants/patches/"+name+".patch", fmt.Sprintf("Item: 1 %s\nRemoves: doubling\nFails: go test ./double %s\n\n%s", name, test, replacement(from, to)))
	}
	if out, err := exec.Command("git", "-C", dir, "init", "-q").CombinedOutput(); err != nil {
		t.Fatalf("git init: %v\n%s", err, out)
	}
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv("GOWORK", "off")
	return dir
}

// replacement returns a diff of double.go that replaces a line by others.
func replacement(from, to string) string {
	lines := strings.Split(toy["double/double.go"], "\n")
	at, after := 1, ""
	for i, l := range lines {
		if l == from {
			at, after = i+1, lines[i+1]
		}
	}
	return fmt.Sprintf("diff --git a/double/double.go b/double/double.go\n--- a/double/double.go\n+++ b/double/double.go\n@@ -%d,2 +%d,%d @@\n-%s\n+%s\n %s\n",
		at, at, strings.Count(to, "\n")+2, from, strings.ReplaceAll(to, "\n", "\n+"), after)
}

// left returns the names in the directory for temporary files.
func left(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(os.Getenv("TMPDIR"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestVerdicts(t *testing.T) {
	const from, to = "\treturn 2 * n", "\treturn n"
	dir := toyTree(t, map[string][3]string{
		"alike":     {"-run '^TestOf$'", from, "\treturn n + n"},
		"anyway":    {"-run '^TestFails$'", from, to},
		"blocks":    {"-run TestOf -timeout=1s", from, "\tfor n > 0 {\n\t}\n\treturn n"},
		"killed":    {"-run '^TestOf$'", from, to},
		"nosubtest": {"-run '^TestOf$/^three$'", from, to},
		"notest":    {"-run TestOff", from, to},
		"panics":    {"-run TestOf", from, "\tpanic(n)"},
		"skipped":   {"-run TestSkips", from, to},
		"stale":     {"-run TestOf", "\treturn 3 * n", to},
		"subtest":   {"-run '^TestOf$/^two$'", from, to},
		"syntax":    {"-run TestOf", from, "\treturn m"},
		// What the test runs compiles; what uses it does not.
		"user": {"-run TestOf", "func Half(n int) int {", "func half(n int) int {"},
	})
	want := map[string]verdict{
		"alike": survived, "anyway": failsAnyway, "blocks": killed, "killed": killed, "nosubtest": nothingToRun,
		"notest": nothingToRun, "panics": killed, "skipped": onlySkipped, "stale": doesNotApply,
		"subtest": killed, "syntax": notCompiled, "user": notCompiled,
	}
	var stdout, stderr bytes.Buffer
	err := run(t.Context(), []string{"-tree", dir, "-o", "json"}, &stdout, &stderr)
	if err == nil || err.Error() != "8 of 12 patches were not killed" {
		t.Errorf("got error %v", err)
	}
	var results []result
	if err := json.Unmarshal(stdout.Bytes(), &results); err != nil {
		t.Fatalf("%v in:\n%s%s", err, &stdout, &stderr)
	}
	got := make(map[string]verdict)
	for _, r := range results {
		got[r.Patch] = r.Verdict
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s%s", d, &stderr)
	}
	if l := left(t); l != nil {
		t.Errorf("left in the directory for temporary files: %v", l)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "double/double.go")); err != nil || string(text) != toy["double/double.go"] {
		t.Errorf("the tree itself was changed (error %v):\n%s", err, text)
	}
}

func TestTable(t *testing.T) {
	dir := toyTree(t, map[string][3]string{
		"killed": {"-run TestOf", "\treturn 2 * n", "\treturn n"},
		"other":  {"-run TestOf", "\treturn 2 * n", "\treturn n + n"},
	})
	var stdout, stderr bytes.Buffer
	if err := run(t.Context(), []string{"-tree", dir, "-run", "^1 killed killed$"}, &stdout, &stderr); err != nil {
		t.Errorf("%v\n%s", err, &stderr)
	}
	got := strings.Fields(stdout.String())
	if len(got) != 11 {
		t.Fatalf("got:\n%s", &stdout)
	}
	got[9] = "…" // seconds
	want := strings.Fields("ITEM PATCH RESULT SECONDS REMOVES 1 killed killed killed … doubling")
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if err := run(t.Context(), []string{"-tree", dir, "-run", "nothing"}, &stdout, &stderr); err == nil {
		t.Error("no error where no patch matches")
	}
}

// interrupted is a writer for progress that ends the campaign at its first line.
type interrupted struct{ stop context.CancelFunc }

func (i interrupted) Write(p []byte) (int, error) {
	i.stop()
	return len(p), nil
}

func TestInterrupted(t *testing.T) {
	dir := toyTree(t, map[string][3]string{"killed": {"-run TestOf", "\treturn 2 * n", "\treturn n"}})
	ctx, stop := context.WithCancel(t.Context())
	if err := run(ctx, []string{"-tree", dir}, new(bytes.Buffer), interrupted{stop}); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want %v", err, context.Canceled)
	}
	if l := left(t); l != nil {
		t.Errorf("left in the directory for temporary files: %v", l)
	}
}
