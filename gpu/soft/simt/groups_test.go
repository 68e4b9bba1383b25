package simt

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// A warpOp is an instruction between lanes. It takes the value in %r6 and the mask in %r10, and
// leaves its result in %r7. want returns the expected result in a lane of a group, and false if PTX
// does not define it.
type warpOp struct {
	name, code string
	want       func(group uint32, lane int) (uint32, bool)
}

// groupValue is a lane's operand: small numbers of both signs, some equal.
func groupValue(lane int) uint32 { return uint32(lane*lane%7) - 3 }

// over reduces the values of a group's lanes.
func over(group uint32, f func(a, b uint32) uint32) uint32 {
	v := groupValue(first(group))
	for m := group & (group - 1); m != 0; m &= m - 1 {
		v = f(v, groupValue(first(m)))
	}
	return v
}

func lanesWhere(group uint32, f func(lane int) bool) (v uint32) {
	for m := group; m != 0; m &= m - 1 {
		v |= bit(f(first(m))) << first(m)
	}
	return v
}

// warpOps has every PTX instruction with .sync and a mask of lanes.
func warpOps() []warpOp {
	var list []warpOp
	add := func(name, code string, want func(group uint32, lane int) (uint32, bool)) {
		list = append(list, warpOp{name, code, want})
	}
	always := func(f func(group uint32, lane int) uint32) func(uint32, int) (uint32, bool) {
		return func(group uint32, lane int) (uint32, bool) { return f(group, lane), true }
	}
	from := func(source func(group uint32, lane int) int) func(group uint32, lane int) (uint32, bool) {
		return func(group uint32, lane int) (uint32, bool) {
			j := source(group, lane)
			if j < 0 || j >= lanes {
				return groupValue(lane), true // out of range: a lane keeps its own value, and %p3 is false
			}
			return groupValue(j) + 1000, group>>j&1 != 0
		}
	}
	shfl := func(mode, b, c string, source func(group uint32, lane int) int) {
		add("shfl."+mode, "shfl.sync."+mode+".b32 %r7|%p3, %r6, "+b+", "+c+", %r10; selp.u32 %r8, 1000, 0, %p3; add.u32 %r7, %r7, %r8;", from(source))
	}
	shfl("idx", "%r11", "31", func(group uint32, _ int) int { return bits.Len32(group) - 1 })
	shfl("up", "2", "0", func(_ uint32, lane int) int { return lane - 2 })
	shfl("down", "1", "31", func(_ uint32, lane int) int { return lane + 1 })
	shfl("bfly", "4", "31", func(_ uint32, lane int) int { return lane ^ 4 })

	positive := func(lane int) bool { return int32(groupValue(lane)) > 0 }
	const test = "setp.gt.s32 %p3, %r6, 0; "
	add("vote.ballot", test+"vote.sync.ballot.b32 %r7, %p3, %r10;", always(func(group uint32, _ int) uint32 { return lanesWhere(group, positive) }))
	add("vote.ballot of a complement", test+"vote.sync.ballot.b32 %r7, !%p3, %r10;", always(func(group uint32, _ int) uint32 {
		return group &^ lanesWhere(group, positive)
	}))
	for mode, holds := range map[string]func(yes, group uint32) bool{
		"all": func(yes, group uint32) bool { return yes == group },
		"any": func(yes, _ uint32) bool { return yes != 0 },
		"uni": func(yes, group uint32) bool { return yes == group || yes == 0 },
	} {
		add("vote."+mode, test+"vote.sync."+mode+".pred %p4, %p3, %r10; selp.u32 %r7, 1, 0, %p4;", always(func(group uint32, _ int) uint32 {
			return bit(holds(lanesWhere(group, positive), group))
		}))
	}

	for _, typ := range []string{"b32", "b64"} {
		v := "%r6"
		wide := ""
		if typ == "b64" {
			v, wide = "%rd10", "mov.b64 %rd10, {5, %r6}; "
		}
		add("match.any."+typ, wide+"match.any.sync."+typ+" %r7, "+v+", %r10;", always(func(group uint32, lane int) uint32 {
			return lanesWhere(group, func(l int) bool { return groupValue(l) == groupValue(lane) })
		}))
		add("match.all."+typ, wide+"match.all.sync."+typ+" %r7|%p3, "+v+", %r10; @%p3 xor.b32 %r7, %r7, 1;", always(func(group uint32, lane int) uint32 {
			if lanesWhere(group, func(l int) bool { return groupValue(l) == groupValue(lane) }) != group {
				return 0
			}
			return group ^ 1
		}))
	}

	signed := func(f func(a, b int32) int32) func(a, b uint32) uint32 {
		return func(a, b uint32) uint32 { return uint32(f(int32(a), int32(b))) }
	}
	for typ, f := range map[string]func(a, b uint32) uint32{
		"add.u32": func(a, b uint32) uint32 { return a + b }, "add.s32": func(a, b uint32) uint32 { return a + b },
		"min.u32": func(a, b uint32) uint32 { return min(a, b) }, "max.u32": func(a, b uint32) uint32 { return max(a, b) },
		"min.s32": signed(func(a, b int32) int32 { return min(a, b) }), "max.s32": signed(func(a, b int32) int32 { return max(a, b) }),
		"and.b32": func(a, b uint32) uint32 { return a & b }, "or.b32": func(a, b uint32) uint32 { return a | b },
		"xor.b32": func(a, b uint32) uint32 { return a ^ b },
	} {
		add("redux."+typ, "redux.sync."+typ+" %r7, %r6, %r10;", always(func(group uint32, _ int) uint32 { return over(group, f) }))
	}
	for mode, f := range map[string]func(a, b float32) float32{
		"min": func(a, b float32) float32 { return min(a, b) },
		"max": func(a, b float32) float32 { return max(a, b) },
		"max.abs": func(a, b float32) float32 {
			return max(float32(math.Abs(float64(a))), float32(math.Abs(float64(b))))
		},
	} {
		add("redux."+mode+".f32", "cvt.rn.f32.s32 %f1, %r6; redux.sync."+mode+".f32 %f2, %f1, %r10; cvt.rzi.s32.f32 %r7, %f2;", always(func(group uint32, _ int) uint32 {
			v := float32(int32(groupValue(first(group))))
			for m := group; m != 0; m &= m - 1 {
				v = f(v, float32(int32(groupValue(first(m)))))
			}
			return uint32(int32(v))
		}))
	}

	add("elect", "elect.sync %r7|%p3, %r10; selp.u32 %r8, 100, 0, %p3; add.u32 %r7, %r7, %r8;", always(func(group uint32, lane int) uint32 {
		return uint32(first(group)) + 100*bit(lane == first(group))
	}))
	// Each lane of a group writes a word, and reads that of the group's last lane.
	add("bar.warp", "st.shared.u32 [%r12], %r6; bar.warp.sync %r10; ld.shared.u32 %r7, [%r13];", always(func(group uint32, _ int) uint32 {
		return groupValue(bits.Len32(group) - 1)
	}))
	return list
}

