package ptx

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// diff compares modules except for positions, what Resolve adds, and warnings. It clears those in
// both.
func diff(a, b *Module) string {
	for _, m := range []*Module{a, b} {
		m.Warnings = nil
		forget(reflect.ValueOf(m))
	}
	if reflect.DeepEqual(a, b) {
		return ""
	}
	return cmp.Diff(a, b) // slower by far, and readable
}

// forget clears positions and symbols in everything that v leads to.
func forget(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return
		}
		if v.Type() == reflect.TypeFor[*Symbol]() {
			v.SetZero()
			return
		}
		forget(v.Elem())
	case reflect.Slice:
		if e := v.Type().Elem(); e.Kind() == reflect.String || e == reflect.TypeFor[*Symbol]() {
			return
		}
		for i := range v.Len() {
			forget(v.Index(i))
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[Pos]() {
			v.SetZero()
			return
		}
		for i := range v.NumField() {
			forget(v.Field(i))
		}
	}
}

// samples returns the PTX files to test with: ours, and our kernels' as clang compiled them.
func samples(t testing.TB) map[string]string {
	t.Helper()
	out := map[string]string{}
	var names []string
	for _, pattern := range []string{"testdata/*.ptx", "../gpu/corpus/ptx/*.ptx"} {
		more, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, more...)
	}
	if dir := os.Getenv("PTX_CORPUS"); dir != "" { // a directory of anyone's PTX files
		filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() && filepath.Ext(path) == ".ptx" {
				names = append(names, path)
			}
			return nil
		})
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = string(text)
	}
	if len(out) < 5 {
		t.Fatalf("found only %d sample files", len(out))
	}
	return out
}

func TestPrintedSamplesParseToTheSameTree(t *testing.T) {
	for name, src := range samples(t) {
		t.Run(name, func(t *testing.T) {
			m, err := Parse(src)
			if err != nil {
				for _, e := range err.(Errors) {
					t.Error(e)
				}
				return
			}
			text := m.String()
			again, err := Parse(text)
			if err != nil {
				t.Fatalf("printed module does not parse: %v\n%s", err, text)
			}
			if s := again.String(); s != text {
				t.Error("printing the second tree gives another text")
			}
			if d := diff(m, again); d != "" {
				t.Fatalf("tree after printing and parsing (-first +second):\n%s", d)
			}
		})
	}
}
