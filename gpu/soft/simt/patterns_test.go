package simt

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"vgpud/gpu"
)

// patternOp is a load or a store of one lane's size bytes.
type patternOp struct {
	name  string
	size  int
	write bool
	text  string // with the space for %[1]s; it leaves what it loaded in %q0 to %q3
	sext  bool   // of a load: to 32 bits
}

var patternOps = []patternOp{
	{"ld.u8", 1, false, "ld%[1]s.u8 %%q0, [%%at];", false},
	{"ld.s8", 1, false, "ld%[1]s.s8 %%q0, [%%at];", true},
	{"ld.s8 to 16 bits", 1, false, "ld%[1]s.s8 %%h, [%%at]; cvt.s32.s16 %%q0, %%h;", true},
	{"ld.s8 to 8 bits", 1, false, "ld%[1]s.s8 %%b, [%%at]; cvt.s32.s8 %%q0, %%b;", true},
	{"ld.u16", 2, false, "ld%[1]s.u16 %%q0, [%%at];", false},
	{"ld.s16", 2, false, "ld%[1]s.s16 %%q0, [%%at];", true},
	{"ld.b32", 4, false, "ld%[1]s.b32 %%q0, [%%at];", false},
	{"ld.b64", 8, false, "ld%[1]s.b64 %%at, [%%at]; mov.b64 {%%q0, %%q1}, %%at;", false},
	{"ld.v2.b32", 8, false, "ld%[1]s.v2.b32 {%%q0, %%q1}, [%%at];", false},
	{"ld.v2.b64", 16, false, "ld%[1]s.v2.b64 {%%at, %%x}, [%%at]; mov.b64 {%%q0, %%q1}, %%at; mov.b64 {%%q2, %%q3}, %%x;", false},
	{"ld.v4.f32", 16, false, "ld%[1]s.v4.b32 {%%q0, %%q1, %%q2, %%q3}, [%%at];", false},
	{"st.u8", 1, true, "st%[1]s.u8 [%%at], %%q0;", false},
	{"st.u16", 2, true, "st%[1]s.u16 [%%at], %%q0;", false},
	{"st.b32", 4, true, "st%[1]s.b32 [%%at], %%q0;", false},
	{"st.b64", 8, true, "mov.b64 %%x, {%%q0, %%q1}; st%[1]s.b64 [%%at], %%x;", false},
	{"st.v4.b32", 16, true, "st%[1]s.v4.b32 [%%at], {%%q0, %%q1, %%q2, %%q3};", false},
}

// patternKernel reads each lane's address from a table, and performs one operation there. The lanes
// of skip don't. A lane loads or stores 16 bytes of its own. Shared memory comes from init
// and goes to dump, as each lane's local memory does.
func patternKernel(op patternOp, space string, skip uint32) string {
	return fmt.Sprintf(`
.visible .entry k(.param .u64 table, .param .u64 values, .param .u64 init, .param .u64 dump)
{
	.reg .pred %%p; .reg .b32 %%q<4>, %%r<8>; .reg .b64 %%rd<9>, %%at, %%x; .reg .b16 %%h; .reg .b8 %%b;
	.shared .align 16 .b8 near[1024]; .local .align 16 .b8 mine[32];
	ld.param.u64 %%rd1, [table]; ld.param.u64 %%rd2, [values]; ld.param.u64 %%rd3, [init]; ld.param.u64 %%rd4, [dump];
	mov.u32 %%r0, %%tid.x; mul.wide.u32 %%rd5, %%r0, 32; add.s64 %%rd3, %%rd3, %%rd5; mad.wide.u32 %%rd4, %%r0, 64, %%rd4;
	mad.wide.u32 %%rd1, %%r0, 8, %%rd1; mad.wide.u32 %%rd2, %%r0, 16, %%rd2; ld.global.u64 %%at, [%%rd1];
	mov.u32 %%r1, near; mad.lo.u32 %%r1, %%r0, 32, %%r1;
	ld.global.v4.u32 {%%r4, %%r5, %%r6, %%r7}, [%%rd3]; st.shared.v4.u32 [%%r1], {%%r4, %%r5, %%r6, %%r7}; st.local.v4.u32 [mine], {%%r4, %%r5, %%r6, %%r7};
	ld.global.v4.u32 {%%r4, %%r5, %%r6, %%r7}, [%%rd3+16]; st.shared.v4.u32 [%%r1+16], {%%r4, %%r5, %%r6, %%r7}; st.local.v4.u32 [mine+16], {%%r4, %%r5, %%r6, %%r7};
	ld.global.v4.u32 {%%q0, %%q1, %%q2, %%q3}, [%%rd2];
	mov.u32 %%r2, 1; shl.b32 %%r2, %%r2, %%r0; and.b32 %%r2, %%r2, %d; setp.ne.u32 %%p, %%r2, 0; bar.warp.sync -1;
	@%%p bra SKIP;
	%s
SKIP:
	bar.warp.sync -1;
	st.global.v4.u32 [%%rd2], {%%q0, %%q1, %%q2, %%q3};
	ld.shared.v4.u32 {%%r4, %%r5, %%r6, %%r7}, [%%r1]; st.global.v4.u32 [%%rd4], {%%r4, %%r5, %%r6, %%r7};
	ld.shared.v4.u32 {%%r4, %%r5, %%r6, %%r7}, [%%r1+16]; st.global.v4.u32 [%%rd4+16], {%%r4, %%r5, %%r6, %%r7};
	ld.local.v4.u32 {%%r4, %%r5, %%r6, %%r7}, [mine]; st.global.v4.u32 [%%rd4+32], {%%r4, %%r5, %%r6, %%r7};
	ld.local.v4.u32 {%%r4, %%r5, %%r6, %%r7}, [mine+16]; st.global.v4.u32 [%%rd4+48], {%%r4, %%r5, %%r6, %%r7};
	ret;
}`, skip, fmt.Sprintf(op.text, space))
}