// partition returns each lane's mask, given a number for each lane: lanes with equal numbers form a
// group.
func partition(number func(lane int) int) (masks [lanes]uint32) {
	for i := range lanes {
		masks[i] = lanesWhere(full, func(j int) bool { return number(i) == number(j) })
	}
	return masks
}

func partitions() map[string][lanes]uint32 {
	list := map[string][lanes]uint32{
		"1 group":             partition(func(int) int { return 0 }),
		"2 groups, alternate": partition(func(l int) int { return l % 2 }),
		"2 groups, halves":    partition(func(l int) int { return l / 16 }),
		"4 groups, alternate": partition(func(l int) int { return l % 4 }),
		"4 groups, in a row":  partition(func(l int) int { return l / 8 }),
		"32 groups":           partition(func(l int) int { return l }),
		"1 and 31":            partition(func(l int) int { return min(l, 1) }),
	}
	r := rand.New(rand.NewPCG(13, 1))
	for _, n := range []int{2, 3, 4, 9, 32} {
		var number [lanes]int
		for i := range number {
			number[i] = r.IntN(n)
		}
		list[fmt.Sprintf("drawn of %d", n)] = partition(func(l int) int { return number[l] })
	}
	return list
}

// groupsKernel returns a kernel in which the lanes that have not exited execute body. A lane reads
// its mask from p1[lane], whether it exits from bit 0 of p1[32+lane], the branch it takes from bit
// 1 (%p2), and its group's last lane from p1[64+lane].
func groupsKernel(body string, funcs ...string) string {
	return ".shared .align 4 .b32 s[32];\n" + strings.Join(funcs, "") + entry(`
	shl.b32 %r3, %r2, 2;
	cvt.u64.u32 %rd3, %r3;
	add.s64 %rd4, %rd2, %rd3;
	ld.global.u32 %r10, [%rd4];
	ld.global.u32 %r5, [%rd4+128];
	mul.lo.u32 %r6, %r2, %r2;
	rem.u32 %r6, %r6, 7;
	sub.u32 %r6, %r6, 3;
	mov.u32 %r4, s;
	add.u32 %r12, %r4, %r3;
	ld.global.u32 %r11, [%rd4+256];
	shl.b32 %r13, %r11, 2;
	add.u32 %r13, %r4, %r13;
	and.b32 %r3, %r5, 1;
	setp.ne.u32 %p1, %r3, 0;
	@%p1 ret;
	and.b32 %r3, %r5, 2;
	setp.ne.u32 %p2, %r3, 0;
`+body+storeAt("%r2", "u32", "%r7"))
}

