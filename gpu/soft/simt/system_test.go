package simt

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync"
	syncatomic "sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"vgpud/ptx"
)

// TestSystemScope has a kernel and the test change the same words at a time, by operations of system scope
// and by the processor's: none is lost.
func TestSystemScope(t *testing.T) {
	const times = 3000
	m := newMachine(t, entry(fmt.Sprintf(`
	mov.u32 %%r5, 0;
	mov.u64 %%rd5, 3;
LOOP:
	atom.add.sys.global.u32 %%r6, [%%rd1], 2;
	red.sys.global.add.f32 [%%rd1+4], 0f3F800000;
	atom.sys.global.add.u64 %%rd6, [%%rd1+8], %%rd5;
	red.sys.global.add.f64 [%%rd1+16], 0d3FF0000000000000;
	add.u32 %%r5, %%r5, 1;
	setp.lt.u32 %%p1, %%r5, %d;
	@%%p1 bra LOOP;`, times)))
	out, data := m.alloc(24)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 32 * times {
			syncatomic.AddUint32(word32(data), 1)
			syncatomic.AddUint64(word64(data[8:]), 1)
		}
	}()
	if f := m.run("k", d3(1), d3(32), 0, out, out, 0); f != nil {
		t.Fatal(f)
	}
	<-done
	const n = 32 * times
	got := []float64{
		float64(binary.LittleEndian.Uint32(data)), float64(math.Float32frombits(binary.LittleEndian.Uint32(data[4:]))),
		float64(binary.LittleEndian.Uint64(data[8:])), math.Float64frombits(binary.LittleEndian.Uint64(data[16:])),
	}
	if want := []float64{3 * n, n, 4 * n, n}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestSystemScopeMeanwhile has a processor change a word between an operation's read and its write: both
// changes are there. The operation's own function is what runs in between.
func TestSystemScopeMeanwhile(t *testing.T) {
	var data []byte
	add32, add64 := atomics32["add"][ptx.U32], atomics64["add"][ptx.U64]
	t.Cleanup(func() { atomics32["add"][ptx.U32], atomics64["add"][ptx.U64] = add32, add64 })
	var once32, once64 sync.Once
	atomics32["add"][ptx.U32] = func(old, b, c uint32) uint32 {
		once32.Do(func() { syncatomic.AddUint32(word32(data), 16) })
		return add32(old, b, c)
	}
	atomics64["add"][ptx.U64] = func(old, b, c uint64) uint64 {
		once64.Do(func() { syncatomic.AddUint64(word64(data[8:]), 16) })
		return add64(old, b, c)
	}
	m := newMachine(t, entry(`
	mov.u64 %rd5, 3;
	atom.add.sys.global.u32 %r6, [%rd1], 2;
	atom.sys.global.add.u64 %rd6, [%rd1+8], %rd5;
	st.global.u32 [%rd1+16], %r6;
	st.global.u64 [%rd1+24], %rd6;`))
	var out uint64
	out, data = m.alloc(32)
	if f := m.run("k", d3(1), d3(1), 0, out, out, 0); f != nil {
		t.Fatal(f)
	}
	got := []uint64{
		uint64(binary.LittleEndian.Uint32(data)), binary.LittleEndian.Uint64(data[8:]),
		uint64(binary.LittleEndian.Uint32(data[16:])), binary.LittleEndian.Uint64(data[24:]),
	}
	if diff := cmp.Diff([]uint64{18, 19, 16, 16}, got); diff != "" {
		t.Errorf("the words, and what the operations say they were (-want +got):\n%s", diff)
	}
}
