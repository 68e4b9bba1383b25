package tasks_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"vgpud/guestagent/driver"
	"vgpud/guestagent/driver/drivertest"
	"vgpud/guestagent/tasks"
	"vgpud/mediator/vgpu/abi"
)

// open returns a device in memory.
func open(t interface {
	Fatal(...any)
	Cleanup(func())
}) *driver.Device {
	host, err := drivertest.NewHost(drivertest.Options{Features: abi.AllFeatures})
	if err != nil {
		t.Fatal(err)
	}
	dev, err := driver.Open(background, host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Fatal(err)
		}
	})
	return dev
}

// same is an object of two programs that do the same.
type same struct {
	lazy, direct uint64
	bytes        int
}

// pair is a program twice: run lazily, and on a context from the start.
type pair struct {
	t      *rapid.T
	r      *tasks.Record
	lazy   *driver.Context // nil while nothing but the record is there
	direct *driver.Context
	all    []same
}

func (p *pair) must(err error) {
	if err != nil {
		p.t.Fatal(err)
	}
}

// begins reports whether the call that returned err is carried out on the task's context.
func (p *pair) begins(dev *driver.Device, err error) bool {
	if errors.Is(err, tasks.ErrBegin) {
		p.begin(dev)
		return true
	}
	p.must(err)
	return false
}

func (p *pair) begin(dev *driver.Device) {
	if p.lazy != nil {
		return
	}
	var err error
	p.lazy, err = dev.NewContext(background, driver.ContextOptions{})
	p.must(err)
	p.must(tasks.Replay(background, p.lazy, p.r))
}

// do has both do the same: record is tried while there is only the record.
func (p *pair) do(dev *driver.Device, record func() error, run func(gpu *driver.Context, addr func(same) uint64) error) {
	if p.lazy != nil || p.begins(dev, record()) {
		p.must(run(p.lazy, func(s same) uint64 { return s.lazy }))
	}
	p.must(run(p.direct, func(s same) uint64 { return s.direct }))
}

func (p *pair) alloc(dev *driver.Device, n int) {
	s := same{bytes: n}
	err := error(tasks.ErrBegin)
	if p.lazy == nil {
		s.lazy, err = p.r.Alloc(uint64(n))
	}
	if p.lazy != nil || p.begins(dev, err) {
		at, err := p.lazy.Alloc(background, uint64(n))
		p.must(err)
		s.lazy = uint64(at)
	}
	at, err := p.direct.Alloc(background, uint64(n))
	p.must(err)
	s.direct = uint64(at)
	p.all = append(p.all, s)
}

func (p *pair) free(i int) {
	s := p.all[i]
	p.all = append(p.all[:i], p.all[i+1:]...)
	p.must(p.direct.Free(background, driver.Ptr(s.direct)))
	region := p.r.Free(s.lazy)
	switch {
	case p.lazy == nil:
	case region == nil: // allocated after the task began
		p.must(p.lazy.Free(background, driver.Ptr(s.lazy)))
	case region.Objects == 0:
		p.must(p.lazy.Free(background, driver.Ptr(region.Base)))
	}
}

func (p *pair) read(dev *driver.Device, s same, at, n int) {
	var got [2][]byte
	next := 0
	p.do(dev, func() error {
		got[0] = bytes.Repeat([]byte{0xee}, n)
		next = 1
		err := p.r.Read(got[0], s.lazy+uint64(at))
		if err != nil {
			next = 0
		}
		return err
	}, func(gpu *driver.Context, addr func(same) uint64) error {
		got[next] = make([]byte, n)
		next++
		return gpu.CopyOut(background, got[next-1], driver.Ptr(addr(s)+uint64(at)))
	})
	if !bytes.Equal(got[0], got[1]) {
		p.t.Fatalf("%d bytes at %d of an object of %d: %x, want %x", n, at, s.bytes, got[0], got[1])
	}
}

