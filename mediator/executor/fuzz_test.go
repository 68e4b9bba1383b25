package executor

import (
	"math"
	"testing"

	"vgpud/gpu"
	"vgpud/mediator/vgpu/abi"
)

// FuzzEntries puts any bytes into a ring and sets any put pointer. The executor answers every
// command or ends the channel, and another channel of the context goes on.
func FuzzEntries(f *testing.F) {
	var e abi.Entry
	for i := range abi.Commands {
		abi.Header{Op: abi.Commands[i].Op, Cookie: 1}.Encode(&e)
		f.Add(append(e[:], e[:]...), uint32(2))
	}
	for op, p := range map[abi.Opcode]payload{
		abi.OpWindowAddress: abi.Mapping{Window: abi.Window{Offset: staging, Size: 64}, Address: 0x0a00_0000_0000},
		abi.OpMemAlloc:      abi.Alloc{Size: 4096, Address: 0x4800_0000_0000},
		abi.OpEventAwait:    abi.Point{Handle: 1, Value: 1},
		abi.OpSetLimit:      abi.Query{Key: abi.LimitHeapBytes, Value: 1 << 20},
	} {
		var x abi.Entry
		p.Encode(&x)
		abi.Header{Op: op}.Encode(&x)
		abi.Empty{}.Encode(&e)
		abi.Header{Op: abi.OpEventCreate, Aux: abi.EventTriggered}.Encode(&e)
		f.Add(append(append(e[:], x[:]...), x[:]...), uint32(3))
	}
	e = abi.Entry{}
	abi.Header{Op: abi.OpLaunch, More: abi.MaxMore}.Encode(&e)
	f.Add(e[:], uint32(1))
	f.Add([]byte{}, uint32(1<<31))
	var launches []byte // of a preemptible kernel, with its parameters
	for _, k := range kernels {
		data := attributed(make([]byte, 12), k.Attribute())
		more := uint8(abi.MoreFor(len(data)))
		abi.Launch{Function: 1, Grid: [3]uint32{9, 1, 1}, Block: [3]uint32{32, 1, 1}, ParamBytes: 12}.Encode(&e)
		abi.Header{Op: abi.OpLaunch, More: more, Aux: 1}.Encode(&e)
		launches = append(append(launches, e[:]...), append(data, make([]byte, int(more)*abi.EntrySize-len(data))...)...)
	}
	f.Add(launches, uint32(len(launches)/abi.EntrySize))
	f.Fuzz(func(t *testing.T, data []byte, put uint32) {
		r := newRig(t, gpu.ContextOptions{MemoryLimit: 16 << 20})
		g, other := r.open(), r.open()
		other.load(testdata(t, "early"), "count_coarse")
		n := 0
		for ; len(data) > 0 && n < ringEntries; n++ {
			slot := g.sub.Next()
			clear(slot[:])
			data = data[copy(slot[:], data):]
		}
		page := r.shared[abi.ChannelPage(0) : abi.ChannelPage(0)+abi.PageSize]
		abi.StoreWord(page, abi.SubmissionPutWord, put)
		for i := range 50 {
			if r.x.Step(false); i == 10 {
				r.evictAll(math.MaxUint32)
			}
		}
		if put > ringEntries && len(r.failures) == 0 {
			t.Errorf("put pointer %d in a ring of %d was not noticed", put, ringEntries)
		}
		if len(r.faults) == 0 { // entries that launch a kernel of their own making can't
			other.must(abi.OpNop, abi.Empty{})
		}
	})
}
