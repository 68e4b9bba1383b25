package callable

import (
	"encoding/binary"
	"fmt"
	"strings"

	"vgpud/gpu/corpus"
	"vgpud/ptx"
	"vgpud/ptx/callable"
)

// A resident kernel: it carries out all blocks of a launch by calling the kernel's function. With
// warps of its own it takes one warp of a block after the other, as polling warps do, and else whole
// blocks. tx … are the registers of a thread's place.
const residentText = `
.visible .entry $NAME (.param .u64 arguments, .param .align 4 .b8 size[24])
{
	.reg .b32 %r<40>;
	.reg .b64 %rd<4>;
	.reg .pred %p<4>;
	ld.param.u64 %rd1, [arguments];
	ld.param.u32 %r1, [size];
	ld.param.u32 %r2, [size+4];
	ld.param.u32 %r3, [size+8];
	ld.param.u32 %r4, [size+12];
	ld.param.u32 %r5, [size+16];
	ld.param.u32 %r6, [size+20];
	mul.lo.u32 %r7, %r4, %r5;
	mul.lo.u32 %r7, %r7, %r6;
	mul.lo.u32 %r8, %r1, %r2;
	mul.lo.u32 %r8, %r8, %r3;
	mov.u32 %r9, 1;
	$WARPS
	mul.lo.u32 %r10, %r8, %r9;
	mov.u32 %r11, %ctaid.x;
next:
	setp.ge.u32 %p1, %r11, %r10;
	@%p1 bra done;
	div.u32 %r12, %r11, %r9;
	rem.u32 %r13, %r11, %r9;
	mov.u32 %r14, %tid.x;
	mad.lo.u32 %r14, %r13, 32, %r14;
	setp.ge.u32 %p2, %r14, %r7;
	@%p2 bra over;
	rem.u32 %r15, %r14, %r4;
	div.u32 %r16, %r14, %r4;
	div.u32 %r17, %r16, %r5;
	rem.u32 %r16, %r16, %r5;
	rem.u32 %r18, %r12, %r1;
	div.u32 %r19, %r12, %r1;
	div.u32 %r20, %r19, %r2;
	rem.u32 %r19, %r19, %r2;
	{
	.param .b64 a;
	.param .align 4 .b8 place[48];
	st.param.b64 [a], %rd1;
	st.param.b32 [place], %r15;
	st.param.b32 [place+4], %r16;
	st.param.b32 [place+8], %r17;
	st.param.b32 [place+12], %r4;
	st.param.b32 [place+16], %r5;
	st.param.b32 [place+20], %r6;
	st.param.b32 [place+24], %r18;
	st.param.b32 [place+28], %r19;
	st.param.b32 [place+32], %r20;
	st.param.b32 [place+36], %r1;
	st.param.b32 [place+40], %r2;
	st.param.b32 [place+44], %r3;
	$CALL
	}
over:
	$MEET
	mov.u32 %r21, %nctaid.x;
	add.u32 %r11, %r11, %r21;
	bra next;
done:
	ret;
	$PROTOTYPE
}
`

// resident returns the resident kernel of a callable one, and a kernel that prepares its arguments.
func resident(m *ptx.Module, r callable.Report, indirect bool) (string, error) {
	warps, meet := "add.u32 %r9, %r7, 31; shr.u32 %r9, %r9, 5;", "bar.warp.sync -1;"
	if byBlocks(r) {
		warps, meet = "", "barrier.sync 0;"
	}
	call, prototype, table := "call "+r.Function+", (a, place);", "", ""
	if indirect {
		table = fmt.Sprintf(".global .align 8 .u64 pointer_%s = %s;\n", r.Kernel, r.Function)
		call = "ld.global.u64 %rd2, [pointer_" + r.Kernel + "]; call %rd2, (a, place), proto;"
		prototype = callable.Prototype("proto")
	}
	prepare, err := preparing(m, r)
	if err != nil {
		return "", err
	}
	return prepare + table + strings.NewReplacer("$NAME", residentName(r.Kernel), "$WARPS", warps, "$MEET", meet,
		"$CALL", call, "$PROTOTYPE", prototype).Replace(residentText), nil
}

func residentName(kernel string) string { return "resident_" + kernel }
func prepareName(kernel string) string  { return "prepare_" + kernel }

// byBlocks reports whether whole blocks call a kernel.
func byBlocks(r callable.Report) bool { return r.Block || r.Waits }

// preparing returns a kernel with the parameters of another, and a pointer before them, that writes
// its parameters to memory as a launch has them.
func preparing(m *ptx.Module, r callable.Report) (string, error) {
	var fn *ptx.Func
	for _, it := range m.Items {
		if f, ok := it.(*ptx.Func); ok && f.Entry && f.Name == r.Kernel {
			fn = f
		}
	}
	var body strings.Builder
	end := int64(0)
	for _, p := range fn.Params {
		align := int64(max(p.Alignment(), 1))
		end = (end + align - 1) / align * align
		for i := range p.Size() {
			fmt.Fprintf(&body, "ld.param.u8 %%preparing_r, [%s+%d]; st.global.u8 [%%preparing_rd+%d], %%preparing_r;\n", p.Name, i, end+i)
		}
		end += p.Size()
	}
	text := ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry " + prepareName(r.Kernel) + "(.param .u64 preparing_to)\n{\n" +
		".reg .b64 %preparing_rd; .reg .b16 %preparing_r; ld.param.u64 %preparing_rd, [preparing_to];\n" + body.String() + "ret;\n}\n"
	made, err := ptx.Parse(text)
	if err != nil {
		return "", err
	}
	entry := made.Items[0].(*ptx.Func)
	entry.Params = append(entry.Params, fn.Params...)
	printed := made.String()
	return printed[strings.Index(printed, ".visible"):], nil
}

// called returns a case that does by calls what c does by launches, except for kernels that are not
// callable.
func called(c *corpus.Case, reports map[string]callable.Report) *corpus.Case {
	out := *c
	out.Buffers, out.Steps = append([]corpus.Buffer(nil), c.Buffers...), nil
	for i, s := range c.Steps {
		r := reports[s.Entry]
		if r.Function == "" {
			out.Steps = append(out.Steps, s)
			continue
		}
		arguments := corpus.Arg{Buffer: fmt.Sprintf("arguments of launch %d", i)}
		out.Buffers = append(out.Buffers, corpus.Buffer{Name: arguments.Buffer, Mode: corpus.Scratch, Size: max(r.ParamBytes, 1)})
		one := [3]uint32{1, 1, 1}
		out.Steps = append(out.Steps, corpus.Launch{Entry: prepareName(s.Entry), Grid: one, Block: one, Args: append([]corpus.Arg{arguments}, s.Args...)})
		var size []byte
		for _, n := range append(s.Grid[:len(s.Grid):len(s.Grid)], s.Block[:]...) {
			size = binary.LittleEndian.AppendUint32(size, n)
		}
		step := corpus.Launch{
			Entry: residentName(s.Entry), Grid: [3]uint32{3, 1, 1}, Block: [3]uint32{32, 1, 1}, SharedBytes: s.SharedBytes,
			Args: []corpus.Arg{arguments, {Bytes: size}},
		}
		blocks, threads := s.Grid[0]*s.Grid[1]*s.Grid[2], s.Block[0]*s.Block[1]*s.Block[2]
		if byBlocks(r) {
			step.Block[0], step.Grid[0] = threads, min(blocks, 2)
		}
		if r.Waits {
			step.Grid[0] = blocks
		}
		out.Steps = append(out.Steps, step)
	}
	return &out
}