// pattern returns the lanes' addresses for accesses of size bytes. a and b are allocations of 1 KiB.
func pattern(name string, size, a, b uint64, rng *rand.Rand) (at [lanes]uint64) {
	for i := range at {
		n := uint64(i)
		switch name {
		case "row":
			at[i] = a + 16 + n*size
		case "half rows", "half rows, one lane elsewhere":
			at[i] = a + n%16*size + n/16*512
		case "half rows that overlap":
			at[i] = a + n%16*size + n/16*size
		case "half rows in one sector":
			at[i] = a + 256 - 16*size + n%16*size + n/16*(15*size)
		case "half rows of two allocations":
			at[i] = a + n%16*size
			if n >= 16 {
				at[i] = b + n%16*size
			}
		case "one address":
			at[i] = a + 48
		case "one address but for a lane":
			at[i] = a + 48
			if n == 16 {
				at[i] += size
			}
		case "row but for a lane":
			at[i] = a + n*size
			if n == 29 {
				at[i] = a
			}
		case "columns":
			at[i] = a + n*32
		case "backwards":
			at[i] = a + (31-n)*size
		case "shared row":
			at[i] = sharedWindow + n*size
		case "shared anywhere":
			at[i] = sharedWindow + rng.Uint64N(1024/size)*size
		case "local":
			at[i] = localWindow + rng.Uint64N(32/size)*size
		case "shared and global":
			at[i] = a + n*size
			if n%3 == 0 {
				at[i] = sharedWindow + n*size
			}
		case "anywhere":
			at[i] = []uint64{a, b, sharedWindow}[rng.IntN(3)] + rng.Uint64N(1024/size)*size
		case "row over the end":
			at[i] = a + 1024 - 20*size + n*size
		case "misaligned row":
			at[i] = a + n*size + size/2
		case "shared row over the end":
			at[i] = sharedWindow + 1024 - 20*size + n*size
		case "local over the end":
			at[i] = localWindow + n%3*16
		case "misaligned in shared memory":
			at[i] = sharedWindow + n*size + size/2
		}
		if name == "half rows, one lane elsewhere" && i == 23 {
			at[i] = b
		}
	}
	return at
}

var patternNames = []string{
	"row", "half rows", "half rows, one lane elsewhere", "half rows that overlap", "half rows in one sector", "half rows of two allocations",
	"one address", "one address but for a lane", "row but for a lane", "columns", "backwards", "shared row", "shared anywhere", "local", "shared and global", "anywhere",
	"row over the end", "misaligned row", "shared row over the end", "local over the end", "misaligned in shared memory",
}

