package dispatch

import (
	"fmt"
	"strings"

	"vgpud/mediator/vgpu/abi"
	"vgpud/ptx/callable"
)

// programText is the dispatcher. $NAMES are replaced; lines that begin with "multi" are for grids of
// several blocks. The parameters of all entries are kept, with PREPARED as it was before they were read.
// Where it still is that, no entry has changed since, and an event takes one round trip across the bus
// less.
//
//	x0…x11	the thread's place: %tid, %ntid, %ctaid, %nctaid
//	r0	the launch's number; p0: not its block's first thread; p1: not the leader
//	r3	the newest event, of another block's first thread
//	d0 d1	the event area and the control block
//	r10 r11	rings taken, and the entry at the head
//	r12 r13 r14	events started and ended, and rings dropped
//	r15	counts of other blocks that were waited for
//	r16	others have had the GPU since it was launched
//	r18 r26	PREPARED and the head's flag, as polled; r19: PREPARED when the head's parameters were read last
//
// While an event runs of several that were rung for, the next one's flag is loaded, and the doorbell
// anew. They take the place of the next poll, and the fence before the event's end acquires what they
// show.
//
// The load of the doorbell acquires what its ring shows. A fence behind it would also wait for the stores of
// the event before, half a microsecond. The flag is loaded before, at the same time: one that was not busy
// yet is loaded again.
//
//	d2 d3	when it polled last, and when the last event ended
//	d6	when the ring was found; d14: the flag of its entry
//	p15	nothing was loaded ahead; r41 r42 d25: the flag, C_STOP and the doorbell that were
const programText = `
.global .align 16 .b8 $P_args[$ALLARGS];
.global .align 4 .b8 $P_kept[$ALLKEPT];
multi .global .align 8 .u64 $P_go;
multi .global .align 4 .u32 $P_done;
multi .global .align 4 .u32 $P_which;
.visible .entry $P(.param .u64 $P_area, .param .u64 $P_control, .param .u32 $P_launch)
.maxntid $THREADS, 1, 1
{
	.shared .align 4 .u32 $P_command;
	.shared .align 4 .u32 $P_head;
	.reg .pred %p<16>;
	.reg .b32 %r<44>;
	.reg .b32 %x<12>;
	.reg .b64 %d<28>;
	.reg .b64 %q<16>;
	mov.u32 %x0, %tid.x;
	mov.u32 %x1, %tid.y;
	mov.u32 %x2, %tid.z;
	mov.u32 %x3, %ntid.x;
	mov.u32 %x4, %ntid.y;
	mov.u32 %x5, %ntid.z;
	mov.u32 %x6, %ctaid.x;
	mov.u32 %x7, %ctaid.y;
	mov.u32 %x8, %ctaid.z;
	mov.u32 %x9, %nctaid.x;
	mov.u32 %x10, %nctaid.y;
	mov.u32 %x11, %nctaid.z;
	ld.param.u32 %r0, [$P_launch];
	mov.u32 %r3, 0;
	or.b32 %r1, %x0, %x1;
	or.b32 %r1, %r1, %x2;
	setp.ne.u32 %p0, %r1, 0;
	or.b32 %r2, %x6, %x7;
	or.b32 %r2, %r2, %x8;
	or.b32 %r2, %r2, %r1;
	setp.ne.u32 %p1, %r2, 0;
	@%p0 bra MEET;
multi	@%p1 bra FOLLOW;
	ld.param.u64 %d0, [$P_area];
	cvta.to.global.u64 %d0, %d0;
	ld.param.u64 %d1, [$P_control];
	cvta.to.global.u64 %d1, %d1;
	ld.relaxed.sys.global.u32 %r10, [%d1+$C_SEEN];
	ld.relaxed.sys.global.u32 %r11, [%d1+$C_HEAD];
	ld.relaxed.sys.global.u32 %r12, [%d1+$C_STARTED];
	ld.relaxed.sys.global.u32 %r13, [%d1+$C_ENDED];
	ld.relaxed.sys.global.u32 %r14, [%d1+$C_DROPPED];
multi	ld.relaxed.gpu.global.u32 %r15, [$P_done];
	mov.u32 %r23, 1;
	st.relaxed.sys.global.u32 [%d1+$C_RESIDENT], %r23;
	mov.u32 %r16, 0;
	mov.u64 %d2, %globaltimer;
	mov.u64 %d3, %d2;
	st.relaxed.sys.global.u64 [%d1+$C_CAME], %d2;
	mov.u64 %d17, $P_args;
	mov.u64 %d20, $P_kept;
	mov.pred %p15, 1;
NEXT:
	mul.wide.u32 %d11, %r11, 4;
	add.s64 %d21, %d20, %d11;
	ld.global.u32 %r19, [%d21];
	add.s64 %d11, %d11, $FLAGS;
	add.s64 %d12, %d11, %d0;
	mul.wide.u32 %d13, %r11, $ARGBYTES;
	add.s64 %d13, %d13, %d17;
	@%p15 bra POLL;
	mov.pred %p15, 1;
	mov.u32 %r26, %r41;
	mov.u32 %r21, %r42;
	mov.u64 %d16, %d25;
	bra POLLED;
POLL:
	ld.relaxed.sys.global.u32 %r26, [%d12];
	ld.relaxed.sys.global.u32 %r21, [%d1+$C_STOP];
	ld.acquire.sys.global.u64 %d16, [%d0+$A_DOORBELL];
POLLED:
	mov.u64 %d6, %globaltimer;
	cvt.u32.u64 %r20, %d16;
	shr.u64 %d16, %d16, 32;
	cvt.u32.u64 %r18, %d16;
	sub.s64 %d7, %d6, %d2;
	mov.u64 %d2, %d6;
	setp.gt.u64 %p2, %d7, $GAP;
	@%p2 mov.u32 %r16, 1;
	setp.ne.u32 %p3, %r21, 0;
	@%p3 bra PARK;
	sub.u32 %r22, %r20, %r10;
	setp.ne.u32 %p4, %r22, 0;
	@%p4 bra RUNG;
	setp.ne.u32 %p5, %r16, 0;
	@%p5 bra PARK;
	sub.s64 %d8, %d6, %d3;
	setp.gt.s64 %p6, %d8, $IDLE;
	@%p6 bra PARK;
	bra POLL;
PARK:
	mov.u32 %r23, 0;
	st.relaxed.sys.global.u32 [%d1+$C_RESIDENT], %r23;
	fence.acq_rel.sys;
	st.relaxed.sys.global.u32 [%d0+$A_KICKAT], %r10;
	fence.sc.sys;
	@%p3 bra LEAVE;
	ld.relaxed.sys.global.u32 %r20, [%d0+$A_DOORBELL];
	setp.eq.u32 %p4, %r20, %r10;
	@%p4 bra LEAVE;
	mov.u32 %r23, 1;
	st.relaxed.sys.global.u32 [%d1+$C_RESIDENT], %r23;
	mov.u32 %r16, 0;
	mov.u64 %d2, %globaltimer;
	bra POLL;
LEAVE:
	mov.u64 %d6, %globaltimer;
	st.relaxed.sys.global.u64 [%d1+$C_LEFT], %d6;
	mov.u32 %r24, 2;
	st.shared.u32 [$P_command], %r24;
multi	cvt.u64.u32 %d15, %r0;
multi	shl.b64 %d15, %d15, 32;
multi	or.b64 %d15, %d15, 0xffffffff;
multi	st.release.gpu.global.u64 [$P_go], %d15;
	bra MEET;
RUNG:
	mov.u64 %d14, %d12;
	setp.le.u32 %p7, %r22, $ENTRIES;
	setp.ne.u32 %p8, %r18, 0;
	setp.eq.and.u32 %p8, %r18, %r19, %p8;
	setp.eq.and.u32 %p8, %r26, $BUSY, %p8;
	and.pred %p8, %p8, %p7;
	@%p8 bra START;
	@%p7 bra TAKE;
	sub.u32 %r25, %r22, $ENTRIES;
	add.u32 %r10, %r10, %r25;
	add.u32 %r14, %r14, %r25;
	bra DROPPED;
TAKE:
	mul.wide.u32 %d9, %r11, $ENTRYBYTES;
	add.s64 %d9, %d9, %d0;
	ld.relaxed.sys.global.u64 %d10, [%d9+$POINTER];
	ld.relaxed.sys.global.u32 %r26, [%d12];
$LOADFIRST
	setp.eq.u64 %p8, %d10, %d11;
	@%p8 bra FLAG;
	and.b64 %d16, %d10, 3;
	setp.ne.u64 %p9, %d16, 0;
	@%p9 bra REFUSE;
	sub.s64 %d16, %d10, $QUEUE;
	setp.gt.u64 %p9, %d16, $QUEUELAST;
	@%p9 bra REFUSE;
	add.s64 %d14, %d10, %d0;
	ld.relaxed.sys.global.u32 %r26, [%d14];
	mov.u32 %r18, 0;
FLAG:
	setp.eq.u32 %p10, %r26, $BUSY;
	@%p10 bra COPY;
REFUSE:
	add.u32 %r10, %r10, 1;
	add.u32 %r14, %r14, 1;
DROPPED:
	st.relaxed.sys.global.u32 [%d1+$C_DROPPED], %r14;
	st.relaxed.sys.global.u32 [%d1+$C_SEEN], %r10;
	st.relaxed.sys.global.u32 [%d0+$A_DROPPED], %r14;
	st.relaxed.sys.global.u32 [%d0+$A_SEEN], %r10;
	bra POLL;
COPY:
$STOREFIRST
$COPYREST
	st.global.u32 [%d21], %r18;
START:
	add.u32 %r12, %r12, 1;
	st.relaxed.sys.global.u32 [%d1+$C_STARTED], %r12;
	setp.le.u32 %p15, %r22, 1;
	@%p15 bra BEGIN;
	add.u32 %r40, %r11, 1;
	setp.eq.u32 %p11, %r40, $ENTRIES;
	@%p11 mov.u32 %r40, 0;
	mul.wide.u32 %d24, %r40, 4;
	add.s64 %d24, %d24, $FLAGS;
	add.s64 %d24, %d24, %d0;
	ld.relaxed.sys.global.u32 %r41, [%d24];
	ld.relaxed.sys.global.u32 %r42, [%d1+$C_STOP];
	ld.relaxed.sys.global.u64 %d25, [%d0+$A_DOORBELL];
BEGIN:
	mov.u32 %r24, 1;
	st.shared.u32 [$P_command], %r24;
	st.shared.u32 [$P_head], %r11;
multi	st.relaxed.gpu.global.u32 [$P_which], %r11;
multi	cvt.u64.u32 %d15, %r0;
multi	shl.b64 %d15, %d15, 32;
multi	and.b32 %r27, %r12, 0x7fffffff;
multi	cvt.u64.u32 %d18, %r27;
multi	or.b64 %d15, %d15, %d18;
multi	st.release.gpu.global.u64 [$P_go], %d15;
multi	bra MEET;
multi FOLLOW:
multi	ld.acquire.gpu.global.u64 %d20, [$P_go];
multi	shr.u64 %d21, %d20, 32;
multi	cvt.u32.u64 %r30, %d21;
multi	setp.ne.u32 %p12, %r30, %r0;
multi	@%p12 bra FOLLOW;
multi	cvt.u32.u64 %r31, %d20;
multi	setp.eq.u32 %p12, %r31, %r3;
multi	@%p12 bra FOLLOW;
multi	mov.u32 %r3, %r31;
multi	setp.eq.u32 %p12, %r31, 0xffffffff;
multi	selp.u32 %r24, 2, 1, %p12;
multi	st.shared.u32 [$P_command], %r24;
multi	ld.relaxed.gpu.global.u32 %r39, [$P_which];
multi	st.shared.u32 [$P_head], %r39;
MEET:
	barrier.sync 0;
	ld.volatile.shared.u32 %r32, [$P_command];
	setp.eq.u32 %p13, %r32, 2;
	@%p13 bra END;
	ld.volatile.shared.u32 %r38, [$P_head];
	mul.wide.u32 %d22, %r38, $ARGBYTES;
	mov.u64 %d23, $P_args;
	add.s64 %d22, %d22, %d23;
	cvta.global.u64 %d22, %d22;
	{
	.param .b64 $P_a;
	.param .align 4 .b8 $P_b[48];
	st.param.b64 [$P_a], %d22;
$PLACE
	call $FUNCTION, ($P_a, $P_b);
	}
	barrier.sync 0;
	@%p0 bra MEET;
multi	@%p1 bra COUNT;
multi WAIT:
multi	ld.acquire.gpu.global.u32 %r33, [$P_done];
multi	sub.u32 %r34, %r33, %r15;
multi	setp.lt.u32 %p14, %r34, $OTHERS;
multi	@%p14 bra WAIT;
multi	add.u32 %r15, %r15, $OTHERS;
	mov.u32 %r35, $DONE;
	@!%p15 fence.acq_rel.sys;
	@!%p15 st.relaxed.sys.global.u32 [%d14], %r35;
	@%p15 st.release.sys.global.u32 [%d14], %r35;
	add.u32 %r10, %r10, 1;
	add.u32 %r11, %r11, 1;
	setp.eq.u32 %p11, %r11, $ENTRIES;
	@%p11 mov.u32 %r11, 0;
	st.relaxed.sys.global.u32 [%d1+$C_SEEN], %r10;
	st.relaxed.sys.global.u32 [%d1+$C_HEAD], %r11;
	mul.wide.u32 %d16, %r11, $ENTRYBYTES;
	add.s64 %d16, %d16, $QUEUE;
	st.relaxed.sys.global.u64 [%d0+$A_HEAD], %d16;
	st.relaxed.sys.global.u32 [%d0+$A_SEEN], %r10;
	mov.u64 %d3, %globaltimer;
	mov.u64 %d2, %d3;
	sub.s64 %d18, %d3, %d6;
	cvt.u32.u64 %r36, %d18;
	and.b32 %r37, %r13, $LATENCYMASK;
	mul.wide.u32 %d19, %r37, 4;
	add.s64 %d19, %d19, %d1;
	st.relaxed.sys.global.u32 [%d19+$C_LATENCIES], %r36;
	add.u32 %r13, %r13, 1;
	st.relaxed.sys.global.u32 [%d1+$C_ENDED], %r13;
	bra NEXT;
multi COUNT:
multi	red.release.gpu.global.add.u32 [$P_done], 1;
multi	bra FOLLOW;
END:
	ret;
}
`

