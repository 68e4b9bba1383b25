package executor

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"testing"

	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu/abi"
)

// newRescuedRig returns a moving rig with what it saves when its GPU is lost.
func newRescuedRig(t *testing.T) (*rig, *os.File) {
	t.Helper()
	r := newMovingRig(t)
	kept, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	r.x.record = record{}
	r.x.o.Rescued = func(f *os.File, s ipc.Saved) error {
		r.wants = s.Wants
		_, err := f.Seek(0, io.SeekStart)
		if err == nil {
			_, err = io.Copy(kept, f)
		}
		return err
	}
	return r, kept
}

// A context outlives its GPU with all that its program wrote, in order, if no kernel has run.
func TestUnwrittenContextOutlivesItsGPU(t *testing.T) {
	r, kept := newRescuedRig(t)
	g := r.open()
	at := g.must(abi.OpMemAlloc, abi.Alloc{Size: 100_000}).Value[0]
	gone := g.must(abi.OpMemAlloc, abi.Alloc{Size: 4096}).Value[0]
	add := g.load(globalPTX, "add")
	want := make([]byte, 100_000)
	g.must(abi.OpSet, abi.Set{Dst: at + 8, Value: 0x01020304, Width: 4, Count: 20_000, Rows: 1})
	for i := range 20_000 {
		binary.LittleEndian.PutUint32(want[8+4*i:], 0x01020304)
	}
	data := bytes.Repeat([]byte("seven7!"), 1000)
	g.put(at+4001, data)
	copy(want[4001:], data)
	g.must(abi.OpSet, abi.Set{Dst: at + 5001, Value: 0xff00, Width: 1, Count: 30_000, Rows: 1})
	clear(want[5001:35_001])
	g.must(abi.OpSet, abi.Set{Dst: at + 20_000, Value: 7, Width: 1, Count: 3, Rows: 1})
	copy(want[20_000:], []byte{7, 7, 7})
	g.put(gone, data[:100])
	g.must(abi.OpMemFree, abi.Handle{Handle: gone})
	g.send(abi.Header{Op: abi.OpFence}, abi.Empty{})
	if err := r.options.Device.Close(); err != nil {
		t.Fatal(err)
	}
	if !r.x.rescue() || !r.wants {
		t.Fatal("it is lost with its GPU, or wants no other")
	}
	r.restore(kept)
	g.receive(1)
	if !bytes.Equal(g.get(at, len(want)), want) {
		t.Error("its memory is wrong")
	}
	l, params := launchOf(add, 1, at)
	g.must(abi.OpLaunch, l, params...)
	if v := binary.LittleEndian.Uint32(g.get(at, 4)); v != 105 {
		t.Errorf("a variable began with %d, want 100", v-5)
	}
	if r.x.rescue() {
		t.Error("a context is rescued although a kernel has run")
	}
}

// TestWrittenContextIsLost: a context is lost if a kernel or the GPU itself may have written to it,
// and if it was too much to keep.
func TestWrittenContextIsLost(t *testing.T) {
	for name, write := range map[string]func(g *guestEnd, at uint64){
		"a kernel": func(g *guestEnd, at uint64) {
			l, params := launchOf(g.load(incPTX, "inc"), 1, at)
			g.must(abi.OpLaunch, l, params...)
		},
		"a copy on the GPU": func(g *guestEnd, at uint64) { g.must(abi.OpCopy, abi.Transfer{Dst: at, Src: at + 2048, Size: 8}) },
		"rows": func(g *guestEnd, at uint64) {
			g.must(abi.OpSet, abi.Set{Dst: at, Pitch: 64, Width: 1, Count: 8, Rows: 4})
		},
		"too many writes": func(g *guestEnd, at uint64) {
			for range maxRecordWrites + 1 {
				g.must(abi.OpSet, abi.Set{Dst: at, Width: 1, Count: 8, Rows: 1})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := newRescuedRig(t)
			g := r.open()
			write(g, g.must(abi.OpMemAlloc, abi.Alloc{Size: 4096}).Value[0])
			if r.x.rescue() {
				t.Error("it is rescued")
			}
		})
	}
	var filled record
	for range 2 {
		filled.add(write{value: 0x100, width: 1, n: 1 << 40}) // is zero
		filled.add(write{value: 0x1000000, width: 4, n: maxRecordFilled / 8})
	}
	if filled.add(write{value: 1, width: 1, n: 1}); !filled.over || len(filled.writes) > 0 {
		t.Errorf("%d bytes would be set", filled.filled)
	}
	var r record
	for range 3 {
		r.add(write{data: make([]byte, maxRecord/2)})
	}
	if !r.over || len(r.writes) > 0 {
		t.Errorf("%d writes of %d bytes are kept", len(r.writes), r.bytes)
	}
}
