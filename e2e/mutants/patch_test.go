package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestParseCommand(t *testing.T) {
	for _, c := range []struct {
		line string
		want command
		err  string
	}{
		{line: `go test ./a -run TestX`, want: command{pkg: "./a", run: "TestX"}},
		{line: `go test ./a -run ^TestX$`, want: command{pkg: "./a", run: "^TestX$"}},
		{line: `go test ./gpu/soft/simt -run '^TestX$/^with a word$'`, want: command{pkg: "./gpu/soft/simt", run: "^TestX$/^with a word$"}},
		{line: `go  test -race -run="A|B" -count 3 -tags=x,y ./a/b`,
			want: command{pkg: "./a/b", run: "A|B", flags: []string{"-race", "-count=3", "-tags=x,y"}}},
		{line: `go test ./a -run X -args -runs 100 -from=1`, want: command{pkg: "./a", run: "X", args: []string{"-runs", "100", "-from=1"}}},
		{line: ``, err: "want go test"},
		{line: `go vet ./a`, err: "want go test"},
		{line: `sh -c 'go test'`, err: "want go test"},
		{line: `go test -run X`, err: "no package"},
		{line: `go test ./a`, err: "no test is named"},
		{line: `go test ./a -run ''`, err: "no test is named"},
		{line: `go test ./a ./b -run X`, err: "one package"},
		{line: `go test ./... -run X`, err: "a package of this tree"},
		{line: `go test ./../a -run X`, err: "a package of this tree"},
		{line: `go test /a -run X`, err: "a package of this tree"},
		{line: `go test vgpud/a -run X`, err: "a package of this tree"},
		{line: `go test ./a/ -run X`, err: "a package of this tree"},
		{line: `go test ./a -run X -run Y`, err: "given twice"},
		{line: `go test ./a -run`, err: "lacks its value"},
		{line: `go test ./a -run '('`, err: "missing closing"},
		{line: `go test ./a -run X -race=true`, err: "has no value"},
		{line: `go test ./a -run X -exec rm`, err: "flag -exec is not one"},
		{line: `go test ./a -run X -toolexec=rm`, err: "flag -toolexec is not one"},
		{line: `go test ./a -run X -o /bin/x`, err: "flag -o is not one"},
		{line: `go test ./a -run X -runs 100`, err: "after -args"},
		{line: `go test ./a -timeout 90s -run X`, want: command{pkg: "./a", run: "X", limit: 90 * time.Second}},
		{line: `go test ./a -timeout 90 -run X`, err: "-timeout: want a duration"},
		{line: `go test ./a -run X; rm b`, err: "single quotes"},
		{line: `go test ./a -run X | tee b`, err: "single quotes"},
		{line: `go test ./a -run A|B`, err: "single quotes"},
		{line: `go test ./$HOME -run X`, err: "single quotes"},
		{line: `go test ./a -run "$X"`, err: "single quotes"},
		{line: `go test ./a -run $'X'`, err: "single quotes"},
		{line: "go test ./a -run `X`", err: "single quotes"},
		{line: `go test ./a -run 'X`, err: "does not end"},
	} {
		got, err := parseCommand(c.line)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: got error %v, want one with %q", c.line, err, c.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.line, err)
		}
		if d := cmp.Diff(c.want, got, cmp.AllowUnexported(command{})); d != "" {
			t.Errorf("%s: -want +got:\n%s", c.line, d)
		}
	}
}

// FuzzParseCommand checks that a command is parsed again as the same command after it is printed.
func FuzzParseCommand(f *testing.F) {
	f.Add(`go test ./a -run '^X$/y z' -count=1 -args -b c`)
	f.Add(`go test -race ./a/b -tags x -run "A|B"`)
	f.Fuzz(func(t *testing.T, line string) {
		c, err := parseCommand(line)
		if err != nil {
			return
		}
		again, err := parseCommand(c.String())
		if err != nil {
			t.Fatalf("%q, parsed and printed: %v", c, err)
		}
		if d := cmp.Diff(c, again, cmp.AllowUnexported(command{}), cmpopts.EquateEmpty()); d != "" {
			t.Errorf("-first +again:\n%s", d)
		}
	})
}

func TestParsePatch(t *testing.T) {
	const head = "Item: 13 A1\nRemoves: a thing\nFails: go test ./a -run 'X'\n"
	for _, c := range []struct {
		text, err string
	}{
		{head + "\ndiff --git a/x b/x\n", ""},
		{"", `"Item: …"`},
		{"Removes: a thing\n", `"Item: …"`},
		{"Item:\n", `"Item: …"`},
		{"Item: 13 A1\nFails: go test ./a -run X\n", `"Removes: …"`},
		{"Item: 13 A1\nRemoves: a thing\n\n", `"Fails: …"`},
		{head + "diff --git a/x b/x\n", "empty line"},
		{head + "\n--- a/x\n", "git's diff"},
		{strings.Replace(head, "-run 'X'", "", 1) + "\ndiff --git a/x b/x\n", "that fails: no test"},
	} {
		got, err := parsePatch(c.text)
		if c.err == "" {
			want := patch{item: "13 A1", removes: "a thing", fails: command{pkg: "./a", run: "X"}, diff: "diff --git a/x b/x\n"}
			if d := cmp.Diff(want, got, cmp.AllowUnexported(patch{}, command{})); err != nil || d != "" {
				t.Errorf("%q: error %v, -want +got:\n%s", c.text, err, d)
			}
		} else if err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%q: got error %v, want one with %s", c.text, err, c.err)
		}
	}
}

// root is the tree's directory relative to this package's.
const root = "../.."

// TestPatchesApply checks that each committed patch applies to the tree and names an existing test.
// `make mutants` shows that the test fails.
func TestPatchesApply(t *testing.T) {
	needGit(t)
	patches, err := readPatches(filepath.Join(root, "e2e", "mutants", "patches"), regexp.MustCompile(""))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range patches {
		if err := (tree{dir: root}).apply(t.Context(), p.diff, "--check"); err != nil {
			t.Errorf("%s does not apply: %v", p.name, err)
		}
		if !named(t, p.fails) {
			t.Errorf("%s names %s: no such test is there", p.name, p.fails)
		}
	}
}

// declared matches a test's declaration.
var declared = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)\w*)\(`)

// named reports whether the package has a test function with that name.
func named(t *testing.T, c command) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, c.pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	tests := c.selector()
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range declared.FindAllSubmatch(text, -1) {
			if _, runs := tests.selects(string(m[1])); runs {
				return true
			}
		}
	}
	return false
}
