package preempt

import (
	"fmt"
	"strings"
	"sync"

	"vgpud/mediator/vgpu/abi"
	"vgpud/ptx"
)

// The code that the forms put around a body. A name V_x or %V_x is one of ours and gets the module's prefix (see
// names); V_launch is the launch's appended parameter, and $word is a place in it (lower case) or in the control block
// (capitals), as package abi lays them out.
//
// All of it is straight-line code and branches that a whole block takes one way, save for what only the first thread
// does. The look itself is one reader and a barrier reduction, without shared memory:
// docs/results/preemption-on-h100.md measured it as the only form that costs a kernel with barriers nothing.

// fragFirst finds the first thread of the block and the control block.
const fragFirst = `
	.reg .pred %V_first;
	.reg .pred %V_p;
	.reg .b32 %V_a;
	.reg .b32 %V_b;
	.reg .b32 %V_t;
	.reg .b64 %V_control;
	.reg .b64 %V_at;
	.reg .b64 %V_off;
	mov.u32 %V_a, %tid.x;
	mov.u32 %V_b, %tid.y;
	or.b32 %V_a, %V_a, %V_b;
	mov.u32 %V_b, %tid.z;
	or.b32 %V_a, %V_a, %V_b;
	setp.eq.u32 %V_first, %V_a, 0;
	ld.param.u64 %V_control, [V_launch+$control];
	cvta.to.global.u64 %V_control, %V_control;
`

// fragLook is the early exit's look: the first thread reads the evict word, and all agree. The other threads' word is
// 0, below which no SM is.
const fragLook = `
	mov.u32 %V_b, 0;
	@%V_first ld.volatile.global.u32 %V_b, [%V_control+$EVICT];
	mov.u32 %V_a, %smid;
	setp.lt.u32 %V_p, %V_a, %V_b;
	bar.red.or.pred %V_p, 0, %V_p;
	@%V_p bra V_skip;
`

// fragUnit finds the unit of a block in a launch whose hardware grid is one of units.
const fragUnit = `
	mov.u32 %V_t, %ctaid.x;
	ld.param.u64 %V_at, [V_launch+$list];
	setp.eq.u64 %V_p, %V_at, 0;
	@%V_p bra V_run;
	cvta.to.global.u64 %V_at, %V_at;
	mul.wide.u32 %V_off, %V_t, 4;
	add.s64 %V_at, %V_at, %V_off;
	ld.global.u32 %V_t, [%V_at];
	bra V_unit;
V_run:
	ld.param.u32 %V_a, [V_launch+$first];
	add.u32 %V_t, %V_t, %V_a;
V_unit:
`

// fragWhole finds out whether the hardware's grid is the original one; if not, the unit must be found (fragUnit). It is
// kept until the look is over: what runs needs its place in the grid, what leaves its number.
const fragWhole = `
	.reg .pred %V_whole;
	ld.param.u32 %V_a, [V_launch+$flags];
	and.b32 %V_a, %V_a, 1;
	setp.ne.u32 %V_whole, %V_a, 0;
	@%V_whole bra V_look;
`

// fragLinear is the number of the unit to be skipped where the grid is the original one.
const fragLinear = `
	@!%V_whole bra V_known;
	mov.u32 %V_t, %ctaid.z;
	ld.param.u32 %V_a, [V_launch+$grid_y];
	mov.u32 %V_b, %ctaid.y;
	mad.lo.u32 %V_t, %V_t, %V_a, %V_b;
	ld.param.u32 %V_a, [V_launch+$grid_x];
	mov.u32 %V_b, %ctaid.x;
	mad.lo.u32 %V_t, %V_t, %V_a, %V_b;
V_known:
`

