package nvidia

import (
	"encoding/binary"
	"os"
	"slices"
	"testing"
	"time"

	"vgpud/gpu"
)

// pollPTX has a kernel that polls a word until it is not zero.
const pollPTX = `.version 7.0
.target sm_70
.address_size 64
.visible .entry look(.param .u64 word) {
	.reg .b64 %rd<2>;
	.reg .b32 %r<2>;
	.reg .pred %p;
	ld.param.u64 %rd1, [word];
loop:
	ld.relaxed.gpu.global.u32 %r1, [%rd1];
	setp.eq.u32 %p, %r1, 0;
	@%p bra loop;
	ret;
}
`

// TestHardwareWindow checks that a running kernel sees stores to the context's window, and that a
// later launch sees all of them. It reports the delays of a store and of a copy.
func TestHardwareWindow(t *testing.T) {
	d := hardware(t)
	var err error
	if d.o.Kernel, err = Beneath(os.DirFS("/")); err != nil {
		t.Skip(err)
	}
	d.readClock()
	x, err := d.NewContext(t.Context(), gpu.ContextOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c := x.(*Context)
	p, size, w := c.Window()
	if w == nil {
		t.Fatal("the context has none")
	}
	work, side := channelOf(t, c), channelOf(t, c)
	m, err := c.LoadModule([]byte(pollPTX))
	if err != nil {
		t.Fatal(err)
	}
	f, err := m.Function("look")
	if err != nil {
		t.Fatal(err)
	}
	off := size - 4
	launch := &gpu.Launch{
		Function: f, Grid: gpu.Dim3{X: uint32(d.Properties().SMs), Y: 1, Z: 1}, Block: gpu.Dim3{X: 32, Y: 1, Z: 1},
		Params: binary.LittleEndian.AppendUint64(nil, uint64(p)+off),
	}
	one := []byte{1, 0, 0, 0}
	for _, way := range []struct {
		name  string
		write func() error
	}{
		{"a store", func() error { w.Store32(off, 1); return nil }},
		{"a copy", func() error { _, err := side.CopyIn(p+gpu.Ptr(off), one); return err }},
	} {
		var took []time.Duration
		for range 2000 {
			w.Store32(off, 0)
			fence, err := work.Launch(launch)
			if err != nil {
				t.Fatal(err)
			}
			for begin := time.Now(); time.Since(begin) < 50*time.Microsecond; {
			}
			if work.Done() >= fence {
				t.Fatalf("%s: the kernel saw what the word was before", way.name)
			}
			begin := time.Now()
			if err := way.write(); err != nil {
				t.Fatal(err)
			}
			for work.Done() < fence {
				if time.Since(begin) > 5*time.Second {
					t.Fatalf("%s: the kernel does not see it", way.name)
				}
			}
			took = append(took, time.Since(begin))
		}
		slices.Sort(took)
		t.Logf("%s: until the host sees the kernel's end %v, 99 in 100 %v, at most %v", way.name, took[len(took)/2], took[len(took)*99/100], took[len(took)-1])
	}
}