// TestLazyIsDirect: whatever a program does, and whenever its task begins, its memory holds the same
// and it gets the same answers as if nothing were recorded.
func TestLazyIsDirect(t *testing.T) {
	sizes := rapid.OneOf(rapid.IntRange(1, 300), rapid.IntRange(drivertest.PlacesGrain/2-600, 2*drivertest.PlacesGrain))
	rapid.Check(t, func(t *rapid.T) {
		dev := open(t)
		direct, err := dev.NewContext(background, driver.ContextOptions{})
		if err != nil {
			t.Fatal(err)
		}
		p := &pair{t: t, direct: direct, r: tasks.New(tasks.Options{
			Base: drivertest.PlacesBase, Bytes: drivertest.PlacesBytes, Grain: drivertest.PlacesGrain, Limit: 1 << 30,
		})}
		object := func() (same, int, int) {
			s := rapid.SampledFrom(p.all).Draw(t, "object")
			at := rapid.IntRange(0, s.bytes-1).Draw(t, "at")
			return s, at, rapid.IntRange(1, min(s.bytes-at, 2000)).Draw(t, "bytes")
		}
		some := func(f func(*rapid.T)) func(*rapid.T) {
			return func(t *rapid.T) {
				if len(p.all) == 0 {
					t.Skip("no objects")
				}
				f(t)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"alloc": func(t *rapid.T) { p.alloc(dev, sizes.Draw(t, "bytes")) },
			"begin": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "begins") == 0 {
					p.begin(dev)
				}
			},
			"free": some(func(t *rapid.T) { p.free(rapid.IntRange(0, len(p.all)-1).Draw(t, "index")) }),
			"write": some(func(t *rapid.T) {
				s, at, n := object()
				src := rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, "source")
				p.do(dev, func() error { return p.r.Write(s.lazy+uint64(at), src) }, func(gpu *driver.Context, addr func(same) uint64) error {
					return gpu.CopyIn(background, driver.Ptr(addr(s)+uint64(at)), src)
				})
			}),
			"set": some(func(t *rapid.T) {
				s, at, n := object()
				width := rapid.SampledFrom([]int{1, 2, 4}).Draw(t, "width")
				at -= at % width
				value, rows := rapid.Uint32().Draw(t, "value"), rapid.IntRange(1, 5).Draw(t, "rows")
				count := max(n/rows/width, 1)
				pitch := (count + rapid.IntRange(0, 3).Draw(t, "gap")) * width
				for rows > 1 && at+(rows-1)*pitch+count*width > s.bytes {
					rows--
				}
				if at+count*width > s.bytes {
					t.Skip("no room for an element")
				}
				p.do(dev, func() error {
					return p.r.Set(s.lazy+uint64(at), uint64(pitch), value, uint64(width), uint64(count), uint64(rows))
				}, func(gpu *driver.Context, addr func(same) uint64) error {
					q, err := gpu.Own().Set2D(background, driver.Ptr(addr(s)+uint64(at)), uint64(pitch), value, width, uint64(count), uint64(rows))
					if err != nil {
						return err
					}
					return q.Wait(background)
				})
			}),
			"copy": some(func(t *rapid.T) {
				s, at, n := object()
				d := rapid.SampledFrom(p.all).Draw(t, "target")
				n = min(n, d.bytes)
				to := rapid.IntRange(0, d.bytes-n).Draw(t, "to")
				if d == s && to < at+n && at < to+n {
					t.Skip("CUDA does not say what overlapping copies do")
				}
				p.do(dev, func() error { return p.r.Copy(d.lazy+uint64(to), s.lazy+uint64(at), uint64(n)) }, func(gpu *driver.Context, addr func(same) uint64) error {
					q, err := gpu.Own().Copy(background, driver.Ptr(addr(d)+uint64(to)), driver.Ptr(addr(s)+uint64(at)), uint64(n))
					if err != nil {
						return err
					}
					return q.Wait(background)
				})
			}),
			"read": some(func(t *rapid.T) {
				s, at, n := object()
				p.read(dev, s, at, n)
			}),
		})
		p.begin(dev)
		for _, s := range p.all {
			p.read(dev, s, 0, s.bytes)
		}
		for len(p.all) > 0 {
			p.free(len(p.all) - 1)
		}
		if n := p.r.Objects(); n != 0 {
			t.Fatalf("%d objects of none", n)
		}
	})
}

// TestOtherAddresses: a record is not replayed where its addresses are not.
func TestOtherAddresses(t *testing.T) {
	dev := open(t)
	gpu, err := dev.NewContext(background, driver.ContextOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]tasks.Options{
		"before":       {Base: drivertest.PlacesBase - drivertest.PlacesGrain, Bytes: 1 << 30, Grain: drivertest.PlacesGrain},
		"behind":       {Base: drivertest.PlacesBase + 1, Bytes: drivertest.PlacesBytes, Grain: drivertest.PlacesGrain},
		"finer grains": {Base: drivertest.PlacesBase, Bytes: 1 << 30, Grain: drivertest.PlacesGrain / 2},
	} {
		o.Limit = 1 << 30
		r := tasks.New(o)
		if err := tasks.Replay(background, gpu, r); err != nil {
			t.Errorf("%s: an empty record: %v", name, err)
		}
		if _, err := r.Alloc(1 << 20); err != nil {
			t.Fatal(err)
		}
		if err := tasks.Replay(background, gpu, r); !errors.Is(err, tasks.ErrAddresses) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestReplayFails: an error of the device is the replay's.
func TestReplayFails(t *testing.T) {
	dev := open(t)
	gpu, err := dev.NewContext(background, driver.ContextOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r := tasks.New(tasks.Options{Base: drivertest.PlacesBase, Bytes: 1 << 40, Grain: drivertest.PlacesGrain, Limit: 1 << 50})
	p, err := r.Alloc(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	if err := gpu.AllocAt(background, driver.Ptr(p), 1); err != nil {
		t.Fatal(err)
	}
	if err := tasks.Replay(background, gpu, r); !errors.Is(err, abi.StatusInvalidAddress) {
		t.Errorf("where something is already: %v", err)
	}
	if err := gpu.Close(); err != nil {
		t.Fatal(err)
	}
	if err := tasks.Replay(background, gpu, r); err == nil {
		t.Error("replayed in a context that is closed")
	}
}

// ExampleRecord is a program that reads back what it wrote, before any GPU has it.
func ExampleRecord() {
	r := tasks.New(tasks.Options{Base: 1 << 40, Bytes: 1 << 30, Grain: 2 << 20, Limit: 1 << 30})
	p, _ := r.Alloc(100)
	_ = r.Write(p, []byte("hello"))
	_ = r.Set(p+1, 0, 'a', 1, 1, 1)
	b := make([]byte, 5)
	_ = r.Read(b, p)
	fmt.Printf("%s, in %d KiB\n", b, r.Bytes()>>10)
	// Output: hallo, in 2048 KiB
}