// fragNote notes unit %V_t as skipped, in the list or the bitmap, and ends the block. Only the first thread does.
const fragNote = `
	@!%V_first bra V_gone;
	atom.global.add.u32 %V_b, [%V_control+$SKIPPED], 1;
	ld.param.u64 %V_at, [V_launch+$skipped];
	cvta.to.global.u64 %V_at, %V_at;
	ld.param.u32 %V_a, [V_launch+$capacity];
	setp.eq.u32 %V_p, %V_a, 0;
	@%V_p bra V_bitmap;
	setp.ge.u32 %V_p, %V_b, %V_a;
	@%V_p bra V_gone;
	mul.wide.u32 %V_off, %V_b, 4;
	add.s64 %V_at, %V_at, %V_off;
	st.global.u32 [%V_at], %V_t;
	bra V_gone;
V_bitmap:
	shr.u32 %V_a, %V_t, 5;
	mul.wide.u32 %V_off, %V_a, 4;
	add.s64 %V_at, %V_at, %V_off;
	and.b32 %V_b, %V_t, 31;
	mov.u32 %V_a, 1;
	shl.b32 %V_a, %V_a, %V_b;
	red.global.or.b32 [%V_at], %V_a;
V_gone:
	ret;
`

// fragTasks turns unit %V_t into its first task and %V_left, how many there are.
const fragTasks = `
	.reg .b32 %V_left;
	ld.param.u32 %V_left, [V_launch+$group];
	mul.lo.u32 %V_t, %V_t, %V_left;
	ld.param.u32 %V_a, [V_launch+$tasks];
	setp.ge.u32 %V_p, %V_t, %V_a;
	@%V_p bra V_done;
	sub.u32 %V_a, %V_a, %V_t;
	min.u32 %V_left, %V_left, %V_a;
`

// fragGrid fetches the original grid's size: $n of x, y, z are wanted.
var fragGrid = [...]string{
	1: `
	.reg .b32 %V_gx;
	ld.param.u32 %V_gx, [V_launch+$grid_x];
`,
	2: `
	.reg .b32 %V_gy;
	ld.param.u32 %V_gy, [V_launch+$grid_y];
`,
	3: `
	.reg .b32 %V_gz;
	ld.param.u32 %V_gz, [V_launch+$grid_z];
`,
}

// fragIndex declares the task's index, as many components as are wanted.
var fragIndex = [...]string{
	1: `
	.reg .b32 %V_x;
`, 2: `
	.reg .b32 %V_y;
`, 3: `
	.reg .b32 %V_z;
`,
}

// fragOwn takes the hardware's index of the block.
var fragOwn = [...]string{
	1: `
	mov.u32 %V_x, %ctaid.x;
`, 2: `
	mov.u32 %V_y, %ctaid.y;
`, 3: `
	mov.u32 %V_z, %ctaid.z;
`}

// fragPlace finds the index of task %V_t, as many components as are wanted. A grid of one row needs no division.
var fragPlace = [...]string{
	1: `
	mov.u32 %V_x, %V_t;
	ld.param.u32 %V_a, [V_launch+$tasks];
	setp.eq.u32 %V_p, %V_gx, %V_a;
	@%V_p bra V_placed;
	rem.u32 %V_x, %V_t, %V_gx;
V_placed:
`, 2: `
	mov.u32 %V_x, %V_t;
	mov.u32 %V_y, 0;
	ld.param.u32 %V_a, [V_launch+$tasks];
	setp.eq.u32 %V_p, %V_gx, %V_a;
	@%V_p bra V_placed;
	div.u32 %V_a, %V_t, %V_gx;
	mul.lo.u32 %V_b, %V_a, %V_gx;
	sub.u32 %V_x, %V_t, %V_b;
	rem.u32 %V_y, %V_a, %V_gy;
V_placed:
`, 3: `
	mov.u32 %V_x, %V_t;
	mov.u32 %V_y, 0;
	mov.u32 %V_z, 0;
	ld.param.u32 %V_a, [V_launch+$tasks];
	setp.eq.u32 %V_p, %V_gx, %V_a;
	@%V_p bra V_placed;
	div.u32 %V_a, %V_t, %V_gx;
	mul.lo.u32 %V_b, %V_a, %V_gx;
	sub.u32 %V_x, %V_t, %V_b;
	div.u32 %V_z, %V_a, %V_gy;
	mul.lo.u32 %V_b, %V_z, %V_gy;
	sub.u32 %V_y, %V_a, %V_b;
V_placed:
`,
}