const (
	// piece is how many bytes of parameters are read at a time, and batch how many such reads go out before the first is
	// waited for: each takes a round trip across the bus.
	piece = 16
	batch = 8
)

// program returns the text of the dispatcher of a kernel made callable as r says.
func program(k *Kernel, prefix string, r *callable.Report) string {
	blocks := k.Grid.Count()
	pieces := (k.ParamBytes + piece - 1) / piece
	var lines []string
	for line := range strings.Lines(programText) {
		if rest, ok := strings.CutPrefix(line, "multi"); ok {
			if blocks == 1 {
				continue
			}
			line = rest
		}
		lines = append(lines, line)
	}
	entry := abi.EventEntryBytes(k.ParamBytes)
	page, queue := abi.EventPage(k.Number), abi.EventQueue(k.Number)
	rest := ""
	for from := batch; from < pieces; from += batch {
		n := min(batch, pieces-from)
		rest += loads(queue, from, n) + stores(from, n)
	}
	first := min(batch, pieces)
	number := func(n int) string { return fmt.Sprint(n) }
	return strings.NewReplacer(
		"$FUNCTION", r.Function, "$PLACE", place(prefix), "$THREADS", fmt.Sprint(k.Block.Count()),
		"$LOADFIRST", loads(queue, 0, first), "$STOREFIRST", stores(0, first), "$COPYREST", rest,
		"$ARGBYTES", number(pieces*piece), "$ALLARGS", number(max(pieces*k.Entries, 1)*piece), "$ALLKEPT", number(4*k.Entries),
		"$ENTRIES", number(k.Entries), "$ENTRYBYTES", number(entry),
		"$POINTER", number(queue+entry-8), "$FLAGS", number(queue+k.Entries*entry), "$QUEUELAST", number(abi.EventQueueBytes-4),
		"$QUEUE", number(queue), "$BUSY", number(int(abi.EventBusy)), "$DONE", number(int(abi.EventDone)),
		"$OTHERS", fmt.Sprint(blocks-1), "$GAP", number(gapNanos), "$IDLE", number(IdleNanos), "$LATENCYMASK", number(latencies-1),
		"$C_STOP", number(stopWord), "$C_RESIDENT", number(residentWord), "$C_STARTED", number(startedWord), "$C_ENDED", number(endedWord),
		"$C_DROPPED", number(droppedWord), "$C_SEEN", number(seenWord), "$C_HEAD", number(headWord), "$C_LATENCIES", number(latencyWords),
		"$C_CAME", number(cameWords), "$C_LEFT", number(leftWords),
		"$A_DOORBELL", number(page+abi.EventDoorbellWord), "$A_KICKAT", number(page+abi.EventKickAtWord),
		"$A_SEEN", number(page+abi.EventSeenWord), "$A_DROPPED", number(page+abi.EventDroppedWord),
		"$A_HEAD", number(page+abi.EventRowOffset+abi.EventRowHead),
		"$P", prefix, // last: others begin like it
	).Replace(strings.Join(lines, ""))
}

// loads reads n pieces of the head's entry, which begins at %d9 and a queue's offset.
func loads(queue, from, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "\tld.relaxed.sys.global.v2.u64 {%%q%d, %%q%d}, [%%d9+%d];\n", 2*i, 2*i+1, queue+(from+i)*piece)
	}
	return b.String()
}

// stores writes them to the arguments.
func stores(from, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "\tst.global.v2.u64 [%%d13+%d], {%%q%d, %%q%d};\n", (from+i)*piece, 2*i, 2*i+1)
	}
	return b.String()
}

// place passes the thread's place on.
func place(prefix string) string {
	var b strings.Builder
	for i := range callable.PlaceBytes / 4 {
		fmt.Fprintf(&b, "\tst.param.b32 [%s_b+%d], %%x%d;\n", prefix, 4*i, i)
	}
	return b.String()
}
