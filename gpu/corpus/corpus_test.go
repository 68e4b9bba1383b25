package corpus

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// everyCase runs f on a case of every kernel and size.
func everyCase(t *testing.T, f func(t *testing.T, k Kernel, c *Case)) {
	t.Helper()
	for _, k := range All() {
		for _, size := range Sizes() {
			if testing.Short() && size == Large {
				continue
			}
			t.Run(fmt.Sprintf("%s/%s", k.Name, size), func(t *testing.T) { f(t, k, k.Case(size, 1)) })
		}
	}
}

var targets = regexp.MustCompile(`(?m)^\.target .*$`)

var entryName = regexp.MustCompile(`(?m)^\s*(?:\.visible\s+)?\.entry\s+(\w+)\(`)

func TestCatalogIsSortedAndUnique(t *testing.T) {
	names := make([]string, 0, len(catalog))
	for _, k := range All() {
		names = append(names, k.Name)
	}
	if !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Errorf("catalog is not sorted and unique: %v", names)
	}
}

func TestEveryFileBelongsToAKernel(t *testing.T) {
	for _, dir := range []string{"src", "ptx"} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			name, _, _ := strings.Cut(e.Name(), ".")
			if _, ok := ByName(name); !ok {
				t.Errorf("%s/%s belongs to no kernel", dir, e.Name())
			}
		}
	}
}

// entries returns the names of a module's .entry functions.
func entries(ptx string) (names []string) {
	for _, m := range entryName.FindAllStringSubmatch(ptx, -1) {
		names = append(names, m[1])
	}
	return names
}

func TestKernelsHaveSourceAndPTX(t *testing.T) {
	for _, k := range All() {
		source, err := os.ReadFile("src/" + k.Name + ".cu")
		if err != nil || !strings.Contains(string(source), "__global__") {
			t.Errorf("%s: source has no kernel (%v)", k.Name, err)
		}
		if len(entries(k.PTX(SM80))) == 0 {
			t.Errorf("%s: PTX has no entries", k.Name)
		}
		for _, arch := range Arches() {
			ptx := k.PTX(arch)
			if got, want := targets.FindAllString(ptx, -1), []string{".target " + string(arch)}; !slices.Equal(got, want) {
				t.Errorf("%s: PTX for %s has the directives %q, want %q", k.Name, arch, got, want)
			}
		}
	}
}

func TestCasesAreWellFormed(t *testing.T) {
	everyCase(t, func(t *testing.T, k Kernel, c *Case) {
		ptx := k.PTX(SM80)
		seen := map[string]bool{}
		for _, b := range c.Buffers {
			if seen[b.Name] {
				t.Errorf("buffer %s occurs twice", b.Name)
			}
			seen[b.Name] = true
			if b.Size <= 0 || b.Size%b.Elem.Bytes() != 0 {
				t.Errorf("buffer %s has %d bytes, not whole elements", b.Name, b.Size)
			}
			if hasInit := b.Mode == In || b.Mode == InOut; hasInit != (len(b.Init) == b.Size) || !hasInit && b.Init != nil {
				t.Errorf("buffer %s of mode %d and %d bytes has %d initial", b.Name, b.Mode, b.Size, len(b.Init))
			}
			if hasWant := b.Mode == Out || b.Mode == InOut; hasWant != (len(b.Want) == b.Size) || !hasWant && b.Want != nil {
				t.Errorf("buffer %s of mode %d and %d bytes has %d wanted", b.Name, b.Mode, b.Size, len(b.Want))
			}
			if !b.Within.exact() && b.Within.Why == "" {
				t.Errorf("buffer %s has a tolerance without a reason", b.Name)
			}
			if b.Global != "" && !strings.Contains(ptx, " "+b.Global+"[") && !strings.Contains(ptx, " "+b.Global+";") && !strings.Contains(ptx, " "+b.Global+" ") {
				t.Errorf("buffer %s: the module has no variable %s", b.Name, b.Global)
			}
		}
		all, used := entries(ptx), map[string]bool{}
		for i, l := range c.Steps {
			used[l.Entry] = true
			if !slices.Contains(all, l.Entry) {
				t.Errorf("step %d launches %q, not an entry of %s", i, l.Entry, k.Name)
			}
			if l.Threads() == 0 || l.Block[0]*l.Block[1]*l.Block[2] > 1024 {
				t.Errorf("step %d has grid %v and block %v", i, l.Grid, l.Block)
			}
			if params := parameters(t, ptx, l.Entry); len(params) != len(l.Args) {
				t.Errorf("step %d passes %d arguments to %s, which has %d", i, len(l.Args), l.Entry, len(params))
			} else {
				for p, a := range l.Args {
					if size := argBytes(a); size != params[p] {
						t.Errorf("step %d: argument %d of %s has %d bytes, want %d", i, p, l.Entry, size, params[p])
					}
				}
			}
			for p, a := range l.Args {
				if a.Buffer == "" {
					continue
				}
				if b := c.Buffer(a.Buffer); b == nil || a.Offset >= uint64(b.Size) {
					t.Errorf("step %d: argument %d points %d bytes into buffer %q, which is not there", i, p, a.Offset, a.Buffer)
				}
			}
		}
		if len(used) != len(all) {
			t.Errorf("steps launch %v of the entries %v", used, all)
		}
	})
}

