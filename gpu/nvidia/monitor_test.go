package nvidia

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"vgpud/accounting"
	"vgpud/clock"
	"vgpud/gpu"
	"vgpud/gpu/nvidia/rm"
	"vgpud/gpu/nvidia/rm/abi"
	"vgpud/gpu/nvidia/rm/rmtest"
)

var (
	_ gpu.Monitor    = (*Monitor)(nil)
	_ gpu.Recording  = (*Monitor)(nil)
	_ gpu.Controller = (*Monitor)(nil)
	_ gpu.Losable    = (*Monitor)(nil)

	_ accounting.Pausable = (*eventSource)(nil)
)

// host returns the files of a host with rmtest's GPU and a driver of a version.
func host(version string) fstest.MapFS {
	return fstest.MapFS{
		"sys/module/nvidia/version":                              {Data: []byte(version + "\n")},
		"proc/driver/nvidia/gpus/" + rmtest.PCI + "/information": {Data: []byte("Device Minor: \t 0\n")},
	}
}

// watch opens a monitor on a software driver.
func watch(t *testing.T, d *rmtest.Driver, c clock.Clock) *Monitor {
	t.Helper()
	m, err := OpenMonitor(MonitorOptions{Info: Info{UUID: "GPU-1", PCI: rmtest.PCI}, Kernel: d, Root: host("580.159.04"), Clock: c})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// namesOf returns a context's handles as its process encodes them.
func namesOf(t testing.TB, x *rmtest.Context) json.RawMessage {
	t.Helper()
	names, err := json.Marshal(rm.Objects{Client: x.Client, Subdevice: x.Subdevice, Group: x.Group, Channels: x.Channels, Copies: x.Copies})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// handed returns the handles that a context's process hands over.
func handed(t *testing.T, x *rmtest.Context) gpu.Handles {
	t.Helper()
	fd, err := x.FD()
	if err != nil {
		t.Fatal(err)
	}
	return gpu.Handles{Files: []*os.File{os.NewFile(uintptr(fd), "nvidiactl")}, Names: namesOf(t, x)}
}

// TestEventsArePaused tests that nothing is recorded during a pause, that the clock goes on, and
// that the driver then has nobody who reads the record, since it records for one who does not.
func TestEventsArePaused(t *testing.T) {
	d := rmtest.New()
	m := watch(t, d, nil)
	before := d.Descriptors()
	source, err := m.Events()
	if err != nil {
		t.Fatal(err)
	}
	e := source.(accounting.Pausable)
	buf := make([]accounting.Switch, 8)
	read := func(want ...accounting.Switch) {
		t.Helper()
		n, err := e.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(append([]accounting.Switch{}, want...), append([]accounting.Switch{}, buf[:n]...)); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
	d.Switch(time.Second, 7, true)
	read(accounting.Switch{Clock: time.Second, PID: 7, On: true})
	if err := errors.Join(e.Pause(), e.Pause()); err != nil {
		t.Fatal(err)
	}
	if n := d.Descriptors(); n != before {
		t.Errorf("%d descriptors during a pause, want %d: the record is still open", n, before)
	}
	d.Switch(2*time.Second, 7, false)
	read()
	d.SetNow(3 * time.Second)
	if now, err := e.Now(); err != nil || now < 2*time.Second {
		t.Errorf("now %v, %v", now, err)
	}
	if err := errors.Join(e.Resume(), e.Resume()); err != nil {
		t.Fatal(err)
	}
	d.Switch(4*time.Second, 8, true)
	read(accounting.Switch{Clock: 4 * time.Second, PID: 8, On: true})
	if err := errors.Join(e.Pause(), e.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestMonitorControlsAnothersContext(t *testing.T) {
	d := rmtest.New()
	x, err := d.NewContext(8, false)
	if err != nil {
		t.Fatal(err)
	}
	m := watch(t, d, nil)
	before := d.Descriptors()
	c, err := m.Control(handed(t, x))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Suspend(); err != nil {
		t.Fatal(err)
	}
	if least, most := x.Disabled(); least != 1 || most != 1 {
		t.Errorf("suspended: channels disabled %d to %d times, want once", least, most)
	}
	if err := errors.Join(c.Resume(), c.Resume()); err != nil {
		t.Fatal(err)
	}
	if _, most := x.Disabled(); most != 0 {
		t.Errorf("resumed: channels disabled %d times", most)
	}
	if err := c.SetTimeslice(4 * time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if n := d.Descriptors(); n != before {
		t.Errorf("%d descriptors, want %d: one that is kept keeps its process's memory", n, before)
	}
}

func TestMonitorTakesFilesAlsoWhereItRefuses(t *testing.T) {
	d := rmtest.New()
	x, err := d.NewContext(8, false)
	if err != nil {
		t.Fatal(err)
	}
	m := watch(t, d, nil)
	for name, change := range map[string]func(*gpu.Handles){
		"no names": func(h *gpu.Handles) { h.Names = nil },
		"garbage":  func(h *gpu.Handles) { h.Names = json.RawMessage(`{"client":`) },
		"too big":  func(h *gpu.Handles) { h.Names = json.RawMessage(`{"client":4294967296}`) },
		"empty":    func(h *gpu.Handles) { h.Names = json.RawMessage(`{}`) },
		"two files": func(h *gpu.Handles) {
			h.Files = append(h.Files, handed(t, x).Files...)
		},
		"not the driver's": func(h *gpu.Handles) {
			h.Files[0].Close()
			f, err := os.Open(os.DevNull)
			if err != nil {
				t.Fatal(err)
			}
			h.Files[0] = f
		},
	} {
		h := handed(t, x)
		change(&h)
		before := d.Descriptors()
		if _, err := m.Control(h); err == nil {
			t.Errorf("%s: taken", name)
		}
		for _, f := range h.Files {
			if err := f.Close(); !errors.Is(err, os.ErrClosed) {
				t.Errorf("%s: a file is still open", name)
			}
		}
		if n := d.Descriptors(); n != before {
			t.Errorf("%s: %d descriptors, want %d", name, n, before)
		}
	}
}

func TestMonitorEvents(t *testing.T) {
	d := rmtest.New()
	var c clock.Sim
	m := watch(t, d, &c)
	e, err := m.Events()
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	d.SetNow(time.Second)
	d.Switch(100, 7, true)
	d.Switch(200, 7, false)
	d.Switch(300, 8, true)
	buf := make([]accounting.Switch, 2)
	if n, err := e.Read(buf); n != 2 || err != nil {
		t.Fatalf("Read = %d, %v", n, err)
	}
	if diff := cmp.Diff([]accounting.Switch{{Clock: 100, PID: 7, On: true}, {Clock: 200, PID: 7}}, buf); diff != "" {
		t.Errorf("switches (-want +got):\n%s", diff)
	}
	if n, err := e.Read(buf); n != 1 || err != nil || buf[0].PID != 8 {
		t.Errorf("Read = %d, %v, %+v", n, err, buf[0])
	}
	if at, err := e.Now(); err != nil || at != time.Second-clockMargin {
		t.Errorf("Now = %v, %v", at, err)
	}
	// Between readings, the GPU's clock is extrapolated by the host's.
	d.SetNow(time.Hour)
	c.Advance(readingEvery / 2)
	if at, err := e.Now(); err != nil || at != time.Second-clockMargin+readingEvery/2 {
		t.Errorf("Now = %v, %v", at, err)
	}
	c.Advance(readingEvery)
	if at, err := e.Now(); err != nil || at != time.Hour-clockMargin {
		t.Errorf("Now = %v, %v", at, err)
	}
}

// TestMonitorEventsInOneRead reads more switches than the source's buffer holds, and a loss.
func TestMonitorEventsInOneRead(t *testing.T) {
	d := rmtest.New()
	m := watch(t, d, nil)
	e, err := m.Events()
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for i := range time.Duration(9000) {
		d.Switch(i, 1, true)
	}
	buf := make([]accounting.Switch, 10000)
	n, err := e.Read(buf)
	if !errors.Is(err, accounting.ErrDropped) || n != 8191 {
		t.Errorf("Read = %d, %v, want 8191 and a loss", n, err)
	}
	if n, err := e.Read(buf); n != 0 || err != nil {
		t.Errorf("Read after the loss = %d, %v", n, err)
	}
}

func TestMonitorEventsNeedAPrivilege(t *testing.T) {
	d := rmtest.New()
	m := watch(t, d, nil)
	d.Refuse(abi.NV2080_CTRL_CMD_GR_FECS_BIND_EVTBUF_FOR_UID_V2, abi.NV_ERR_INSUFFICIENT_PERMISSIONS)
	if _, err := m.Events(); err == nil || !strings.Contains(err.Error(), "CAP_SYS_ADMIN") {
		t.Errorf("Events = %v, want what to do", err)
	}
}

func TestMonitorNoticesThatTheGPUIsGone(t *testing.T) {
	d := rmtest.New()
	var c clock.Sim
	m := watch(t, d, &c)
	c.AwaitWaiters(1)
	c.Advance(watchPeriod)
	c.AwaitWaiters(1)
	select {
	case <-m.Lost():
		t.Fatal("lost while it is there")
	default:
	}
	d.Lose()
	c.Advance(2 * watchPeriod)
	<-m.Lost()
	if _, err := m.Now(); !errors.Is(err, gpu.ErrLost) {
		t.Errorf("Now = %v, want ErrLost", err)
	}
}

func TestMonitorOfAnUnknownDriver(t *testing.T) {
	o := MonitorOptions{Info: Info{UUID: "GPU-1", PCI: rmtest.PCI}, Kernel: rmtest.New(), Root: host("999.1")}
	if _, err := OpenMonitor(o); !errors.Is(err, gpu.ErrUnsupported) || !strings.Contains(err.Error(), "580.159.04") {
		t.Fatalf("OpenMonitor = %v, want the nearest known version named", err)
	}
	o.AllowUnknownDriver = true
	m, err := OpenMonitor(o)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if m.Properties().Preempts {
		t.Error("it reports that it can preempt")
	}
	if _, err := m.Events(); !errors.Is(err, gpu.ErrUnsupported) {
		t.Errorf("Events = %v", err)
	}
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Control(gpu.Handles{Files: []*os.File{f}}); !errors.Is(err, gpu.ErrUnsupported) {
		t.Errorf("Control = %v", err)
	}
	if err := f.Close(); !errors.Is(err, os.ErrClosed) {
		t.Error("the file is still open")
	}
	if _, err := m.Now(); err != nil {
		t.Error(err)
	}
}

func TestMonitorCloseIsTheEnd(t *testing.T) {
	d := rmtest.New()
	m := watch(t, d, nil)
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	<-m.Lost()
	if n := d.Descriptors(); n != 0 {
		t.Errorf("%d descriptors are left", n)
	}
}

// FuzzControlNames passes arbitrary handles, as from an executor that a guest has taken over. They
// are refused or name the executor's own channels; no other context is touched.
func FuzzControlNames(f *testing.F) {
	// Handles are the same in every new driver.
	first := rmtest.New()
	for range 2 {
		x, err := first.NewContext(4, false)
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(namesOf(f, x)))
	}
	f.Add([]byte(`{"client":3251638836,"channels":[1,2,3]}`))
	f.Add([]byte(`[`))
	f.Fuzz(func(t *testing.T, names []byte) {
		d := rmtest.New()
		other, err := d.NewContext(4, false)
		if err != nil {
			t.Fatal(err)
		}
		own, err := d.NewContext(4, false)
		if err != nil {
			t.Fatal(err)
		}
		m := watch(t, d, nil)
		h := handed(t, own)
		h.Names = names
		c, err := m.Control(h)
		if err != nil {
			return
		}
		defer c.Close()
		_ = c.Suspend() // only its effect counts
		_ = c.SetTimeslice(time.Millisecond)
		if _, most := other.Disabled(); most != 0 {
			t.Errorf("%q disables another process's channels", names)
		}
	})
}
