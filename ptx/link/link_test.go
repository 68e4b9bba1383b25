package link_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"vgpud/ptx"
	"vgpud/ptx/link"
)

var update = flag.Bool("update", false, "write what Link returns into testdata")

// parse parses the objects in an archive: its files that end in .ptx.
func parse(t testing.TB, a *txtar.Archive) (objects []link.Object) {
	t.Helper()
	for _, f := range a.Files {
		if filepath.Ext(f.Name) != ".ptx" {
			continue
		}
		m, err := ptx.Parse(string(f.Data))
		if err != nil {
			t.Fatalf("%s: %v", f.Name, err)
		}
		objects = append(objects, link.Object{Name: f.Name, Module: m})
	}
	return objects
}

// result links objects and returns the module's text, or the errors, one a line.
func result(objects []link.Object) string {
	m, err := link.Link(objects, link.Options{})
	var list link.Errors
	switch {
	case errors.As(err, &list):
		var b strings.Builder
		for _, e := range list {
			b.WriteString(e.Kind.String() + ": " + e.Error() + "\n")
		}
		return b.String()
	case err != nil:
		return "an error of another type: " + err.Error()
	}
	return m.String()
}

// TestLink links the objects in each archive of testdata and compares the result with its last
// file.
func TestLink(t *testing.T) {
	archives, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(archives) == 0 {
		t.Fatal("no test data", err)
	}
	for _, path := range archives {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got := result(parse(t, a))
			last := &a.Files[len(a.Files)-1]
			if last.Name != "want" {
				a.Files = append(a.Files, txtar.File{Name: "want"})
				last = &a.Files[len(a.Files)-1]
			}
			if *update {
				last.Data = []byte(got)
				if err := os.WriteFile(path, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if d := cmp.Diff(string(last.Data), got); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
			if strings.HasPrefix(got, ".version") {
				checkModule(t, got)
			}
		})
	}
}

// checkModule checks that text is a module whose names are all declared, before their use where
// initializers are concerned.
func checkModule(t testing.TB, text string) {
	t.Helper()
	m, err := ptx.Parse(text)
	if err != nil {
		t.Fatalf("the result can't be parsed: %v\n%s", err, text)
	}
	if _, err := ptx.Resolve(m); err != nil {
		t.Fatalf("the result's names: %v\n%s", err, text)
	}
	declared := map[string]bool{}
	for _, it := range m.Items {
		switch it := it.(type) {
		case *ptx.Func:
			declared[it.Name] = true
		case *ptx.Var:
			for v := range it.Values() {
				if v.Name != "" && v.Name != it.Name && !declared[v.Name] {
					t.Errorf("%s is initialized with %s, which is not declared yet", it.Name, v.Name)
				}
			}
			declared[it.Name] = true
		}
	}
}

// TestLinkIsDeterministic links the same objects twice.
func TestLinkIsDeterministic(t *testing.T) {
	a, err := txtar.ParseFile("testdata/collisions.txtar")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(result(parse(t, a)), result(parse(t, a))); d != "" {
		t.Error(d)
	}
}

// TestLongChains links objects whose references would nest deeply, or take quadratic time.
func TestLongChains(t *testing.T) {
	const n = 20_000
	const head = ".version 7.0\n.target sm_80\n.address_size 64\n"
	var vars, calls, aliases strings.Builder
	name := func(i int) string {
		return "n" + strings.Repeat("i", i%7) + string(rune('a'+i%26)) + strings.Repeat("0", i%3) + strconv.Itoa(i)
	}
	for i := range n {
		vars.WriteString(".extern .global .b64 " + name(i+1) + ";\n.visible .global .b64 " + name(i) + " = " + name(i+1) + ";\n")
		calls.WriteString(".func f" + strconv.Itoa(i+1) + " ();\n.func f" + strconv.Itoa(i) + " () { call f" + strconv.Itoa(i+1) + "; ret; }\n")
		aliases.WriteString(".func a" + strconv.Itoa(i) + " ();\n")
	}
	vars.WriteString(".visible .global .b64 " + name(n) + " = " + name(0) + ";\n")
	calls.WriteString(".func f" + strconv.Itoa(n) + " () { ret; }\n.visible .entry k () { call f0; ret; }\n")
	for _, text := range []string{vars.String(), calls.String(), aliases.String()} {
		m, err := ptx.Parse(head + text)
		if err != nil {
			t.Fatal(err)
		}
		out, err := link.Link([]link.Object{{Name: "a", Module: m}}, link.Options{})
		if err != nil {
			t.Fatal(err)
		}
		checkModule(t, out.String())
	}
}

// FuzzLink links two objects of any text: the result must be a module whose names are declared, or
// typed errors.
func FuzzLink(f *testing.F) {
	archives, _ := filepath.Glob("testdata/*.txtar")
	for _, path := range archives {
		if a, err := txtar.ParseFile(path); err == nil && len(a.Files) >= 2 {
			f.Add(string(a.Files[0].Data), string(a.Files[1].Data))
		}
	}
	limits := ptx.Options{MaxBytes: 1 << 14, MaxDepth: 16}
	f.Fuzz(func(t *testing.T, a, b string) {
		var objects []link.Object
		for _, text := range []string{a, b} {
			m, err := limits.Parse(text)
			if err != nil {
				return
			}
			objects = append(objects, link.Object{Name: "o", Module: m})
		}
		m, err := link.Link(objects, link.Options{})
		if err != nil {
			if list := (link.Errors)(nil); !errors.As(err, &list) || len(list) == 0 {
				t.Fatalf("%T: %v", err, err)
			}
			return
		}
		text := m.String()
		again, err := ptx.Parse(text)
		if err != nil {
			t.Fatalf("the result can't be parsed: %v\n%s", err, text)
		}
		if _, err := ptx.Resolve(again); err != nil {
			t.Fatalf("the result's names: %v\n%s", err, text)
		}
	})
}
