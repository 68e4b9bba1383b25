package nvidia

import (
	"encoding/binary"
	"os"
	"slices"
	"testing"
	"time"

	"vgpud/gpu"
	"vgpud/gpu/nvidia/rm"
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

// reachKernel has a device use the kernel driver below CUDA, as it does if it is opened with it.
func reachKernel(t *testing.T, d *Device) {
	t.Helper()
	var err error
	if d.o.Kernel, err = Beneath(os.DirFS("/")); err != nil {
		t.Skip(err)
	}
	d.readClock()
}

// TestHardwareFoundLater: a context is found that is made long after the process opened the GPU, as a
// spare executor's is, when other processes have made any number of clients of the driver.
func TestHardwareFoundLater(t *testing.T) {
	if !alone(t) {
		return
	}
	d := hardware(t)
	reachKernel(t, d)
	g, err := rm.Lookup(os.DirFS("/"), d.info.PCI)
	if err != nil {
		t.Fatal(err)
	}
	for range 600 {
		c, err := rm.Open(d.o.Kernel, g)
		if err == nil {
			err = c.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	x, err := d.NewContext(t.Context(), gpu.ContextOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := x.(*Context).channelControl.do(func(*rm.Control) error { return nil }); err != nil {
		t.Error(err)
	}
	if own, err := rm.FindOwn(d.o.Kernel, nil); err == nil {
		t.Log("the driver makes its client with the context")
		if err := own.Node.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestHardwareWindow checks that a running kernel sees stores to the context's window, and that a
// later launch sees all of them. It reports the delays of a store and of a copy.
func TestHardwareWindow(t *testing.T) {
	if !alone(t) {
		return // its context is found soon after the process's start
	}
	d := hardware(t)
	reachKernel(t, d)
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
