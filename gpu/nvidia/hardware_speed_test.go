package nvidia

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/gpu"
)

func percentiles(d []time.Duration) string {
	slices.Sort(d)
	return fmt.Sprintf("p10 %v p50 %v p90 %v p99 %v", d[len(d)/10], d[len(d)/2], d[len(d)*9/10], d[len(d)*99/100])
}

// TestHardwareLatency measures the latency of a launch by this package and by the bare driver.
func TestHardwareLatency(t *testing.T) {
	_, c := hardwareContext(t, gpu.ContextOptions{})
	ch := channelOf(t, c)
	empty := load(t, c)("empty")
	var err error
	const n = 5000
	var call, done []time.Duration
	for range n {
		start := time.Now()
		f, err := ch.Launch(empty)
		called := time.Now()
		if err != nil {
			t.Fatal(err)
		}
		for ch.Done() < f {
		}
		end := time.Now()
		call, done = append(call, called.Sub(start)), append(done, end.Sub(start))
	}
	t.Logf("launch call: %s", percentiles(call))
	t.Logf("launch to completion: %s", percentiles(done))
	allocs := testing.AllocsPerRun(1000, func() {
		f, err := ch.Launch(empty)
		if err != nil {
			t.Fatal(err)
		}
		for ch.Done() < f {
		}
	})
	t.Logf("%v allocations a launch", allocs)

	start := time.Now()
	var last gpu.Fence
	for range n {
		if last, err = ch.Launch(empty); err != nil {
			t.Fatal(err)
		}
	}
	ran(t, ch, last, nil)
	t.Logf("launches one behind the other: %v each", time.Since(start)/n)

	// The bare driver: launch, then poll the stream's event.
	if err := c.enter(); err != nil {
		t.Fatal(err)
	}
	e, err := c.drv.EventCreate(2 /* no timing */)
	if err != nil {
		t.Fatal(err)
	}
	fn := empty.Function.(*Function).f
	mem, err := pinned(c.drv, 8)
	if err != nil {
		t.Fatal(err)
	}
	flag := word(mem, 0)
	one := [3]uint32{1, 1, 1}
	raw := map[string]func() error{
		"set current":  func() error { return c.drv.CtxSetCurrent(c.ctx) },
		"launch":       func() error { return c.drv.LaunchKernel(fn, one, one, 0, ch.stream, ch.args, 0) },
		"record":       func() error { return c.drv.EventRecord(ch.ends[1], ch.stream) },
		"write value":  func() error { return c.drv.StreamWriteValue64(ch.stream, address(mem), 1) },
		"event query":  func() error { _, err := c.drv.EventQuery(ch.ends[1]); return err },
		"elapsed time": func() error { _, err := c.drv.EventElapsedTime(ch.ends[1], ch.ends[1]); return err },
		"launch, record, poll": func() error {
			if err := c.drv.LaunchKernel(fn, one, one, 0, ch.stream, ch.args, 0); err != nil {
				return err
			}
			if err := c.drv.EventRecord(e, ch.stream); err != nil {
				return err
			}
			for {
				if ok, err := c.drv.EventQuery(e); ok || err != nil {
					return err
				}
			}
		},
		"launch, write value, poll": func() error {
			if err := c.drv.LaunchKernel(fn, one, one, 0, ch.stream, ch.args, 0); err != nil {
				return err
			}
			flag.Store(0)
			if err := c.drv.StreamWriteValue64(ch.stream, address(mem), 1); err != nil {
				return err
			}
			for flag.Load() == 0 {
			}
			return nil
		},
		"launch, synchronize": func() error {
			if err := c.drv.LaunchKernel(fn, one, one, 0, ch.stream, ch.args, 0); err != nil {
				return err
			}
			return c.drv.StreamSynchronize(ch.stream)
		},
	}
	for name, f := range raw {
		var took []time.Duration
		for i := range 2000 {
			if i%200 == 0 {
				if err := c.drv.StreamSynchronize(ch.stream); err != nil {
					t.Fatal(err)
				}
			}
			start := time.Now()
			if err := f(); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			took = append(took, time.Since(start))
		}
		t.Logf("bare %s: %s", name, percentiles(took))
	}
	c.leave()

	// Evict words: small copies beside a running kernel.
	words := channelOf(t, c)
	p, err := c.Alloc(128)
	if err != nil {
		t.Fatal(err)
	}
	spin, err := ch.Launch(load(t, c)("spin", 400_000_000))
	if err != nil {
		t.Fatal(err)
	}
	var copied []time.Duration
	var w [4]byte
	for range 2000 {
		start := time.Now()
		f, err := words.CopyIn(p, w[:])
		if err != nil {
			t.Fatal(err)
		}
		for words.Done() < f {
		}
		copied = append(copied, time.Since(start))
	}
	t.Logf("word copied: %s, kernel still running: %v", percentiles(copied), ch.Done() < spin)
	ran(t, ch, spin, nil)
}

// TestHardwareBandwidth copies from and to a registered mapping of a memfd, like BAR2's, and from
// and to unregistered memory.
func TestHardwareBandwidth(t *testing.T) {
	_, c := hardwareContext(t, gpu.ContextOptions{})
	const size, header = 256 << 20, 1 << 20
	fd, err := unix.MemfdCreate("bar2", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Ftruncate(fd, size); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW); err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	ch := channelOf(t, c)
	const n = 128 << 20
	p, err := c.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	bandwidth := func(what string, host []byte) {
		for _, dir := range []string{"in", "out"} {
			best := time.Duration(1 << 62)
			var wall time.Duration
			for range 5 {
				start := time.Now()
				var f gpu.Fence
				var err error
				if dir == "in" {
					f, err = ch.CopyIn(p, host)
				} else {
					f, err = ch.CopyOut(host, p)
				}
				o := ran(t, ch, f, err)
				if o.Err != nil {
					t.Fatal(o.Err)
				}
				if o.End-o.Start < best {
					best, wall = o.End-o.Start, time.Since(start)
				}
			}
			t.Logf("%s, %s: %.2f GB/s on the GPU's clock, %.2f by the host's", what, dir, n/float64(best.Nanoseconds()), n/float64(wall.Nanoseconds()))
		}
	}
	window := mem[header : header+n]
	for i := range window {
		window[i] = byte(i * 7)
	}
	bandwidth("not registered", window)
	start := time.Now()
	release, err := c.RegisterHost(mem[header:])
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("registered %d MiB in %v", (size-header)>>20, time.Since(start))
	bandwidth("registered", window)
	clear(window[:4096])
	if f, err := ch.CopyOut(window[:4096], p); err != nil || ran(t, ch, f, err).Err != nil || window[4095] != byte((4095*7)&0xff) {
		t.Errorf("copied wrongly: %v %d", err, window[4095])
	}
	start = time.Now()
	if err := release(); err != nil {
		t.Fatal(err)
	}
	t.Logf("released in %v", time.Since(start))
	if err := unix.Munmap(mem); err != nil {
		t.Error(err)
	}
}
