package hard

import (
	"fmt"
	"strings"

	"vgpud/gpu/corpus"
)

// Later is a kernel whose blocks wait for later blocks, or for all blocks. It ends if the GPU holds
// the whole grid at once, but in no form that may run fewer blocks at a time.
type Later struct {
	Name  string
	Block uint32 // threads
	text  string
}

// LaterBlocks is the size of the grid of every [Later].
const LaterBlocks = 8

// headOfLater declares the kernels' registers: slot is the block's word of out, and result its word
// of results after that.
const headOfLater = `.version 8.0
.target sm_90
.address_size 64
.func (.param .b32 v) peek(.param .b64 at)
{
	.reg .b64 %%rd<2>;
	.reg .b32 %%r<2>;
	ld.param.u64 %%rd1, [at];
	ld.global.u32 %%r1, [%%rd1];
	st.param.b32 [v], %%r1;
	ret;
}
.visible .entry %s(.param .u64 out, .param .u64 in, .param .u32 n)
{
	.reg .b32 %%me, %%block, %%blocks, %%v, %%w, %%box, %%r<9>;
	.reg .b64 %%flags, %%slot, %%result, %%at, %%rd<9>;
	.reg .pred %%p<9>;
	.shared .align 4 .u32 box;
	mov.u32 %%me, %%tid.x;
	mov.u32 %%block, %%ctaid.x;
	mov.u32 %%blocks, %%nctaid.x;
	mov.u32 %%box, box;
	ld.param.u64 %%flags, [out];
	mul.wide.u32 %%rd1, %%block, 4;
	add.s64 %%slot, %%flags, %%rd1;
	add.s64 %%result, %%slot, 8192;
`

// chain makes a block wait for the flag of the next block. poll reads the flag into %v; %p1 then
// holds if it is not set. The results count the blocks from the last one on. set sets the block's
// own flag.
func chain(name string, threads uint32, poll, set string) Later {
	return Later{name, threads, fmt.Sprintf(headOfLater, name) + `
	mov.u32 %w, 0;
	add.u32 %r1, %block, 1;
	setp.eq.u32 %p2, %r1, %blocks;
	@%p2 bra LAST;
AGAIN:
` + poll + `
	@%p1 bra AGAIN;
	ld.volatile.global.u32 %w, [%result+4];
LAST:
	add.u32 %w, %w, 1;
	st.volatile.global.u32 [%result], %w;
	membar.gl;
` + set + `
	ret;
}
`}
}

// barrier makes all blocks wait with the code in wait, and then read what the last block wrote
// before.
func barrier(name string, threads uint32, wait string) Later {
	return Later{name, threads, fmt.Sprintf(headOfLater, name) + `
	add.u32 %r1, %block, 5;
	st.volatile.global.u32 [%result], %r1;
	membar.gl;
` + wait + `
	sub.u32 %r1, %blocks, 1;
	sub.u32 %r1, %r1, %block;
	mul.wide.u32 %rd1, %r1, 4;
	add.s64 %rd1, %flags, %rd1;
	ld.volatile.global.u32 %r1, [%rd1+8192];
	st.volatile.global.u32 [%result+8192], %r1;
	ret;
}
`}
}

const (
	set      = "\tst.volatile.global.u32 [%slot], 1;"
	setSign  = "\tatom.global.or.b32 %r2, [%slot], 0x80000000;"
	untilSet = "\tsetp.eq.u32 %p1, %v, 0;"
)

