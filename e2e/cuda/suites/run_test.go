package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestJudge checks that nothing but a good end on the GPU passes.
func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name    string
		test    test
		out     string
		status  string
		used    bool
		kernels uint64
		want    string
	}{
		{name: "passed", used: true},
		{name: "left the GPU alone", want: "left the GPU alone"},
		{name: "no kernel", test: test{offloads: true}, used: true, want: "ran no kernel"},
		{name: "a kernel", test: test{offloads: true}, used: true, kernels: 1},
		{name: "status", status: "signal: aborted", used: true, want: "signal: aborted"},
		{name: "hang", status: "hang", used: true, want: "hang: not ended within the limit"},
		{name: "hang of a failure", test: test{shouldFail: true}, status: "hang", used: true, want: "hang: not ended within the limit"},
		{name: "failure wanted", test: test{shouldFail: true, output: "not (mapped|present)"}, out: "is not mapped\n", status: "exit status 1", used: true},
		{name: "failure missing", test: test{shouldFail: true}, used: true, want: "ended well, where an error was to end it"},
		{name: "output", test: test{output: "^a\nb"}, out: "b\na\n", used: true, want: "its output does not match"},
		{name: "output over lines", test: test{output: "a(\n|\r\n|\r).*x=[0-9]"}, out: "a\n\nb\nx=1", used: true},
		{name: "success", test: test{success: "Success!"}, out: "done", used: true, want: "did not print Success!"},
		{name: "skip", test: test{success: "Success!"}, out: "[SKIP] no GPU\nSuccess!", used: true, want: "skipped itself"},
	} {
		if got := c.test.judge(c.out, c.status, c.used, c.kernels); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestNeverReachesDevice(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]bool{
		"\x00GOMP_parallel\x00main\x00":            true,
		"\x00GOMP_target_ext\x00":                  false,
		"\x00acc_init\x00":                         false,
		"\x00GOMP_offload_register_ver\x00":        true,
		"the text GOMP_target_ext is not a symbol": true,
	} {
		if err := os.WriteFile(filepath.Join(dir, "test"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := neverReachesDevice(dir); got != want {
			t.Errorf("neverReachesDevice(%q) = %v", text, got)
		}
	}
}

// TestResume checks that results survive, also beside a line that was cut off.
func TestResume(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results")
	rs, err := openResults(path, false)
	if err != nil {
		t.Fatal(err)
	}
	want := result{Suite: "s", Name: "n", Outcome: passed, Kernels: 3, Copied: 4, Seconds: 1.5}
	if err := rs.add(want); err != nil {
		t.Fatal(err)
	}
	if _, err := rs.file.WriteString(`{"suite":"s","na`); err != nil {
		t.Fatal(err)
	}
	if err := rs.Close(); err != nil {
		t.Fatal(err)
	}
	all := map[string]result{"s n": want}
	for _, name := range []string{"second", "third"} {
		rs, err = openResults(path, true)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(all, rs.of); diff != "" {
			t.Error("-want +got\n" + diff)
		}
		all["s "+name] = result{Suite: "s", Name: name}
		if err := errors.Join(rs.add(all["s "+name]), rs.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestUsesGPU(t *testing.T) {
	for source, want := range map[string]bool{
		"f.gpu_tile(x, y);": true, "if (t.has_feature(Target::CUDA)) {}": true, "a(); // no GPU\nb();": false,
		"a(); /* on a\nGPU: f.gpu_tile(x, y) */ b();": false, "/* a */ f.gpu_tile(x); /* b */": true, "// a\nf.gpu_tile(x);": true,
	} {
		if got := usesGPU([]byte(source)); got != want {
			t.Errorf("usesGPU(%q) = %t", source, got)
		}
	}
}

func TestExclusions(t *testing.T) {
	list, err := parseExclusions("# comment\n\nlibgomp a/*.c: for a reason: this one\n")
	if err != nil {
		t.Fatal(err)
	}
	tests := []*test{{Suite: "libgomp", Name: "a/1.c"}, {Suite: "libgomp", Name: "c++: a/2.c", skip: "own"}, {Suite: "halide", Name: "a/1.c"}}
	if err := exclude(tests, list); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, t := range tests {
		got = append(got, t.skip)
	}
	if diff := cmp.Diff([]string{"for a reason: this one", "own", ""}, got); diff != "" {
		t.Error("-want +got\n" + diff)
	}
	list[0].used = false
	if err := exclude(tests[2:], list); err == nil {
		t.Error("a line that names no test is no error")
	}
	for _, text := range []string{"libgomp a.c", "libgomp: reason", "libgomp [: reason"} {
		if _, err := parseExclusions(text); err == nil {
			t.Errorf("parseExclusions(%q) is no error", text)
		}
	}
}

// TestTheListIsWellFormed checks the committed list's syntax; a run checks that each line names a
// test.
func TestTheListIsWellFormed(t *testing.T) {
	list, err := parseExclusions(excludedText)
	if err != nil || len(list) == 0 {
		t.Error(len(list), err)
	}
}

// TestBuilds checks that each program that the tests use changes the build's name, and that the page
// shows the builds.
func TestBuilds(t *testing.T) {
	bin := t.TempDir()
	if err := os.Mkdir(filepath.Join(bin, "lib"), 0o755); err != nil {
		t.Fatal(err)
	}
	names := []string{"vgpud", "lib/libcuda.so.1", "lib/libvgpucuda.so"}
	if _, err := buildOf(t.Context(), bin, bin); err == nil {
		t.Error("a build without programs has a name")
	}
	seen := make(map[string]bool)
	for i := range len(names) + 1 {
		for k, name := range names {
			text := "old"
			if k == i {
				text = "new"
			}
			if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		build, err := buildOf(t.Context(), bin, bin)
		if err != nil || seen[build] {
			t.Errorf("build %d has the name %s (%v)", i, build, err)
		}
		seen[build] = true
	}

	all := []result{{Build: "a", Outcome: passed}, {Build: "b", Outcome: failed}, {Outcome: passed}, {Build: "b", Outcome: unbuilt}, {Build: "a", Outcome: listed}}
	want := `| build (commit and digest of its programs) | results |
|---|---|
| b | 2 |
| a | 1 |
| not recorded | 1 |
`
	if diff := cmp.Diff(want, builds(all)); diff != "" {
		t.Error("-want +got\n" + diff)
	}
}

func TestKeeps(t *testing.T) {
	for _, c := range []struct {
		o    options
		r    result
		want bool
	}{
		{options{}, result{Outcome: failed, Build: "old"}, true},
		{options{again: true}, result{Outcome: failed, Build: "new"}, false},
		{options{again: true}, result{Outcome: passed, Build: "old"}, true},
		{options{fresh: true}, result{Outcome: passed, Build: "old"}, false},
		{options{fresh: true}, result{Outcome: passed}, false},
		{options{fresh: true}, result{Outcome: failed, Build: "new"}, true},
	} {
		if got := c.o.keeps(c.r, "new"); got != c.want {
			t.Errorf("%+v keeps %+v: %t", c.o, c.r, got)
		}
	}
}

func TestTally(t *testing.T) {
	all := []result{{Suite: "s", Outcome: passed}, {Suite: "s", Outcome: failed}, {Suite: "s", Outcome: listed}, {Suite: "s", Outcome: xfailed}, {Suite: "s", Outcome: unbuilt}, {Suite: "r", Outcome: listed}}
	want := `| suite | tests | listed | expected to fail | do not build | counted | passed | failed | share |
|---|---|---|---|---|---|---|---|---|
| r | 1 | 1 | 0 | 0 | 0 | 0 | 0 | - |
| s | 5 | 1 | 1 | 1 | 2 | 1 | 1 | 50.0 % |
`
	if diff := cmp.Diff(want, table(all)); diff != "" {
		t.Error("-want +got\n" + diff)
	}
}
