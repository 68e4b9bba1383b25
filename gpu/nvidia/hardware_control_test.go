package nvidia

import (
	"context"
	"os"
	"testing"
	"time"

	"vgpud/accounting"
	"vgpud/gpu"
)

// hardwareMonitor watches d's GPU.
func hardwareMonitor(t *testing.T, d *Device) *Monitor {
	t.Helper()
	m, err := OpenMonitor(MonitorOptions{Info: d.Info()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// TestHardwareControl takes a context off the GPU and back by its handles, as the daemon does.
func TestHardwareControl(t *testing.T) {
	d := hardware(t)
	var err error
	if d.o.Kernel, err = Beneath(os.DirFS("/")); err != nil {
		t.Fatal(err)
	}
	x, err := d.NewContext(t.Context(), gpu.ContextOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c := x.(*Context)
	m := hardwareMonitor(t, d)
	start := time.Now()
	h, err := c.Handles()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("group %d, handles in %v: %s", c.Group(), time.Since(start), h.Names)
	control, err := m.Control(h)
	if err != nil {
		t.Fatal(err)
	}
	defer control.Close()
	ch, kernel := channelOf(t, c), load(t, c)
	const length = 200 * time.Millisecond
	for _, undo := range []func() error{control.Resume, func() error { return d.Resume(c) }} {
		f, err := ch.Launch(kernel("spin", uint64(length)))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
		if err := control.Suspend(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*length)
		if err := ch.Wait(ctx, f); err == nil {
			t.Error("the kernel ended while it was off the GPU")
		}
		cancel()
		if err := undo(); err != nil {
			t.Fatal(err)
		}
		if o := ran(t, ch, f, nil); o.Err != nil || o.End-o.Start < 2*length {
			t.Errorf("resumed, the kernel took %v: %v", o.End-o.Start, o.Err)
		}
	}
	if err := control.SetTimeslice(4 * time.Millisecond); err != nil {
		t.Error(err)
	}
}

// TestHardwareEvents opens the record and reads its clock. A context that is alone writes no
// records; package rm has the test with two processes.
func TestHardwareEvents(t *testing.T) {
	d := hardware(t)
	m := hardwareMonitor(t, d)
	start := time.Now()
	e, err := m.Events()
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	t.Logf("opened in %v", time.Since(start))
	before, err := e.Now()
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond)
	buf := make([]accounting.Switch, 256)
	n, err := e.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	after, err := e.Now()
	if err != nil {
		t.Fatal(err)
	}
	if gone := after - before; gone < 20*time.Millisecond || gone > time.Second {
		t.Errorf("the GPU's clock went %v in 20 ms", gone)
	}
	t.Logf("%d records: %+v", n, buf[:min(n, 4)])
}
