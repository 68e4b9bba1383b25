package ptx_test

import (
	"fmt"

	"vgpud/ptx"
)

// Every instruction is read by its form, and printing gives back what was read.
func ExampleParse() {
	m, err := ptx.Parse(`
.version 9.0
.target sm_90
.address_size 64
.visible .entry inc(.param .u64 p) {
	.reg .b32 %r<3>; .reg .b64 %rd<2>;
	ld.param.u64 %rd1, [p];
	ld.global.u32 %r1, [%rd1];  // a comment
	add.u32 %r2, %r1, (1 + 1) * 3;
	st.global.u32 [%rd1], %r2;
	ret;
}`)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(m)
	// Output:
	// .version 9.0
	// .target sm_90
	// .address_size 64
	//
	// .visible .entry inc(
	// 	.param .u64 p
	// )
	// {
	// 	.reg .b32 %r<3>;
	// 	.reg .b64 %rd<2>;
	// 	ld.param.u64 %rd1, [p];
	// 	ld.global.u32 %r1, [%rd1];
	// 	add.u32 %r2, %r1, 6;
	// 	st.global.u32 [%rd1], %r2;
	// 	ret;
	// }
}

// Resolve gives each function's registers dense numbers and lists its instructions without blocks.
func ExampleResolve() {
	m, err := ptx.Parse(`
.version 9.0
.target sm_90
.func (.param .b32 sum) add3(.param .b32 a) {
	.reg .b32 %r<9>;
	ld.param.b32 %r7, [a];
	{ .reg .b32 t; add.s32 t, %r7, 3; mov.b32 %r2, t; }
	st.param.b32 [sum], %r2;
	ret;
}`)
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := ptx.Resolve(m)
	if err != nil {
		fmt.Println(err)
		return
	}
	c := p.Code("add3")
	for _, r := range c.Regs {
		fmt.Println(r.Index, r.Name, r.Type)
	}
	store := c.Instrs[3].Operands
	fmt.Println(store[0].Sym.Name, store[0].Sym.Return, store[1].Sym.Index)
	// Output:
	// 0 %r7 b32
	// 1 t b32
	// 2 %r2 b32
	// sum true 2
}