// fragStep goes on to the next task's index.
var fragStep = [...]string{
	1: `
	add.u32 %V_x, %V_x, 1;
	setp.ge.u32 %V_p, %V_x, %V_gx;
	selp.b32 %V_x, 0, %V_x, %V_p;
`, 2: `
	add.u32 %V_x, %V_x, 1;
	setp.ge.u32 %V_p, %V_x, %V_gx;
	selp.b32 %V_x, 0, %V_x, %V_p;
	@%V_p add.u32 %V_y, %V_y, 1;
	setp.ge.u32 %V_p, %V_y, %V_gy;
	selp.b32 %V_y, 0, %V_y, %V_p;
`, 3: `
	add.u32 %V_x, %V_x, 1;
	setp.ge.u32 %V_p, %V_x, %V_gx;
	selp.b32 %V_x, 0, %V_x, %V_p;
	@%V_p add.u32 %V_y, %V_y, 1;
	setp.ge.u32 %V_p, %V_y, %V_gy;
	selp.b32 %V_y, 0, %V_y, %V_p;
	@%V_p add.u32 %V_z, %V_z, 1;
`,
}

// fragSlot declares two places for the task that a persistent block fetched, of slotBytes. They are used in turn, so that
// one barrier a fetch is enough: the first thread can't write a place again before all have read it and come to the
// barrier in between.
//
// They stand behind the shared variables that the kernel's body begins with, and before all others: the assembler puts
// a function's own variables first, then the module's, then dynamic shared memory.
const fragSlot = `
	.shared .align 8 .b32 V_slot[2];
	.reg .b32 %V_place;
	mov.u32 %V_place, V_slot;
`

// fragSlotApart is fragSlot where there may be others. Programs rely on how those happen to be aligned, beyond what they
// declare (dynamic shared memory that begins where a block's does is a multiple of 1 KiB), so it moves them all by
// slotApartBytes, whatever it stands behind.
const fragSlotApart = `
	.shared .align 1 .b8 V_slot[1024];
	.reg .b32 %V_place;
	mov.u32 %V_place, V_slot;
	add.u32 %V_place, %V_place, 7;
	and.b32 %V_place, %V_place, -8;
`

// fragEnter is the start of a persistent block.
const fragEnter = `
	.reg .b32 %V_left;
	.reg .b32 %V_until;
	.reg .b32 %V_finished;
	mov.u32 %V_until, 0;
	mov.u32 %V_finished, 0;
	@%V_first red.global.add.u32 [%V_control+$INSIDE], 1;
`

// fragFetch fetches the next tasks: the first thread looks once in so many fetches, takes $group tasks from the
// counter, and tells the others. A block that leaves gets a task beyond all. The barrier is also what keeps the next
// task from a shared memory that others still use for the last one.
const fragFetch = `
V_fetch:
	@!%V_first bra V_share;
	setp.ne.u32 %V_p, %V_until, 0;
	@%V_p bra V_take;
	ld.param.u32 %V_until, [V_launch+$every];
	ld.volatile.global.u32 %V_b, [%V_control+$EVICT];
	mov.u32 %V_a, %smid;
	setp.lt.u32 %V_p, %V_a, %V_b;
	mov.u32 %V_t, -1;
	@%V_p bra V_tell;
V_take:
	sub.u32 %V_until, %V_until, 1;
	ld.param.u32 %V_a, [V_launch+$group];
	atom.global.add.u32 %V_t, [%V_control+$NEXT], %V_a;
V_tell:
	st.shared.u32 [%V_place], %V_t;
V_share:
`

// fragGot is the other half of a fetch, behind the barrier: all have the first task, or leave.
const fragGot = `
	ld.shared.u32 %V_t, [%V_place];
	xor.b32 %V_place, %V_place, 4;
	ld.param.u32 %V_a, [V_launch+$tasks];
	setp.ge.u32 %V_p, %V_t, %V_a;
	@%V_p bra V_leave;
	sub.u32 %V_a, %V_a, %V_t;
	ld.param.u32 %V_left, [V_launch+$group];
	min.u32 %V_left, %V_left, %V_a;
	add.u32 %V_finished, %V_finished, %V_left;
`

// fragLeave is the end of a persistent block.
const fragLeave = `
V_leave:
	@!%V_first bra V_gone;
	red.global.add.u32 [%V_control+$FINISHED], %V_finished;
	red.global.add.u32 [%V_control+$INSIDE], -1;
V_gone:
	ret;
`

