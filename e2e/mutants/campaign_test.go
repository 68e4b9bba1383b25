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
	"slices"
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

import (
	"os"
	"testing"
)

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

func TestExits(t *testing.T) {
	os.Exit(1)
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
		// Only what the test needs is compiled, not what else uses it.
		"user": {"-run TestOf", "func Half(n int) int {", "func half(n int) int {"},
		// It ends the process in which the tests of a batch run.
		"unsound": {"-run TestExits", from, to},
	})
	want := map[string]verdict{
		"alike": survived, "anyway": failsAnyway, "blocks": killed, "killed": killed, "nosubtest": nothingToRun,
		"notest": nothingToRun, "panics": killed, "skipped": onlySkipped, "stale": doesNotApply,
		"subtest": killed, "syntax": notCompiled, "unsound": failsAnyway, "user": survived,
	}
	var stdout, stderr bytes.Buffer
	err := run(t.Context(), []string{"-tree", dir, "-o", "json"}, &stdout, &stderr)
	if err == nil || err.Error() != "9 of 13 patches were not killed" {
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

// TestResume checks that an interrupted campaign leaves nothing but its results, and goes on.
func TestResume(t *testing.T) {
	dir := toyTree(t, map[string][3]string{
		"a": {"-run TestOf", "\treturn 2 * n", "\treturn n"},
		"b": {"-run TestOf", "\treturn 2 * n", "\treturn n + n"},
		"c": {"-run TestOf", "\treturn 2 * n", "\treturn 3 * n"},
	})
	file := filepath.Join(t.TempDir(), "results")
	args := []string{"-tree", dir, "-resume", file, "-j", "1"}
	ctx, stop := context.WithCancel(t.Context())
	if err := run(ctx, args, new(bytes.Buffer), interrupted{stop}); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want %v", err, context.Canceled)
	}
	if l := left(t); l != nil {
		t.Errorf("left in the directory for temporary files: %v", l)
	}
	kept, err := os.ReadFile(file)
	if err != nil || bytes.Count(kept, []byte("\n")) != 1 {
		t.Fatalf("kept %q (error %v), want one result", kept, err)
	}
	if err := os.WriteFile(file, append(kept, `{"item":"1 b","pat`...), 0o644); err != nil {
		t.Fatal(err)
	}
	// tried runs the campaign and returns the patches that it tries.
	tried := func() string {
		t.Helper()
		var stdout, stderr bytes.Buffer
		if err := run(t.Context(), args, &stdout, &stderr); err == nil || err.Error() != "1 of 3 patches were not killed" {
			t.Errorf("got error %v\n%s", err, &stderr)
		}
		if n := strings.Count(stdout.String(), "\n"); n != 4 {
			t.Errorf("the table has %d lines, want 4:\n%s", n, &stdout)
		}
		var names []string
		for line := range strings.Lines(stderr.String()) {
			if _, after, ok := strings.Cut(line, "] 1 "); ok {
				names = append(names, after[:1])
			}
		}
		return strings.Join(names, " ")
	}
	if got := tried(); got != "b c" {
		t.Errorf("the interrupted campaign goes on with %q, want b and c", got)
	}
	if got := tried(); got != "b" {
		t.Errorf("tried again: %q, want the one that survived", got)
	}
	name := filepath.Join(dir, "e2e/mutants/patches/a.patch")
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, bytes.Replace(text, []byte("doubling"), []byte("all"), 1), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := tried(); got != "a b" {
		t.Errorf("tried again: %q, want the one that survived and the one that changed", got)
	}
}

// TestBatches checks that each batch has one process, and each test one batch, the longest first.
func TestBatches(t *testing.T) {
	var patches []patch
	add := func(n int, pkg, run string) {
		for range n {
			patches = append(patches, patch{name: pkg + run, fails: command{pkg: pkg, run: run}})
		}
	}
	add(2, "./a", "X")
	add(1, "./e2e/vm", "X")
	add(batchSize, "./b", "X")
	add(1, "./b", "Y")
	add(batchSize-2, "./a", "Y")
	add(1, "./a", "Z")
	add(1, "./a", "X")
	names := func(batches [][]patch) (list [][]string) {
		for _, b := range batches {
			var names []string
			for _, p := range b {
				names = append(names, p.name)
			}
			list = append(list, slices.Compact(names))
		}
		return list
	}
	beside, alone := batches(patches)
	if d := cmp.Diff([][]string{{"./aX", "./aY"}, {"./bX"}, {"./aZ"}, {"./bY"}}, names(beside)); d != "" {
		t.Errorf("beside others: -want +got:\n%s", d)
	}
	if d := cmp.Diff([][]string{{"./e2e/vmX"}}, names(alone)); d != "" {
		t.Errorf("alone: -want +got:\n%s", d)
	}
}
