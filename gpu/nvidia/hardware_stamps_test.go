package nvidia

import (
	"encoding/binary"
	"os"
	"testing"
	"time"

	"vgpud/gpu"
)

// A launch's times agree with the kernel's own readings, also after pauses, for callers that poll
// and for callers that sleep.
func TestHardwareStamps(t *testing.T) {
	l, err := library()
	if err != nil {
		t.Skip(err)
	}
	o := Options{Driver: l, Device: "0"}
	if o.Kernel, err = Beneath(os.DirFS("/")); err != nil {
		t.Skip(err) // executors read the clock this way
	}
	d, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close() //nolint:errcheck // the process ends
	made, err := d.NewContext(t.Context(), gpu.ContextOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c := made.(*Context)
	t.Logf("a kernel begins %v after its event and call", c.lag)
	ch := channelOf(t, c)
	m, err := c.LoadModule([]byte(stampPTX))
	if err != nil {
		t.Fatal(err)
	}
	f, err := m.Function("stamp")
	if err != nil {
		t.Fatal(err)
	}
	p := allocOn(t, c, 16)
	one := gpu.Dim3{X: 1, Y: 1, Z: 1}
	launch := &gpu.Launch{Function: f, Grid: one, Block: one, Params: binary.LittleEndian.AppendUint64(nil, uint64(p))}
	for _, pause := range []struct {
		name  string
		spin  time.Duration
		sleep time.Duration
	}{{name: "one behind the other"}, {"looking for 450 µs", 450 * time.Microsecond, 0}, {"asleep for 1 ms", 0, time.Millisecond}} {
		var early, late, event, call []time.Duration
		for range 300 {
			time.Sleep(pause.sleep)
			for begin := time.Now(); time.Since(begin) < pause.spin; {
				ch.Done()
			}
			fence, err := ch.Launch(launch)
			if err != nil {
				t.Fatal(err)
			}
			for ch.Done() < fence {
			}
			o := ch.Outcome(fence)
			if o.Err != nil {
				t.Fatal(o.Err)
			}
			i := uint64(fence) % slotCount
			var started time.Duration
			if err := c.do("look", func() (err error) {
				started, err = c.clock.at(ch.starts[i])
				return err
			}); err != nil {
				t.Fatal(err)
			}
			called := ch.slots[i].called
			var got [16]byte
			g, err := ch.CopyOut(got[:], p)
			ran(t, ch, g, err)
			began := time.Duration(binary.LittleEndian.Uint64(got[:]))
			early, event, call = append(early, began-o.Start), append(event, began-started), append(call, began-called)
			late = append(late, o.End-time.Duration(binary.LittleEndian.Uint64(got[8:])))
		}
		t.Logf("%s: begins early by %s; ends late by %s; after its event %s; after its call and lag %s", pause.name,
			percentiles(early), percentiles(late), percentiles(event), percentiles(call))
		if e, l := early[len(early)/2], late[len(late)/2]; e.Abs() > 5*time.Microsecond || l.Abs() > 5*time.Microsecond {
			t.Errorf("%s: stamps are off", pause.name)
		}
	}
}

func allocOn(t *testing.T, c *Context, n uint64) gpu.Ptr {
	t.Helper()
	p, err := c.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
