package flow

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vgpud/ptx"
)

// samples calls do for every function with a body in the sample files.
func samples(t *testing.T, do func(file string, c *ptx.Code)) {
	t.Helper()
	n := 0
	for _, pattern := range []string{"../testdata/nvcc_*.ptx", "../testdata/triton.ptx", "../../gpu/corpus/ptx/*.ptx"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			m, err := ptx.Parse(string(text))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			p, err := ptx.Resolve(m)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			for _, c := range p.Codes {
				do(name, c)
				n++
			}
		}
	}
	if n < 5 {
		t.Fatalf("only %d functions in the samples", n)
	}
}

// TestSamples checks that compilers' functions have the usual graphs: they are reducible, end, and
// most of their barriers are reached by whole blocks.
func TestSamples(t *testing.T) {
	barriers, together := 0, 0
	samples(t, func(file string, c *ptx.Code) {
		g, err := Build(c)
		if err != nil {
			t.Errorf("%s: %s: %v", file, c.Func.Name, err)
			return
		}
		if !g.Reducible || len(g.endless) > 0 {
			t.Errorf("%s: %s: reducible %v, endless cycles %v", file, c.Func.Name, g.Reducible, g.endless)
		}
		u := g.Uniformity()
		for b := range g.Blocks {
			if !g.Blocks[b].Reachable {
				continue
			}
			for i := g.Blocks[b].First; i < g.Blocks[b].End; i++ {
				if op := c.Instrs[i].Opcode; op != "bar" && op != "barrier" || c.Instrs[i].Has("warp") {
					continue
				}
				barriers++
				if u.Convergent(b) {
					together++
				} else if testing.Verbose() {
					t.Logf("%s: %s line %d: a barrier that threads may come to apart", filepath.Base(file), c.Func.Name, c.Instrs[i].Pos.Line)
				}
			}
		}
	})
	t.Logf("%d barriers, %d of them met by whole blocks", barriers, together)
	if together*2 < barriers {
		t.Errorf("of %d barriers only %d are met by whole blocks", barriers, together)
	}
}

// TestSampleUniformity examines a kernel in the style of a compiler's output, with the guard "if (i
// >= n) return".
func TestSampleUniformity(t *testing.T) {
	found := false
	samples(t, func(file string, c *ptx.Code) {
		if !strings.HasSuffix(file, "nvcc_release.ptx") || c.Func.Name != "_Z6vecaddPKfS0_Pfi" {
			return
		}
		found = true
		g, err := Build(c)
		if err != nil {
			t.Fatal(err)
		}
		u := g.Uniformity()
		if u.Branch(0) || u.Convergent(1) || !u.Convergent(2) || g.Blocks[0].Ipdom != 2 {
			t.Errorf("branch uniform: %v, body together: %v, end together: %v, meeting at block %d",
				u.Branch(0), u.Convergent(1), u.Convergent(2), g.Blocks[0].Ipdom)
		}
		var uniform []string
		for _, s := range c.Regs {
			if u.Uniform(s) {
				uniform = append(uniform, s.Name)
			}
		}
		if got, want := strings.Join(uniform, " "), "%rd1 %rd2 %rd3 %r2 %r3 %r4"; got != want {
			t.Errorf("uniform registers %s, want %s", got, want)
		}
	})
	if !found {
		t.Error("the sample is not there")
	}
}