// arrivals are the ways in which lanes reach the instruction.
func arrivals(op warpOp) map[string]string {
	const slow = "	mov.u32 %r20, 0;\nSLOW:\n	add.u32 %r20, %r20, 1;\n	setp.lt.u32 %p5, %r20, 50;\n	@%p5 bra SLOW;\n"
	list := map[string]string{
		"together": groupsKernel(op.code + "\n"),
		// Each branch has an instruction of its own.
		"from two places": groupsKernel("	@%p2 bra OTHER;\n	" + op.code + "\n	bra MEET;\nOTHER:\n" + slow + "	" + op.code + "\nMEET:\n"),
		// The instruction is under a guard, first for some lanes, then for the others.
		"under guards": groupsKernel(guarded("%p2", op.code) + guarded("!%p2", op.code)),
		// The instruction is in a function that is called from two places.
		"in a function": groupsKernel("	@%p2 bra OTHER;\n"+callGroup+"	bra MEET;\nOTHER:\n"+slow+callGroup+"MEET:\n",
			".func (.param .b32 r) f(.param .b32 v, .param .b32 m, .param .b32 l, .param .b32 a, .param .b32 b)\n{\n"+
				"	.reg .pred %p<9>; .reg .b32 %r<20>; .reg .b64 %rd<12>; .reg .f32 %f<4>;\n"+
				"	ld.param.b32 %r6, [v]; ld.param.b32 %r10, [m]; ld.param.b32 %r11, [l]; ld.param.b32 %r12, [a]; ld.param.b32 %r13, [b];\n	"+
				op.code+"\n	st.param.b32 [r], %r7;\n	ret;\n}\n"),
	}
	return list
}

// guarded puts a guard before the instructions of code that have none.
func guarded(p, code string) string {
	var b strings.Builder
	for _, in := range strings.SplitAfter(code, ";") {
		in = strings.TrimSpace(in)
		if in == "" {
			continue
		}
		if strings.HasPrefix(in, "@") { // of match.all: only lanes with a true guard have a result
			in = strings.Replace(in, "@%p3 xor.b32 %r7, %r7, 1;", "selp.u32 %r8, 1, 0, %p3; @"+p+" xor.b32 %r7, %r7, %r8;", 1)
			b.WriteString("	" + in + "\n")
			continue
		}
		b.WriteString("	@" + p + " " + in + "\n")
	}
	return b.String()
}

const callGroup = `	{ .param .b32 v; .param .b32 m; .param .b32 l; .param .b32 a; .param .b32 b; .param .b32 r;
	st.param.b32 [v], %r6; st.param.b32 [m], %r10; st.param.b32 [l], %r11; st.param.b32 [a], %r12; st.param.b32 [b], %r13;
	call (r), f, (v, m, l, a, b);
	ld.param.b32 %r7, [r]; }
`

// Each group of lanes with its own mask has its own exchange: for every instruction with .sync,
// however many groups a warp has, and whether their lanes arrive together or not.
func TestExchangeGroups(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 2))
	for _, op := range warpOps() {
		for arrival, src := range arrivals(op) {
			m := newMachine(t, src)
			for name, masks := range partitions() {
				for _, gone := range []uint32{0, 0x8000_0f01, r.Uint32() & r.Uint32()} {
					ways := r.Uint32()
					checkGroups(t, m, op, fmt.Sprintf("%s, %s, %s, without %#x, %#x the other way", op.name, arrival, name, gone, ways), masks, gone, ways)
				}
			}
		}
	}
}

func checkGroups(t *testing.T, m *machine, op warpOp, name string, masks [lanes]uint32, gone, ways uint32) {
	t.Helper()
	in := make([]uint32, 3*lanes)
	for i, mask := range masks {
		in[i] = mask
		in[lanes+i] = gone>>i&1 | ways>>i&1<<1
		if mask&^gone != 0 {
			in[2*lanes+i] = uint32(bits.Len32(mask&^gone) - 1)
		}
	}
	arg, _ := m.words(in...)
	out, data := m.alloc(4 * lanes)
	if f := m.run("k", d3(1), d3(lanes), 0, out, arg, 0); f != nil {
		t.Fatalf("%s: %v", name, f)
	}
	for lane, got := range wordsOf(data) {
		if gone>>lane&1 != 0 {
			continue
		}
		if want, defined := op.want(masks[lane]&^gone, lane); defined && got != want {
			t.Fatalf("%s: lane %d got %#x, want %#x", name, lane, got, want)
		}
	}
}

