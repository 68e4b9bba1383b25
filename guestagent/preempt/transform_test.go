package preempt

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"vgpud/gpu/corpus"
	"vgpud/ptx"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func parse(t testing.TB, src string) *ptx.Module {
	t.Helper()
	m, err := ptx.Parse(src)
	if err != nil {
		t.Fatalf("parse: %v\n%s", err, src)
	}
	return m
}

// transform transforms src and checks what must hold of every output: it prints, parses to the same
// tree, binds, and has everything that the input had.
func transform(t testing.TB, src string, o Options) (*ptx.Module, map[string]Report) {
	t.Helper()
	m := parse(t, src)
	before := m.String()
	out, reports, err := Transform(m, o)
	if err != nil {
		t.Fatal(err)
	}
	if got := m.String(); got != before {
		t.Error("the module given was changed")
	}
	text := out.String()
	again := parse(t, text)
	if got := again.String(); got != text {
		t.Errorf("parsing the output gives another tree (-once +twice):\n%s", cmp.Diff(text, got))
	}
	prog, err := ptx.Resolve(again)
	if err != nil {
		t.Fatalf("the output does not bind: %v\n%s", err, text)
	}
	if _, err := ptx.Resolve(out); err != nil {
		t.Errorf("the tree that was put out does not bind: %v", err)
	}
	kept := 0
	for _, it := range m.Items {
		f, ok := it.(*ptx.Func)
		if !ok || f.Body == nil {
			continue
		}
		if c := prog.Code(f.Name); c == nil || (&ptx.Module{Items: []ptx.Item{c.Func}}).String() != (&ptx.Module{Items: []ptx.Item{f}}).String() {
			t.Errorf("%s was changed", f.Name)
		}
		kept++
	}
	byName := map[string]Report{}
	added := 0
	for _, r := range reports {
		byName[r.Kernel] = r
		for _, f := range r.Forms {
			c := prog.Code(EntryName(r.Kernel, f))
			if c == nil || !c.Func.Entry {
				t.Errorf("%s has no form %v", r.Kernel, f)
				continue
			}
			last := c.Func.Params[len(c.Func.Params)-1]
			if last.Size() != launchBytes || last.Alignment() != launchAlign {
				t.Errorf("the last parameter of %s is %d bytes, aligned to %d", c.Func.Name, last.Size(), last.Alignment())
			}
			added++
		}
		if len(r.Forms) > 0 != r.Preemptible && o.Forms == 0 || r.Reason == None && !r.Preemptible {
			t.Errorf("%s: a report that contradicts itself: %+v", r.Kernel, r)
		}
	}
	return out, byName
}

// corpusFiles calls f with each PTX file of the repository.
func corpusFiles(t testing.TB, f func(name, src string)) {
	for _, arch := range corpus.Arches() {
		for _, k := range corpus.All() {
			f(string(arch)+"/"+k.Name, k.PTX(arch))
		}
	}
	for _, pattern := range []string{"../../ptx/testdata/*.ptx", "../../ptx/testdata/real/*.ptx"} {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			t.Fatalf("no samples at %s: %v", pattern, err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			f(filepath.Base(name), string(text))
		}
	}
}

func TestCorpus(t *testing.T) {
	total, preemptible, looped := 0, 0, 0
	corpusFiles(t, func(name, src string) {
		_, reports := transform(t, src, Options{})
		for k, r := range reports {
			total++
			if r.Preemptible {
				preemptible++
			}
			if len(r.Forms) == 3 {
				looped++
			}
			if r.Reason != None {
				t.Logf("%s: %s: %v %v (%s)", name, k, r.Forms, r.Reason, r.Detail)
			}
		}
	})
	t.Logf("%d kernels, %d preemptible, %d in all forms", total, preemptible, looped)
	if preemptible*100 < total*93 {
		t.Errorf("%d of %d kernels are preemptible", preemptible, total)
	}
}

// TestGolden shows the transformation of some kernels to reviewers.
func TestGolden(t *testing.T) {
	for _, name := range []string{"vecadd", "transpose", "earlyreturn", "reduce", "calls_index", "legacy"} {
		t.Run(name, func(t *testing.T) {
			src, err := os.ReadFile(filepath.Join("testdata", name+".in.ptx"))
			if err != nil {
				k, ok := corpus.ByName(name)
				if !ok {
					t.Fatal(err)
				}
				src = []byte(k.PTX(corpus.SM90))
			}
			out, _ := transform(t, string(src), Options{})
			golden := filepath.Join("testdata", name+".golden.ptx")
			got := out.String()
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("output changed (-want +got):\n%s", diff)
			}
		})
	}
}

// kernelOf wraps a body as a kernel k(u64 p).
func kernelOf(body string) string {
	return moduleOf(`.visible .entry k(.param .u64 p)
{
	.reg .pred %p<9>;
	.reg .b16 %rs<9>;
	.reg .b32 %r<19>;
	.reg .b64 %rd<9>;
	.shared .b32 tile[64];
` + body + "\n}\n")
}

func moduleOf(items string) string {
	return ".version 8.0\n.target sm_80\n.address_size 64\n" + items
}

// entryText returns the text of a function of m, without what precedes its body.
func entryText(t *testing.T, m *ptx.Module, name string) string {
	t.Helper()
	for _, it := range m.Items {
		if f, ok := it.(*ptx.Func); ok && f.Name == name && f.Body != nil {
			return (&ptx.Module{Items: []ptx.Item{f}}).String()
		}
	}
	t.Fatalf("no function %s in\n%s", name, m)
	return ""
}

// count counts the lines of a function that contain a text.
func count(text, part string) int {
	n := 0
	for _, line := range strings.Split(text, "\n") {
		if strings.Contains(line, part) {
			n++
		}
	}
	return n
}