var laters = []Later{
	barrier("dissemination", 1, `
	mov.u32 %r2, 1;
	mov.u64 %at, %flags;
ROUND:
	add.u32 %r3, %block, %r2;
	rem.u32 %r3, %r3, %blocks;
	mul.wide.u32 %rd2, %r3, 4;
	add.s64 %rd3, %at, %rd2;
	st.volatile.global.u32 [%rd3], 1;
	add.s64 %rd4, %at, %rd1;
AGAIN:
	ld.volatile.global.u32 %v, [%rd4];
	setp.eq.u32 %p1, %v, 0;
	@%p1 bra AGAIN;
	add.s64 %at, %at, 256;
	shl.b32 %r2, %r2, 1;
	setp.lt.u32 %p2, %r2, %blocks;
	@%p2 bra ROUND;`),
	// The first block's threads wait for one block each, and then release it.
	barrier("lock_free", LaterBlocks, `
	setp.eq.u32 %p3, %me, 0;
	@%p3 st.volatile.global.u32 [%slot], 1;
	setp.ne.u32 %p2, %block, 0;
	@%p2 bra TOLD;
	mov.u32 %r2, %ntid.x;
	mad.lo.u32 %r3, %block, %r2, %me;
	mul.wide.u32 %rd2, %r3, 4;
	add.s64 %rd2, %flags, %rd2;
ARRIVED:
	ld.volatile.global.u32 %v, [%rd2];
	setp.eq.u32 %p1, %v, 0;
	@%p1 bra ARRIVED;
	bar.sync 0;
	st.volatile.global.u32 [%rd2+1024], 1;
TOLD:
	ld.volatile.global.u32 %v, [%slot+1024];
	setp.eq.u32 %p1, %v, 0;
	@%p1 bra TOLD;
	bar.sync 0;`),
	chain("stream_k", 1, "\tatom.global.cas.b32 %v, [%slot+4], 1, 1;\n\tsetp.ne.u32 %p1, %v, 1;", set),
	chain("by_cas_of_zero", 1, "\tatom.global.cas.b32 %v, [%slot+4], 0, 0;\n"+untilSet, set),
	chain("by_cas_that_takes", 1, "\tatom.global.cas.b32 %v, [%slot+4], 1, 2;\n\tsetp.ne.u32 %p1, %v, 1;", set),
	chain("by_add_of_nothing", 1, "\tatom.global.add.u32 %v, [%slot+4], 0;\n"+untilSet, set),
	chain("by_add_of_a_zero", 1, "\tatom.global.add.u32 %v, [%slot+4], %me;\n"+untilSet, set),
	chain("by_add", 1, "\tatom.global.add.u32 %v, [%slot+4], 1;\n\tsetp.ge.s32 %p1, %v, 0;", setSign),
	chain("by_inc", 1, "\tatom.global.inc.u32 %v, [%slot+4], 0xffffffff;\n\tsetp.ge.s32 %p1, %v, 0;", setSign),
	chain("by_inc_of_nothing", 1, "\tatom.global.inc.u32 %v, [%slot+4], 0;\n"+untilSet, set),
	chain("by_or", 1, "\tatom.global.or.b32 %v, [%slot+4], 0;\n"+untilSet, set),
	chain("by_async_copy", 32, `
	cp.async.ca.shared.global [box], [%slot+4], 4;
	cp.async.wait_all;
	ld.shared.u32 %v, [box];
	setp.eq.u32 %p1, %v, 0;`, set),
	chain("by_weak_load", 1, "\tld.global.u32 %v, [%slot+4];\n"+untilSet, set),
	chain("by_generic_load", 1, "\tld.u32 %v, [%slot+4];\n"+untilSet, set),
	chain("by_read_only_load", 1, "\tld.global.nc.u32 %v, [%slot+4];\n"+untilSet, set),
	chain("by_weak_load_between_barriers", 32, `
	bar.sync 0;
	ld.global.u32 %v, [%slot+4];
	bar.sync 0;
	setp.eq.u32 %p1, %v, 0;`, set),
	chain("by_weak_load_of_one_thread", 32, `
	setp.ne.u32 %p3, %me, 0;
	@%p3 bra MEET;
	ld.global.u32 %v, [%slot+4];
	st.shared.u32 [box], %v;
MEET:
	bar.sync 0;
	ld.shared.u32 %v, [box];
	bar.sync 0;
	setp.eq.u32 %p1, %v, 0;`, set),
	chain("by_reduction", 32, `
	ld.global.u32 %v, [%slot+4];
	setp.eq.u32 %p3, %v, 0;
	bar.red.or.pred %p1, 0, %p3;`, set),
	chain("by_function", 32, `
	bar.sync 0;
	add.s64 %at, %slot, 4;
	{
	.param .b64 x;
	.param .b32 y;
	st.param.b64 [x], %at;
	call (y), peek, (x);
	ld.param.b32 %v, [y];
	}
	setp.eq.u32 %p1, %v, 0;`, set),
	// The shift amount makes the index zero.
	chain("by_index_that_overflows", 1, `
	add.u32 %r4, %r4, 0x10000;
	shl.b32 %r5, %r4, 16;
	mul.wide.u32 %rd4, %r5, 4;
	add.s64 %rd5, %slot, %rd4;
	ld.volatile.global.u32 %v, [%rd5+4];
	setp.eq.u32 %p1, %v, 0;`, set),
	chain("by_long_index_that_overflows", 1, `
	add.u64 %rd4, %rd4, 1;
	shl.b64 %rd5, %rd4, 16;
	shl.b64 %rd6, %rd5, 16;
	shl.b64 %rd7, %rd6, 16;
	shl.b64 %rd8, %rd7, 16;
	add.s64 %rd8, %slot, %rd8;
	ld.volatile.global.u32 %v, [%rd8+4];
	setp.eq.u32 %p1, %v, 0;`, set),
	// A later block's flag at an address that still grows with the block's index.
	chain("as_look_back", 1, `
	ld.acquire.gpu.global.u32 %v, [%slot+60];
	setp.eq.u32 %p1, %v, 0;`, "\tst.release.gpu.global.u32 [%slot+56], 1;"),
	// Two words are polled alternately.
	chain("in_turns", 1, `
	xor.b32 %r3, %r3, 1024;
	and.b32 %r3, %r3, 1024;
	cvt.u64.u32 %rd2, %r3;
	add.s64 %rd2, %slot, %rd2;
	ld.global.u32 %v, [%rd2+4];
	setp.eq.u32 %p1, %v, 0;`, set+"\n\tst.volatile.global.u32 [%slot+1024], 1;"),
	// A wait that gives up after a long time is still a wait.
	chain("with_patience", 1, `
	ld.volatile.global.u32 %v, [%slot+4];
	setp.eq.u32 %p1, %v, 0;
	add.u32 %r4, %r4, 1;
	setp.lt.u32 %p3, %r4, 1000000000;
	and.pred %p1, %p1, %p3;`, set),
}

// Laters returns all kernels of this kind.
func Laters() []Later { return laters }

// PTX returns the kernel's module.
func (k *Later) PTX() string { return k.text }

// Case returns the kernel's launch, with the contents that it leaves in out.
func (k *Later) Case() *corpus.Case {
	t := Trick{Entry: k.Name, Grid: g(LaterBlocks), Block: g(k.Block)}
	return t.Case()
}

// Chained reports whether each block waits for the next.
func (k *Later) Chained() bool { return strings.Contains(k.text, "LAST:") }
