package flow

import (
	"testing"

	"vgpud/ptx"
)

// FuzzBuild analyzes everything that parses and resolves.
func FuzzBuild(f *testing.F) {
	for _, body := range []string{
		"@p bra E; mov.b32 r, 1; E: bar.red.or.pred q, 0, p; @q exit; ret;",
		"t: .branchtargets A, B; A: @p brx.idx r, t; B: call (r), help, (r); trap;",
		"A: @p bra C; B: @q bra A; C: @p bra B; add.cc.u32 r, r, %tid.x; addc.u32 r, r, 1;",
		"call die; mov.b64 {r, _}, r; shfl.sync.up.b32 r|p, r, 1, 0, -1; bra r;",
	} {
		f.Add(body)
	}
	limits := ptx.Options{MaxBytes: 1 << 14, MaxStatements: 1 << 10}
	f.Fuzz(func(t *testing.T, body string) {
		m, err := limits.Parse(".version 9.0\n.target sm_90\n.extern .func die() .noreturn;\n.extern .func help();\n" +
			".entry f(.param .b32 n) { .reg .pred p, q; .reg .b32 r;\n" + body + "\n}\n")
		if err != nil {
			return
		}
		p, err := ptx.Resolve(m)
		if err != nil {
			return
		}
		for _, c := range p.Codes {
			g, err := Build(c)
			if err != nil {
				continue
			}
			u := g.Uniformity()
			for b := range g.Blocks {
				if at := g.Reconvergence(b); at < 0 || at > len(c.Instrs) {
					t.Fatalf("block %d meets again at %d of %d", b, at, len(c.Instrs))
				}
				if g.Blocks[b].Reachable != (g.Blocks[b].Ipdom != None) {
					t.Fatalf("block %d: reachable %v, post-dominator %d", b, g.Blocks[b].Reachable, g.Blocks[b].Ipdom)
				}
				u.Branch(b)
				u.Convergent(b)
			}
		}
	})
}
