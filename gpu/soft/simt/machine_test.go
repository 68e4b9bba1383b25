package simt

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"vgpud/gpu"
	"vgpud/ptx"
)

// machine runs kernels with memory and SMs that take turns.
type machine struct {
	t      testing.TB
	mem    *Memory
	brk    uint64
	module *Module
	out    bytes.Buffer
	sms    int
	budget int // of a step
	last   *Grid
	cycle  uint64

	buffers map[string][]byte // of a case of the corpus
}

const testHeader = ".version 8.0\n.target sm_80\n.address_size 64\n"

func parse(t testing.TB, src string) *ptx.Module {
	t.Helper()
	if !strings.Contains(src, ".version") {
		src = testHeader + src
	}
	m, err := ptx.Parse(src)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// newMachine loads a module and places its variables.
func newMachine(t testing.TB, src string) *machine {
	t.Helper()
	m, err := Load(t.Context(), parse(t, src), Options{})
	if err != nil {
		t.Fatal(err)
	}
	return machineFor(t, m)
}

func machineFor(t testing.TB, m *Module) *machine {
	t.Helper()
	ma := &machine{t: t, mem: new(Memory), brk: 0x1000_0000, module: m, sms: 2, budget: 1000}
	if n := m.ImageBytes(); n > 0 {
		base := ma.reserve(n)
		data := make([]byte, n)
		copy(data, m.Place(base))
		if err := m.MapImage(ma.mem, data); err != nil {
			t.Fatal(err)
		}
	}
	return ma
}

func (m *machine) reserve(n uint64) uint64 {
	at := m.brk
	m.brk = alignUp(m.brk+n+1, 256)
	return at
}

// alloc maps n bytes of memory.
func (m *machine) alloc(n int) (uint64, []byte) {
	m.t.Helper()
	at := m.reserve(uint64(n))
	data := make([]byte, n)
	if err := m.mem.Map(at, data); err != nil {
		m.t.Fatal(err)
	}
	return at, data
}

// words maps memory with the given words.
func (m *machine) words(v ...uint32) (uint64, []byte) {
	at, data := m.alloc(4 * len(v))
	for i, x := range v {
		binary.LittleEndian.PutUint32(data[4*i:], x)
	}
	return at, data
}

func wordsOf(data []byte) []uint32 {
	v := make([]uint32, len(data)/4)
	for i := range v {
		v[i] = binary.LittleEndian.Uint32(data[4*i:])
	}
	return v
}

// params lays out arguments of types uint64 and uint32 at their natural alignment.
func params(args ...any) []byte {
	var p []byte
	for _, a := range args {
		switch a := a.(type) {
		case uint64:
			for len(p)%8 != 0 {
				p = append(p, 0)
			}
			p = binary.LittleEndian.AppendUint64(p, a)
		case uint32:
			for len(p)%4 != 0 {
				p = append(p, 0)
			}
			p = binary.LittleEndian.AppendUint32(p, a)
		case int:
			for len(p)%4 != 0 {
				p = append(p, 0)
			}
			p = binary.LittleEndian.AppendUint32(p, uint32(a))
		default:
			panic(a)
		}
	}
	return p
}

// run executes a launch to its end or fault.
func (m *machine) run(kernel string, grid, block gpu.Dim3, shared uint64, args ...any) *gpu.Fault {
	m.t.Helper()
	return m.launch(Launch{Kernel: m.module.Kernel(kernel), Grid: grid, Block: block, SharedBytes: shared, Params: params(args...)})
}

func (m *machine) launch(l Launch) *gpu.Fault {
	m.t.Helper()
	if l.Kernel == nil {
		m.t.Fatal("no such kernel")
	}
	l.Memory, l.SMs, l.Print = m.mem, m.sms, &m.out
	g, err := NewGrid(l)
	if err != nil {
		m.t.Fatal(err)
	}
	m.last = g
	var resident []*Block
	nanos := uint64(1000)
	for steps := 0; !g.Done(); steps++ {
		if steps > 2_000_000 {
			m.t.Fatal("the kernel does not end")
		}
		for len(resident) < 2*m.sms {
			b := g.StartBlock(len(resident) % m.sms)
			if b == nil {
				break
			}
			resident = append(resident, b)
		}
		keep := resident[:0]
		for _, b := range resident {
			r := b.Step(Now{Cycle: m.cycle, Nanos: nanos, CyclesPerUS: 1000}, m.budget)
			m.cycle += r.Cycles
			nanos += r.Cycles
			switch r.State {
			case Faulted:
				return r.Fault
			case Running:
				keep = append(keep, b)
			case Sleeping:
				nanos = max(nanos, r.Wake)
				keep = append(keep, b)
			}
		}
		resident = keep
	}
	return nil
}

func d3(x ...uint32) gpu.Dim3 {
	d := gpu.Dim3{X: 1, Y: 1, Z: 1}
	for i, v := range x {
		switch i {
		case 0:
			d.X = v
		case 1:
			d.Y = v
		case 2:
			d.Z = v
		}
	}
	return d
}
