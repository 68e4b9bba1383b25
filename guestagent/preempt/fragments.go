package preempt

import (
	"fmt"
	"strings"
	"sync"

	"vgpud/mediator/vgpu/abi"
	"vgpud/ptx"
)

// The code that the forms put around a body. A name V_x or %V_x belongs to the transformation and
// gets the module's prefix (see names); V_launch is the launch's appended parameter, and $word is
// the offset of a field in it (lower case) or in the control block (capitals), as package abi
// defines them.
//
// All of it is straight-line code and branches that a whole block takes the same way, except for
// what only the first thread does. The check of the evict word itself is one reader and a barrier
// reduction, without shared memory: docs/results/preemption-on-h100.md measured it as the only kind
// that costs a kernel with barriers nothing.

// fragFirst finds the block's first thread and the control block.
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

// fragCheck is the check of the early exit: the first thread reads the evict word, and all agree.
// The other threads use 0, below which no SM is.
const fragCheck = `
	mov.u32 %V_b, 0;
	@%V_first ld.volatile.global.u32 %V_b, [%V_control+$EVICT];
	mov.u32 %V_a, %smid;
	setp.lt.u32 %V_p, %V_a, %V_b;
	bar.red.or.pred %V_p, 0, %V_p;
	@%V_p bra V_skip;
`

// fragUnit computes the unit of a block in a launch whose hardware grid consists of units.
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

// fragOriginal finds out whether the hardware's grid is the original one; if not, fragUnit computes
// the unit. The result is kept until after the check: a block that runs needs its place in the
// grid, one that leaves its number.
const fragOriginal = `
	.reg .pred %V_whole;
	ld.param.u32 %V_a, [V_launch+$flags];
	and.b32 %V_a, %V_a, 1;
	setp.ne.u32 %V_whole, %V_a, 0;
	@%V_whole bra V_look;
`

// fragLinear computes the number of the unit to be skipped if the grid is the original one.
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

// fragSkip records unit %V_t as skipped, in the list or the bitmap, and ends the block. Only the
// first thread does so. It waits for nothing where there is a bitmap, so that a block of 1,024
// threads takes an H100 2.7 ns to start and leave, and 3.3 for a place in a list: there may be tens
// of thousands.
const fragSkip = `
	@!%V_first bra V_gone;
	ld.param.u64 %V_at, [V_launch+$skipped];
	cvta.to.global.u64 %V_at, %V_at;
	ld.param.u32 %V_a, [V_launch+$capacity];
	setp.eq.u32 %V_p, %V_a, 0;
	@%V_p bra V_bitmap;
	atom.global.add.u32 %V_b, [%V_control+$SKIPPED], 1;
	setp.ge.u32 %V_p, %V_b, %V_a;
	@%V_p bra V_gone;
	mul.wide.u32 %V_off, %V_b, 4;
	add.s64 %V_at, %V_at, %V_off;
	st.global.u32 [%V_at], %V_t;
	bra V_gone;
V_bitmap:
	red.global.add.u32 [%V_control+$SKIPPED], 1;
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

// fragTasks turns unit %V_t into its first task and the number of its tasks, %V_left.
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

// fragGrid loads the original grid's size, as many of x, y and z as are needed.
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

// fragIndexRegs declares the task's index, as many components as are needed.
var fragIndexRegs = [...]string{
	1: `
	.reg .b32 %V_x;
`, 2: `
	.reg .b32 %V_y;
`, 3: `
	.reg .b32 %V_z;
`,
}

// fragHardwareIndex copies the hardware's index of the block.
var fragHardwareIndex = [...]string{
	1: `
	mov.u32 %V_x, %ctaid.x;
`, 2: `
	mov.u32 %V_y, %ctaid.y;
`, 3: `
	mov.u32 %V_z, %ctaid.z;
`}

// fragFirstIndex computes the index of task %V_t, as many components as are needed. A grid of one
// row needs no division.
var fragFirstIndex = [...]string{
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

// fragStep advances to the next task's index.
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

// fragSlot declares two slots for the task that a persistent block fetched, of slotBytes together.
// They are used in turn, so that one barrier per fetch is enough: the first thread can't write a
// slot again before all threads have read it and come to the barrier in between.
//
// They follow the shared variables that the kernel's body begins with and precede all others: the
// assembler places a function's own variables first, then the module's, then dynamic shared memory.
const fragSlot = `
	.shared .align 8 .b32 V_slot[2];
	.reg .b32 %V_place;
	mov.u32 %V_place, V_slot;
`

// fragSlotPadded is fragSlot for kernels whose variables may follow the slots. Programs rely on
// alignment beyond what they declare (dynamic shared memory that starts where a block's does is
// aligned to 1 KiB), so it moves them all by slotPaddedBytes, whatever precedes it.
const fragSlotPadded = `
	.shared .align 1 .b8 V_slot[1024];
	.reg .b32 %V_place;
	mov.u32 %V_place, V_slot;
	add.u32 %V_place, %V_place, 7;
	and.b32 %V_place, %V_place, -8;