// A group whose lanes have all arrived goes on although other groups of the same path wait: those
// may wait for it.
func TestExchangeGroupsWaitApart(t *testing.T) {
	m := newMachine(t, entry(`
	shr.u32 %r3, %r2, 4;
	setp.eq.u32 %p1, %r3, 0;
	selp.u32 %r10, 0x0000ffff, 0xffff0000, %p1; // the first half, and the second
	setp.lt.u32 %p2, %r2, 24;
	@%p2 bra EXCHANGE;
WAIT:                                           // the last quarter, for the first half
	ld.volatile.global.u32 %r4, [%rd2];
	setp.eq.u32 %p3, %r4, 0;
	@%p3 bra WAIT;
	redux.sync.add.u32 %r7, %r2, %r10;
	bra STORE;
EXCHANGE:
	redux.sync.add.u32 %r7, %r2, %r10;
	@!%p1 bra STORE;
	st.volatile.global.u32 [%rd2], 1;
STORE:
`+storeAt("%r2", "u32", "%r7")))
	flag, _ := m.words(0)
	out, data := m.alloc(4 * lanes)
	if f := m.run("k", d3(1), d3(lanes), 0, out, flag, 0); f != nil {
		t.Fatal(f)
	}
	for lane, got := range wordsOf(data) {
		want := uint32(15 * 16 / 2)
		if lane >= 16 {
			want = 31*32/2 - want
		}
		if got != want {
			t.Errorf("lane %d got %d, want %d", lane, got, want)
		}
	}
}

// A group is complete without its lanes that exit while the others wait, independently of other
// groups.
func TestExchangeGroupsLosingLanes(t *testing.T) {
	m := newMachine(t, entry(`
	and.b32 %r3, %r2, 3;
	mov.u32 %r4, 0x11111111;
	shl.b32 %r10, %r4, %r3;
	setp.lt.u32 %p1, %r2, 28;
	@%p1 bra EXCHANGE;
	mov.u32 %r5, 0;
LATE:
	add.u32 %r5, %r5, 1;
	mul.lo.u32 %r6, %r3, 100;
	setp.lt.u32 %p2, %r5, %r6;
	@%p2 bra LATE;
	ret;
EXCHANGE:
	vote.sync.ballot.b32 %r7, 1, %r10;
`+storeAt("%r2", "u32", "%r7")))
	out, data := m.alloc(4 * lanes)
	if f := m.run("k", d3(1), d3(lanes), 0, out, out, 0); f != nil {
		t.Fatal(f)
	}
	for lane, got := range wordsOf(data)[:28] {
		if want := uint32(0x0111_1111) << (lane % 4); got != want {
			t.Errorf("lane %d got %#x, want %#x", lane, got, want)
		}
	}
}

// This is the code of cooperative groups' labeled_partition and reduce: lanes find those with the
// same label and reduce with them; each group's leader adds the result to that of the label. The
// lanes stay together.
func TestLabeledPartition(t *testing.T) {
	m := newMachine(t, entry(`
	shl.b32 %r3, %r2, 2;
	cvt.u64.u32 %rd3, %r3;
	add.s64 %rd4, %rd2, %rd3;
	ld.global.u32 %r4, [%rd4]; // the label
	match.any.sync.b32 %r10, %r4, -1;
	add.u32 %r5, %r2, 1;
	redux.sync.add.u32 %r6, %r5, %r10;
	elect.sync _|%p1, %r10;
	activemask.b32 %r7;
	setp.ne.u32 %p2, %r7, -1;
	@%p2 trap;
	@!%p1 bra END;
	mul.wide.u32 %rd5, %r4, 4;
	add.s64 %rd6, %rd1, %rd5;
	red.global.add.u32 [%rd6], %r6;
END:
`))
	r := rand.New(rand.NewPCG(13, 3))
	for _, labels := range []int{1, 2, 5, 32} {
		label, want := make([]uint32, 128), make([]uint32, 32)
		for i := range label {
			label[i] = r.Uint32N(uint32(labels))
			want[label[i]] += uint32(i + 1)
		}
		arg, _ := m.words(label...)
		out, data := m.words(make([]uint32, 32)...)
		if f := m.run("k", d3(1), d3(128), 0, out, arg, 0); f != nil {
			t.Fatal(f)
		}
		if got := wordsOf(data); !slices.Equal(got, want) {
			t.Errorf("%d labels: got %d, want %d", labels, got, want)
		}
	}
}