// Barriers that some threads of a block pass by since they are done. All of them are one instruction, the hub: a thread
// that comes to one in the body goes to the hub, with the barrier's number in %V_state, and back behind its place; a
// thread that is done comes there with 0, again and again, until the reduction says that nobody came with another number.
//
// That it is one instruction matters. PTX lets lanes of one warp wait at different barrier instructions since sm_70, but
// what NVIDIA's assembler makes of that doesn't hold: on an H200 with CUDA 13.0, lanes that were done got the reduction's
// result in another's register, and with the need written to shared memory instead results were still wrong where lanes
// of a warp left a loop one by one. At the hub a warp's lanes come together before each barrier.

// fragNeed declares what the hub needs.
const fragNeed = `
	.reg .b32 %V_state;
	.reg .pred %V_met;
`

// fragHub is the hub, which comes at the end of a task. The list of ways back stands before fragAway.
const fragHub = `
	mov.u32 %V_state, 0;
V_hub:
	setp.ne.u32 %V_met, %V_state, 0;
	barrier.red.or.pred %V_met, 0, %V_met;
	@!%V_met bra V_over;
`

// fragAway leads back to where a thread came from.
const fragAway = `
	brx.idx %V_state, V_ways;
V_over:
`

// fragState is the way to the hub; the number is put in later.
const fragState = `
	mov.u32 %V_state, 0;
	bra V_hub;
`

// fragDrain waits for the copies into shared memory that the task has started and not waited for.
const fragDrain = `
	cp.async.wait_all;
`

// fragNext counts a task; the last one of a unit, or of a fetch, goes on at V_last.
const fragNext = `
	sub.u32 %V_left, %V_left, 1;
	setp.eq.u32 %V_p, %V_left, 0;
	@%V_p bra V_last;
`

// fragBlockMeets and fragWarpMeets keep the next task apart from the last one. fragThreadsMeet is for blocks whose warps
// may have come apart for good: a warp's threads that part at a barrier which is not aligned need not come together
// behind it, and then an aligned one never ends.
const (
	fragBlockMeets = `
	bar.sync 0;
`
	fragThreadsMeet = `
	barrier.sync 0;
`
	fragWarpMeets = `
	bar.warp.sync -1;
`
)

// fragArgs is the start of a device function that is given its task: index and grid, six words.
const fragArgs = `
	.reg .b32 %V_x;
	.reg .b32 %V_y;
	.reg .b32 %V_z;
	.reg .b32 %V_gx;
	.reg .b32 %V_gy;
	.reg .b32 %V_gz;
	ld.param.b32 %V_x, [V_task];
	ld.param.b32 %V_y, [V_task+4];
	ld.param.b32 %V_z, [V_task+8];
	ld.param.b32 %V_gx, [V_task+12];
	ld.param.b32 %V_gy, [V_task+16];
	ld.param.b32 %V_gz, [V_task+20];
`

// taskWords is how many words a device function is given of its task.
const taskWords = 6

// places turns $word into its offset.
var places = sync.OnceValue(func() *strings.Replacer {
	var pairs []string
	for _, f := range abi.PreemptArgsFields {
		pairs = append(pairs, "$"+f.Name, fmt.Sprint(f.Offset))
	}
	for _, w := range abi.ControlWords {
		pairs = append(pairs, "$"+w.Name, fmt.Sprint(w.Offset))
	}
	return strings.NewReplacer(pairs...)
})

// fragments keeps the parsed fragments by their text.
var fragments sync.Map

// fragment parses a fragment. Its text is ours, so that it parses is a matter of tests.
func fragment(text string) []ptx.Stmt {
	if s, ok := fragments.Load(text); ok {
		return s.([]ptx.Stmt)
	}
	m, err := ptx.Parse(".version 9.0\n.target sm_90\n.address_size 64\n.func fragment\n{\n" + places().Replace(text) + "}\n")
	if err != nil {
		panic(fmt.Sprintf("preempt: a fragment does not parse: %v\n%s", err, text))
	}
	body := m.Items[0].(*ptx.Func).Body.Stmts
	fragments.Store(text, body)
	return body
}
