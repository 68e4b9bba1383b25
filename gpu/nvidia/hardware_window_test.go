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

// hardwareWindow returns a context that has a window. Its process must be the test's alone: the context is found
// soon after the process's start.
func hardwareWindow(t *testing.T) (*Device, *Context) {
	t.Helper()
	d := hardware(t)
	reachKernel(t, d)
	x, err := d.NewContext(t.Context(), gpu.ContextOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c := x.(*Context)
	if _, _, w := c.Window(); w == nil {
		t.Fatal("the context has no window")
	}
	return d, c
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
		return
	}
	d, c := hardwareWindow(t)
	p, size, w := c.Window()
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

// lookPTX has a kernel that adds up what it finds in a word of the window.
const lookPTX = `.version 7.0
.target sm_70
.address_size 64
.visible .entry add(.param .u64 word, .param .u64 sum) {
	.reg .b64 %rd<3>;
	.reg .b32 %r<2>;
	ld.param.u64 %rd1, [word];
	ld.param.u64 %rd2, [sum];
	ld.relaxed.gpu.global.u32 %r1, [%rd1];
	red.global.add.u32 [%rd2], %r1;
	ret;
}
`

// TestHardwareWindowPosts counts the launches that overtake a store to the window which came before
// them. Behind a load that came after the store none may.
func TestHardwareWindowPosts(t *testing.T) {
	if !alone(t) {
		return
	}
	_, c := hardwareWindow(t)
	p, size, w := c.Window()
	work, beside := channelOf(t, c), channelOf(t, c)
	m, err := c.LoadModule([]byte(lookPTX))
	if err != nil {
		t.Fatal(err)
	}
	k, err := m.Function("add")
	if err != nil {
		t.Fatal(err)
	}
	const large = 1 << 30
	sum, err := c.Alloc(256)
	if err != nil {
		t.Fatal(err)
	}
	busy, err := c.Alloc(large)
	if err != nil {
		t.Fatal(err)
	}
	one := gpu.Dim3{X: 1, Y: 1, Z: 1}
	off := size - 128
	params := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(p)+off), uint64(sum))
	launch := &gpu.Launch{Function: k, Grid: one, Block: one, Params: params}
	const rounds = 50000
	for _, v := range []struct {
		name   string
		loaded bool // after the store
		busy   bool // the GPU's memory is
	}{{"a store", false, false}, {"a store beside writes to all memory", false, true}, {"a store and a load", true, false}, {"a store and a load beside writes to all memory", true, true}} {
		f, err := work.Set(sum, 0, 4, 1)
		ran(t, work, f, err)
		var took time.Duration
		var last gpu.Fence
		for i := range rounds {
			if v.busy && i%20 == 0 && last <= beside.Done() {
				if last, err = beside.Set(busy, 0, 4, large/4); err != nil {
					t.Fatal(err)
				}
			}
			w.Store32(off, 1)
			if w.Load32(off) != 1 {
				t.Fatal("a load does not see the store before it")
			}
			w.Store32(off, 0)
			if v.loaded {
				begin := time.Now()
				w.Load32(off + 64)
				took += time.Since(begin)
			}
			f, err := work.Launch(launch)
			if err != nil {
				t.Fatal(err)
			}
			for work.Done() < f {
			}
		}
		if last > 0 {
			ran(t, beside, last, nil)
		}
		var found [4]byte
		f, err = work.CopyOut(found[:], sum)
		ran(t, work, f, err)
		n := binary.LittleEndian.Uint32(found[:])
		t.Logf("%s: %d of %d launches overtook it; a load took %v", v.name, n, rounds, took/rounds)
		if v.loaded && n > 0 {
			t.Errorf("%s: %d launches overtook it", v.name, n)
		}
	}
}
