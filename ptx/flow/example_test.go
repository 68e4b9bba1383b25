package flow_test

import (
	"fmt"

	"vgpud/ptx"
	"vgpud/ptx/flow"
)

// A barrier below "if (i >= n) return" is one that only some threads of a block may come to; where
// the condition is the same for all of them, all come or none.
func Example() {
	const kernel = `
.version 9.0
.target sm_90
.entry k(.param .u32 n) {
	.reg .u32 i, n1; .reg .pred p;
	ld.param.u32 n1, [n];
	mov.u32 i, %s;
	setp.ge.u32 p, i, n1;
	@p bra DONE;
	bar.sync 0;
DONE:
	ret;
}`
	for _, index := range []string{"%tid.x", "%ctaid.x"} {
		m, err := ptx.Parse(fmt.Sprintf(kernel, index))
		if err != nil {
			fmt.Println(err)
			return
		}
		p, err := ptx.Resolve(m)
		if err != nil {
			fmt.Println(err)
			return
		}
		g, err := flow.Build(p.Code("k"))
		if err != nil {
			fmt.Println(err)
			return
		}
		u := g.Uniformity()
		fmt.Printf("%s: lanes that part meet at instruction %d; the barrier's block is met by all or none: %v\n",
			index, g.Reconvergence(0), u.Convergent(g.BlockOf(4)))
	}
	// Output:
	// %tid.x: lanes that part meet at instruction 5; the barrier's block is met by all or none: false
	// %ctaid.x: lanes that part meet at instruction 5; the barrier's block is met by all or none: true
}