// TestPatterns performs loads and stores at addresses in many patterns, and compares what they did
// and the memory traffic with lanes that do it one after the other.
func TestPatterns(t *testing.T) {
	for _, op := range patternOps {
		for _, skip := range []uint32{0, 1 << 5, 0xffff0001} {
			for _, name := range patternNames {
				for _, space := range []string{".global", ""} {
					t.Run(fmt.Sprintf("%s/%#x/%s/%s", op.name, skip, name, space), func(t *testing.T) { testPattern(t, op, skip, name, space) })
				}
			}
		}
	}
}

func testPattern(t *testing.T, op patternOp, skip uint32, name, space string) {
	rng := rand.New(rand.NewPCG(uint64(op.size), uint64(skip)))
	m := newMachine(t, patternKernel(op, space, skip))
	buffer := func(n int) (uint64, []byte) {
		at, data := m.alloc(n)
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		return at, data
	}
	a, dataA := buffer(1024)
	b, dataB := buffer(1024)
	table, addresses := buffer(8 * lanes)
	values, dataV := buffer(16 * lanes)
	initial, near := buffer(32 * lanes)
	dump, dataD := buffer(64 * lanes)
	at := pattern(name, uint64(op.size), a, b, rng)
	for i, x := range at {
		if space == ".global" && x >= GlobalLimit {
			return // the pattern is of generic addresses alone
		}
		binary.LittleEndian.PutUint64(addresses[8*i:], x)
	}

	// The accesses of the lanes, one after the other.
	wantA, wantB, wantV, wantNear := bytes.Clone(dataA), bytes.Clone(dataB), bytes.Clone(dataV), bytes.Clone(near)
	var local [lanes][]byte
	var fault *gpu.Fault
	sectors, last, before := uint64(0), ^uint64(0), false
	for i := range at {
		local[i] = bytes.Clone(near[32*i:][:32])
		if skip>>i&1 != 0 || fault != nil {
			continue
		}
		var where []byte
		off := at[i]
		switch {
		case off >= localWindow:
			where, off = local[i], off-localWindow
		case off >= sharedWindow:
			where, off = wantNear, off-sharedWindow
		case off >= b:
			where, off = wantB, off-b
		default:
			where, off = wantA, off-a
		}
		before = before || at[i] >= GlobalLimit
		if at[i]>>5 != last {
			sectors++
		}
		last = at[i] >> 5
		switch {
		case off+uint64(op.size) > uint64(len(where)):
			fault = &gpu.Fault{Kind: gpu.FaultAddress, Address: at[i]}
			continue
		case at[i]%uint64(op.size) != 0:
			fault = &gpu.Fault{Kind: gpu.FaultMisaligned, Address: at[i]}
			continue
		case op.write:
			copy(where[off:], wantV[16*i:][:op.size])
		case op.sext:
			v := uint32(int32(int8(where[off])))
			if op.size == 2 {
				v = uint32(int32(int16(binary.LittleEndian.Uint16(where[off:]))))
			}
			binary.LittleEndian.PutUint32(wantV[16*i:], v)
		default:
			clear(wantV[16*i:][:max(op.size, 4)])
			copy(wantV[16*i:], where[off:][:op.size])
		}
	}

	f := m.run("k", d3(1), d3(lanes), 0, table, values, initial, dump)
	if fault != nil {
		if f == nil || f.Kind != fault.Kind || f.Address != fault.Address {
			t.Fatalf("fault %v, want %v at %#x", f, fault.Kind, fault.Address)
		}
		return
	}
	if f != nil {
		t.Fatal(f)
	}
	for i := range lanes {
		for _, part := range []struct {
			name      string
			got, want []byte
		}{
			{"values", dataV[16*i:][:16], wantV[16*i:][:16]}, {"allocation a", dataA[32*i:][:32], wantA[32*i:][:32]}, {"allocation b", dataB[32*i:][:32], wantB[32*i:][:32]},
			{"shared memory", dataD[64*i:][:32], wantNear[32*i:][:32]}, {"local memory", dataD[64*i+32:][:32], local[i]},
		} {
			if !bytes.Equal(part.got, part.want) {
				t.Fatalf("lane %d: %s: %x, want %x", i, part.name, part.got, part.want)
			}
		}
	}
	if before {
		return // what isn't in global memory costs no sectors
	}
	const rest = 8 + 2*16 + 2*lanes + 4*lanes // of the table, the values, the initial contents and the dump
	if got := m.last.Counts().GlobalBytes / 32; got != rest+sectors {
		t.Errorf("%d sectors, want %d and %d of the rest", got, sectors, rest)
	}
}