func argBytes(a Arg) int {
	if a.Buffer != "" {
		return 8
	}
	return len(a.Bytes)
}

var param = regexp.MustCompile(`\.param\s+(?:\.align\s+\d+\s+)?\.([a-z])(\d+)\s+(?:\.ptr\s+(?:\.\w+\s+)*(?:\d+\s+)?)?\w+(?:\[(\d+)\])?`)

// parameters returns the sizes in bytes of entry's parameters.
func parameters(t *testing.T, ptx, entry string) []int {
	t.Helper()
	_, rest, ok := strings.Cut(ptx, ".entry "+entry+"(")
	if !ok {
		t.Fatalf("PTX has no entry %s", entry)
	}
	list, _, _ := strings.Cut(rest, ")")
	var sizes []int
	for _, m := range param.FindAllStringSubmatch(list, -1) {
		bits, count := 0, 1
		fmt.Sscan(m[2], &bits)
		if m[3] != "" {
			fmt.Sscan(m[3], &count)
		}
		sizes = append(sizes, bits/8*count)
	}
	return sizes
}

func TestCasesFollowFromTheSeed(t *testing.T) {
	for _, k := range All() {
		if a, b := k.Case(Small, 7), k.Case(Small, 7); !reflect.DeepEqual(a, b) {
			t.Errorf("%s: equal seeds give different cases", k.Name)
		}
		if a, b := k.Case(Trivial, 7), k.Case(Trivial, 8); reflect.DeepEqual(a.Buffers, b.Buffers) {
			t.Errorf("%s: different seeds give equal inputs and results", k.Name)
		}
	}
}

func TestCheck(t *testing.T) {
	c := vecadd.Case(Trivial, 1)
	want := c.Buffer("c").Want
	if err := c.Check("c", want); err != nil {
		t.Errorf("the reference fails its own check: %v", err)
	}
	wrong := bytes.Clone(want)
	wrong[4*17] ^= 1
	var m *Mismatch
	if err := c.Check("c", wrong); !errors.As(err, &m) || m.Index != 17 || m.Bad != 1 {
		t.Errorf("one wrong bit in element 17: got %v", err)
	}
	if err := c.Check("a", want); !errors.As(err, &m) || m.Buffer != "a" {
		t.Errorf("an input that was overwritten: got %v", err)
	}
	if c.Check("c", want[1:]) == nil || c.Check("nothing", nil) == nil {
		t.Error("a wrong length or name is accepted")
	}
	c.Buffer("c").Within = Tolerance{Abs: 1e-3, Why: "test"}
	if err := c.Check("c", wrong); err != nil {
		t.Errorf("one wrong last bit within a tolerance: got %v", err)
	}
	wrong[4*17+2], wrong[4*17+3] = 0xc0, 0x7f // a NaN
	if c.Check("c", wrong) == nil {
		t.Error("a NaN is within the tolerance")
	}
}

func TestCheckPrinted(t *testing.T) {
	c := &Case{Printed: []string{"a", "b"}}
	for output, ok := range map[string]bool{"b\na\n": true, "a\nb": true, "a\n": false, "a\nb\nc\n": false, "": false, "a\na\n": false} {
		if err := c.CheckPrinted(output); (err == nil) != ok {
			t.Errorf("output %q: got %v", output, err)
		}
	}
}

func TestParseSize(t *testing.T) {
	for _, s := range Sizes() {
		if got, err := ParseSize(s.String()); err != nil || got != s {
			t.Errorf("ParseSize(%q) = %v, %v", s.String(), got, err)
		}
	}
	if _, err := ParseSize("huge"); err == nil {
		t.Error("ParseSize accepts huge")
	}
}