`

// fragEnter starts a persistent block.
const fragEnter = `
	.reg .b32 %V_left;
	.reg .b32 %V_until;
	mov.u32 %V_until, 0;
	@%V_first red.global.add.u32 [%V_control+$INSIDE], 1;
`

// fragFetch fetches the next tasks: the first thread checks the evict word once in a number of
// fetches, takes $group tasks from the counter, and shares the result. A block that leaves gets a
// number beyond all tasks. The barrier also keeps the next task from using shared memory that
// threads still use for the previous one.
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

// fragFetched is the part of a fetch behind the barrier: all threads read the first task, or leave.
// They finish them before they leave, so that nobody counts those that are finished. A register more
// for a count had loops of a few instructions take an H100 5 % longer, and a count in memory kernels
// of short tasks 3 %.
const fragFetched = `
	ld.shared.u32 %V_t, [%V_place];
	xor.b32 %V_place, %V_place, 4;
	ld.param.u32 %V_a, [V_launch+$tasks];
	setp.ge.u32 %V_p, %V_t, %V_a;
	@%V_p bra V_leave;
	sub.u32 %V_a, %V_a, %V_t;
	ld.param.u32 %V_left, [V_launch+$group];
	min.u32 %V_left, %V_left, %V_a;
`

// fragLeave ends a persistent block.
const fragLeave = `
V_leave:
	@!%V_first bra V_gone;
	red.global.add.u32 [%V_control+$INSIDE], -1;
V_gone:
	ret;
`

// Barriers that some threads of a block miss because they have returned. All of them become one
// instruction, the hub: a thread that comes to a barrier in the body goes to the hub, with the
// barrier's number in %V_state, and then back behind its barrier; a thread that is done comes there
// with 0, again and again, until the reduction shows that no thread came with another number.
//
// It must be a single instruction. PTX allows lanes of a warp to wait at different barrier
// instructions since sm_70, but code from NVIDIA's assembler does not keep to that: on an H200 with
// CUDA 13.0, lanes that were done got the reduction's result in another lane's register, and with
// the result in shared memory instead there were still wrong values where lanes of a warp left a
// loop one by one. At the hub a warp's lanes converge before each barrier.

// fragHubRegs declares the hub's registers.
const fragHubRegs = `
	.reg .b32 %V_state;
	.reg .pred %V_met;
`

// fragHub is the hub, at the end of a task. The list of return labels stands before fragReturn.
const fragHub = `
	mov.u32 %V_state, 0;
V_hub:
	setp.ne.u32 %V_met, %V_state, 0;
	barrier.red.or.pred %V_met, 0, %V_met;
	@!%V_met bra V_over;
`

// fragReturn branches back to where a thread came from.
const fragReturn = `
	brx.idx %V_state, V_ways;
V_over:
`

// fragToHub branches to the hub; the barrier's number is filled in later.
const fragToHub = `
	mov.u32 %V_state, 0;
	bra V_hub;
`

// fragDrain waits for asynchronous copies to shared memory that the task started and did not wait
// for.
const fragDrain = `
	cp.async.wait_all;
`

// fragNext counts a task; the last one of a unit or fetch continues at V_last.
const fragNext = `
	sub.u32 %V_left, %V_left, 1;
	setp.eq.u32 %V_p, %V_left, 0;
	@%V_p bra V_last;
`

// fragBlockSync and fragWarpSync separate the next task from the previous one. fragThreadSync is
// for blocks whose warps may have diverged for good: lanes that diverge at a barrier which is not
// aligned need not converge behind it, and then an aligned barrier never ends.
const (
	fragBlockSync = `
	bar.sync 0;
`
	fragThreadSync = `
	barrier.sync 0;
`
	fragWarpSync = `
	bar.warp.sync -1;
`
)

// fragArgs starts a device function that is given its task: index and grid, six words.
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

// taskWords is the number of words by which a device function is given its task.
const taskWords = 6

// offsets replaces $word by its offset.
var offsets = sync.OnceValue(func() *strings.Replacer {
	var pairs []string
	for _, f := range abi.PreemptArgsFields {
		pairs = append(pairs, "$"+f.Name, fmt.Sprint(f.Offset))
	}
	for _, w := range abi.ControlWords {
		pairs = append(pairs, "$"+w.Name, fmt.Sprint(w.Offset))
	}
	return strings.NewReplacer(pairs...)
})

// fragments caches parsed fragments by their text.
var fragments sync.Map

// fragment parses a fragment. A fragment that does not parse is a bug, which tests find.
func fragment(text string) []ptx.Stmt {
	if s, ok := fragments.Load(text); ok {
		return s.([]ptx.Stmt)
	}
	m, err := ptx.Parse(".version 9.0\n.target sm_90\n.address_size 64\n.func fragment\n{\n" + offsets().Replace(text) + "}\n")
	if err != nil {
		panic(fmt.Sprintf("preempt: a fragment does not parse: %v\n%s", err, text))
	}
	body := m.Items[0].(*ptx.Func).Body.Stmts
	fragments.Store(text, body)
	return body
}
