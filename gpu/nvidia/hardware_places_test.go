package nvidia

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"vgpud/gpu"
)

// TestHardwareAttributes lists the attributes that are not 0.
func TestHardwareAttributes(t *testing.T) {
	d := hardware(t)
	before := time.Now()
	all, err := d.Attributes()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d attributes in %v", len(all), time.Since(before))
	known := 0
	for i, v := range all {
		if v != 0 {
			known++
			t.Logf("%d: %d", i, v)
		}
	}
	p := d.Properties()
	if known < 80 || int(all[gpu.MultiprocessorCount]) != p.SMs || all[gpu.WarpSize] != 32 {
		t.Errorf("%d attributes, %d SMs", known, all[gpu.MultiprocessorCount])
	}
}

// TestHardwareContextLimits checks that the driver takes limits, and that they are charged as what
// it says it took.
func TestHardwareContextLimits(t *testing.T) {
	_, c := hardwareContext(t, gpu.ContextOptions{MemoryLimit: 8 << 30})
	free := func() uint64 {
		n, _, err := c.Memory()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, x := range []struct {
		limit gpu.Limit
		set   uint64
	}{{gpu.LimitPrintf, 16 << 20}, {gpu.LimitHeap, 64 << 20}, {gpu.LimitStack, 8 << 10}, {gpu.LimitL2Fetch, 64}} {
		was, err := c.Limit(x.limit)
		if err != nil {
			t.Fatal(err)
		}
		before := free()
		if err := c.SetLimit(x.limit, x.set); err != nil {
			t.Errorf("limit %d := %d: %v", x.limit, x.set, err)
		}
		now, err := c.Limit(x.limit)
		t.Logf("limit %d: %d, set to %d, is %d, %d bytes charged: %v", x.limit, was, x.set, now, before-free(), err)
		if now < x.set {
			t.Errorf("limit %d is %d, want %d", x.limit, now, x.set)
		}
	}
	if err := c.SetLimit(gpu.LimitStack, 1<<20); err == nil {
		t.Error("a stack beyond the memory limit")
	}
}

// TestHardwarePlaces checks that memory is at chosen addresses, zeroed, and that neither taking nor
// freeing it waits for kernels that run.
func TestHardwarePlaces(t *testing.T) {
	d, c := hardwareContext(t, gpu.ContextOptions{})
	before := time.Now()
	base, size, grain, err := c.Places()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d GiB at %#x in pieces of %d, in %v", size>>30, uint64(base), grain, time.Since(before))
	const bytesOf = 64 << 20
	work, side := channelOf(t, c), channelOf(t, c)
	m, err := c.LoadModule([]byte(pollPTX))
	if err != nil {
		t.Fatal(err)
	}
	f, err := m.Function("look")
	if err != nil {
		t.Fatal(err)
	}
	word := alloc(t, c, 64)
	poll := &gpu.Launch{
		Function: f, Grid: gpu.Dim3{X: uint32(d.Properties().SMs / 2), Y: 1, Z: 1}, Block: gpu.Dim3{X: 32, Y: 1, Z: 1},
		Params: binary.LittleEndian.AppendUint64(nil, uint64(word)),
	}
	// set lets the kernel that polls word end.
	set := func(v uint32) {
		fence, err := side.Set(word, v, 4, 1)
		if o := ran(t, side, fence, err); o.Err != nil {
			t.Fatal(o.Err)
		}
	}
	for round, busy := range []bool{false, true, true} {
		var running gpu.Fence
		set(0)
		if busy {
			if running, err = work.Launch(poll); err != nil {
				t.Fatal(err)
			}
		}
		p := base + gpu.Ptr(grain)*gpu.Ptr(100*round)
		before := time.Now()
		if err := c.AllocAt(p, bytesOf); err != nil {
			t.Fatal(err)
		}
		took := time.Since(before)
		got := make([]byte, 1<<20)
		fence, err := side.CopyOut(got, p+bytesOf-1<<20)
		if o := ran(t, side, fence, err); o.Err != nil || !bytes.Equal(got, make([]byte, len(got))) {
			t.Errorf("not zero: %v", o.Err)
		}
		fence, err = side.Set(p, 0x5a, 1, bytesOf)
		if o := ran(t, side, fence, err); o.Err != nil {
			t.Fatal(o.Err)
		}
		before = time.Now()
		if err := c.Free(p); err != nil {
			t.Fatal(err)
		}
		t.Logf("busy %v: %v to allocate 64 MiB, %v to free, %d bytes in use", busy, took, time.Since(before), c.Freed())
		set(1)
		if busy {
			if o := ran(t, work, running, nil); o.Err != nil {
				t.Fatal(o.Err)
			}
		}
		before = time.Now()
		for c.Freed() != 0 {
			if time.Since(before) > 5*time.Second {
				t.Fatal("the memory is never free")
			}
		}
		t.Logf("unmapped %v later", time.Since(before))
		if err := c.AllocAt(p, 8); err != nil {
			t.Errorf("again: %v", err)
		}
	}
	// An address beside a running kernel's: unmapping it must not wait either.
	a := base + gpu.Ptr(1000*grain)
	if err := c.AllocAt(a, 8); err != nil {
		t.Fatal(err)
	}
	if err := c.Free(a); err != nil {
		t.Fatal(err)
	}
	set(0)
	running, err := work.Launch(poll)
	if err != nil {
		t.Fatal(err)
	}
	before = time.Now()
	n := c.Freed()
	t.Logf("%d bytes in use after %v beside a kernel", n, time.Since(before))
	set(1)
	if o := ran(t, work, running, nil); o.Err != nil {
		t.Fatal(o.Err)
	}
}

// TestHardwareMapHost checks that kernels see the host's stores to mapped memory while they run, and
// the host theirs, at an address that was chosen, and measures mapping as much as BAR2 usually has.
func TestHardwareMapHost(t *testing.T) {
	_, c := hardwareContext(t, gpu.ContextOptions{})
	const size, chosen = 256 << 20, 0x5000_0000_0000 + 1<<20
	f, mem := hostFile(t, size)
	release, err := c.RegisterHost(mem)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	before := time.Now()
	p, err := c.MapHost(f, 0, mem, chosen)
	if err != nil || p != chosen {
		t.Fatalf("mapped at %#x: %v", uint64(p), err)
	}
	t.Logf("256 MiB mapped again at %#x in %v", uint64(p), time.Since(before))
	own, err := c.MapHost(f, 0, mem, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("and at %#x", uint64(own))
	m, err := c.LoadModule([]byte(pollPTX))
	if err != nil {
		t.Fatal(err)
	}
	fn, err := m.Function("look")
	if err != nil {
		t.Fatal(err)
	}
	work := channelOf(t, c)
	one := gpu.Dim3{X: 1, Y: 1, Z: 1}
	const off = size - 4
	for _, at := range []gpu.Ptr{p, own} {
		binary.LittleEndian.PutUint32(mem[off:], 0)
		running, err := work.Launch(&gpu.Launch{Function: fn, Grid: one, Block: one, Params: binary.LittleEndian.AppendUint64(nil, uint64(at)+off)})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond) // in which a kernel that does not wait for the word ends
		if work.Done() >= running {
			t.Error("the kernel has ended by itself")
		}
		binary.LittleEndian.PutUint32(mem[off:], 1)
		if o := ran(t, work, running, nil); o.Err != nil {
			t.Fatal(o.Err)
		}
		fence, err := work.Set(at+4096, 0xabcdef, 4, 1024)
		if o := ran(t, work, fence, err); o.Err != nil || binary.LittleEndian.Uint32(mem[8188:]) != 0xabcdef {
			t.Errorf("set to %#x: %v", mem[8188:8192], o.Err)
		}
		gp := alloc(t, c, 4096)
		fence, err = work.Copy(gp, at+4096, 4096)
		if o := ran(t, work, fence, err); o.Err != nil || !bytes.Equal(read(t, work, gp, 4096), mem[4096:8192]) {
			t.Errorf("copied: %v", o.Err)
		}
	}
}
