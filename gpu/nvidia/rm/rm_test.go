package rm_test

import (
	"errors"
	"os"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"vgpud/gpu/nvidia/rm"
	"vgpud/gpu/nvidia/rm/abi"
	"vgpud/gpu/nvidia/rm/rmtest"
)

// context makes a context of this process in d.
func context(t *testing.T, d *rmtest.Driver, channels int) *rmtest.Context {
	t.Helper()
	x, err := d.NewContext(channels, true)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// control finds the context and takes control of it.
func control(t *testing.T, d *rmtest.Driver, opt rm.ControlOptions) *rm.Control {
	t.Helper()
	own, err := rm.FindOwn(d, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := rm.NewControl(own.Node, own.Objects, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestFindOwn(t *testing.T) {
	d := rmtest.New()
	if _, err := d.NewContext(8, false); err != nil { // another process's
		t.Fatal(err)
	}
	x := context(t, d, 8)
	if _, err := d.NewContext(8, false); err != nil {
		t.Fatal(err)
	}
	before := d.Descriptors()
	own, err := rm.FindOwn(d, nil)
	if err != nil {
		t.Fatal(err)
	}
	if own.Client != x.Client || own.Subdevice != x.Subdevice || own.Group != x.Group || len(own.CopyGroups) != 3 {
		t.Errorf("found %+v, want %+v", own.Objects, x)
	}
	if diff := cmp.Diff(x.Channels, own.Channels); diff != "" {
		t.Errorf("channels (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(x.Copies, own.Copies); diff != "" {
		t.Errorf("copies (-want +got):\n%s", diff)
	}
	if n := d.Descriptors() - before; n != 1 {
		t.Errorf("%d descriptors more than before, want the one returned", n)
	}
	if n := d.Missing(); n > 64 {
		t.Errorf("%d lines in the kernel's log", n)
	}
}

// TestFindOwnLater: between the start of a process and its context others may have made any number of
// clients.
func TestFindOwnLater(t *testing.T) {
	d := rmtest.New()
	x := context(t, d, 8)
	earlier, err := rm.Open(d, rm.GPU{PCI: rmtest.PCI})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := earlier.Close(); err != nil {
			t.Error(err)
		}
	}()
	for range 600 {
		if _, err := d.NewContext(1, false); err != nil {
			t.Fatal(err)
		}
	}
	if own, err := rm.FindOwn(d, nil); !errors.Is(err, rm.ErrNoContext) {
		t.Errorf("far above the client: %+v, %v, want ErrNoContext", own, err)
	}
	own, err := rm.FindOwn(d, earlier)
	if err != nil {
		t.Fatal(err)
	}
	if own.Client != x.Client {
		t.Errorf("found %#x, want %#x", own.Client, x.Client)
	}
	if err := own.Node.Close(); err != nil {
		t.Error(err)
	}
}

func TestFindOwnOfNoContext(t *testing.T) {
	d := rmtest.New()
	if _, err := d.NewContext(8, false); err != nil {
		t.Fatal(err)
	}
	before := d.Descriptors()
	if _, err := rm.FindOwn(d, nil); !errors.Is(err, rm.ErrNoContext) {
		t.Errorf("FindOwn = %v, want ErrNoContext", err)
	}
	if n := d.Descriptors(); n != before {
		t.Errorf("%d descriptors, want %d as before", n, before)
	}
}

func TestControlDisablesEveryChannelOnce(t *testing.T) {
	for _, channels := range []int{8, 32, 100} { // one call, two, four
		d := rmtest.New()
		x := context(t, d, channels)
		c := control(t, d, rm.ControlOptions{})
		if err := c.Disable(); err != nil {
			t.Fatal(err)
		}
		if least, most := x.Disabled(); least != 1 || most != 1 {
			t.Errorf("%d channels: disabled %d to %d times, want once", channels, least, most)
		}
		for range 2 { // an extra one is harmless
			if err := c.Enable(); err != nil {
				t.Fatal(err)
			}
		}
		if _, most := x.Disabled(); most != 0 {
			t.Errorf("%d channels: still disabled %d times", channels, most)
		}
	}
}

func TestControlOfComputeOnly(t *testing.T) {
	d := rmtest.New()
	x := context(t, d, 8)
	c := control(t, d, rm.ControlOptions{ComputeOnly: true})
	if err := c.Disable(); err != nil {
		t.Fatal(err)
	}
	if least, most := x.Disabled(); least != 0 || most != 1 {
		t.Errorf("disabled %d to %d times, want copies 0 and compute 1", least, most)
	}
}

func TestControlTakesBackHalfADisable(t *testing.T) {
	d := rmtest.New()
	x := context(t, d, 100)
	own, err := rm.FindOwn(d, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := rm.NewControl(failing{own.Node, abi.NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS, new(int), 2}, own.Objects, rm.ControlOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Disable(); !errors.Is(err, abi.NV_ERR_INVALID_STATE) {
		t.Errorf("Disable = %v, want what the third call said", err)
	}
	if _, most := x.Disabled(); most != 0 {
		t.Errorf("channels are left disabled %d times", most)
	}
}

// failing is a node on which a command fails after a number of calls.
type failing struct {
	rm.Node
	command abi.Command
	calls   *int
	after   int
}

func (f failing) Ioctl(nr uint8, arg, params []byte) error {
	var c abi.NVOS54_PARAMETERS
	if nr == abi.NV_ESC_RM_CONTROL && abi.Decode(arg, &c) == nil && c.Command == f.command {
		if *f.calls++; *f.calls == f.after+1 {
			c.Status = abi.NV_ERR_INVALID_STATE
			_, err := abi.Encode(arg, &c)
			return err
		}
	}
	return f.Node.Ioctl(nr, arg, params)
}

func TestControlRefusesWhatItCannotHave(t *testing.T) {
	d := rmtest.New()
	x := context(t, d, 8)
	theirs, err := d.NewContext(8, false)
	if err != nil {
		t.Fatal(err)
	}
	good := rm.Objects{Client: x.Client, Subdevice: x.Subdevice, Group: x.Group, Channels: x.Channels, Copies: x.Copies}
	for name, change := range map[string]func(*rm.Objects){
		"another's client":    func(o *rm.Objects) { o.Client = theirs.Client },
		"no channels":         func(o *rm.Objects) { o.Channels = nil },
		"too many":            func(o *rm.Objects) { o.Copies = make([]abi.Handle, rm.MaxChannels) },
		"a group as channel":  func(o *rm.Objects) { o.Channels = []abi.Handle{o.Group} },
		"a channel as group":  func(o *rm.Objects) { o.Group = o.Channels[0] },
		"a group for the GPU": func(o *rm.Objects) { o.Subdevice = o.Group },
		"missing":             func(o *rm.Objects) { o.Copies = []abi.Handle{77} },
	} {
		o := good
		change(&o)
		before := d.Descriptors()
		fd, err := x.FD()
		if err != nil {
			t.Fatal(err)
		}
		n, err := d.Adopt(os.NewFile(uintptr(fd), "nvidiactl"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := rm.NewControl(n, o, rm.ControlOptions{}); err == nil {
			t.Errorf("%s: taken", name)
		}
		if got := d.Descriptors(); got != before {
			t.Errorf("%s: %d descriptors, want %d as before", name, got, before)
		}
	}
}

func TestTimeslices(t *testing.T) {
	d := rmtest.New()
	context(t, d, 8)
	c := control(t, d, rm.ControlOptions{})
	if got, err := c.Timeslice(); err != nil || got != 2048*time.Microsecond {
		t.Errorf("Timeslice = %v, %v, want the driver's 2.048 ms", got, err)
	}
	for want, ok := range map[time.Duration]bool{
		time.Millisecond: true, 65 * time.Millisecond: true, rm.MinTimeslice: true, rm.MaxTimeslice: true,
		50 * time.Microsecond: false, 0: false, -time.Second: false, 2 * time.Second: false,
	} {
		if err := c.SetTimeslice(want); (err == nil) != ok {
			t.Errorf("SetTimeslice(%v) = %v", want, err)
		} else if got, err := c.Timeslice(); ok && (err != nil || got != want) {
			t.Errorf("Timeslice = %v, %v, want %v", got, err, want)
		}
	}
	if id, err := c.HardwareID(); err != nil || id != 1 {
		t.Errorf("HardwareID = %d, %v, want 1", id, err)
	}
	if err := c.Preempt(); err != nil {
		t.Error(err)
	}
}

// open makes a client of d.
func open(t *testing.T, d *rmtest.Driver) *rm.Client {
	t.Helper()
	c, err := rm.Open(d, rm.GPU{PCI: rmtest.PCI})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// events starts reading d's record.
func events(t *testing.T, d *rmtest.Driver) *rm.Events {
	t.Helper()
	e, err := open(t, d).Events()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

func TestClock(t *testing.T) {
	d := rmtest.New()
	c := open(t, d)
	d.SetNow(12345)
	if got, err := c.Now(); err != nil || got != 12345 {
		t.Errorf("Now = %v, %v", got, err)
	}
	d.Lose()
	if _, err := c.Now(); !rm.Lost(err) || !errors.Is(err, abi.NV_ERR_GPU_IS_LOST) {
		t.Errorf("Now of a lost GPU = %v", err)
	}
}

func TestOpenFindsTheGPUByItsAddress(t *testing.T) {
	for pci, ok := range map[string]bool{
		"": true, "0000:3b:00.0": true, "00000000:3B:00.0": true,
		"0000:3c:00.0": false, "0001:3b:00.0": false, "0000:3b:00.1": false, "3b:00.0": false, "x": false, "0000:3b:zz.0": false,
	} {
		d := rmtest.New()
		c, err := rm.Open(d, rm.GPU{PCI: pci})
		if (err == nil) != ok {
			t.Errorf("Open(%q) = %v", pci, err)
		}
		if err == nil {
			c.Close()
		}
		if n := d.Descriptors(); n != 0 {
			t.Errorf("Open(%q) leaves %d descriptors", pci, n)
		}
	}
}

func TestEvents(t *testing.T) {
	d := rmtest.New()
	e := events(t, d)
	buf := make([]rm.Switch, 8)
	if n, err := e.Read(buf); n != 0 || err != nil {
		t.Fatalf("Read of nothing = %d, %v", n, err)
	}
	d.Switch(100, 7, true)
	d.Record(abi.NV_EVENT_BUFFER_FECS_RECORD_V2{Type: 9, Tag: abi.NV_EVENT_BUFFER_FECS_CTXSWTAG_SIMPLE_START, PID: 7, Clock: 150})              // of another type
	d.Record(abi.NV_EVENT_BUFFER_FECS_RECORD_V2{Type: abi.EventTypeFECS, Tag: 0xff, PID: 7, Clock: 160})                                        // without a time
	d.Record(abi.NV_EVENT_BUFFER_FECS_RECORD_V2{Type: abi.EventTypeFECS, Tag: abi.NV_EVENT_BUFFER_FECS_CTXSWTAG_SIMPLE_END, Clock: 1<<63 + 12}) // with an invalid one
	d.Switch(200, 7, false)
	d.Switch(300, abi.KernelPID, true)
	n, err := e.Read(buf)
	want := []rm.Switch{{Clock: 100, PID: 7, On: true}, {Clock: 200, PID: 7}, {Clock: 300, On: true}}
	if diff := cmp.Diff(want, buf[:n]); err != nil || diff != "" {
		t.Errorf("Read = %v (-want +got):\n%s", err, diff)
	}
}

// TestEventsGoRound reads more records than the buffer holds, in chunks of another length, and gets
// each once and in order.
func TestEventsGoRound(t *testing.T) {
	d := rmtest.New()
	e := events(t, d)
	buf := make([]rm.Switch, 37)
	var next, wrote time.Duration
	for next < 20000 {
		for ; wrote < next+100; wrote++ {
			d.Switch(wrote, uint32(wrote%7)+1, wrote%2 == 0)
		}
		n, err := e.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range buf[:n] {
			if want := (rm.Switch{Clock: next, PID: int(next%7) + 1, On: next%2 == 0}); s != want {
				t.Fatalf("got %+v, want %+v", s, want)
			}
			next++
		}
	}
}

// TestEventsTellOfLoss has the reader stay away until the buffer overflows. The loss is reported
// after the records before it and before those after it.
func TestEventsTellOfLoss(t *testing.T) {
	const kept = 8191
	d := rmtest.New()
	e := events(t, d)
	for i := range time.Duration(kept + 5) {
		d.Switch(i, 1, true)
	}
	buf := make([]rm.Switch, 5000)
	if n, err := e.Read(buf); n != 5000 || err != nil {
		t.Fatalf("first Read = %d, %v", n, err)
	}
	d.Switch(100_000, 2, true) // after the loss; there is room again
	n, err := e.Read(buf)
	var lost *rm.DroppedError
	if n != kept-5000 || !errors.As(err, &lost) || lost.Records != 5 || buf[n-1].Clock != kept-1 {
		t.Fatalf("second Read = %d, %v up to %v, want %d and 5 lost", n, err, buf[max(n-1, 0)].Clock, kept-5000)
	}
	n, err = e.Read(buf)
	if err != nil || n != 1 || buf[0].Clock != 100_000 {
		t.Errorf("third Read = %d, %v, %+v", n, err, buf[0])
	}
}

func TestEventsOfWhoMayNot(t *testing.T) {
	d := rmtest.New()
	c := open(t, d)
	before := d.Descriptors()
	d.Refuse(abi.NV2080_CTRL_CMD_GR_FECS_BIND_EVTBUF_FOR_UID_V2, abi.NV_ERR_INSUFFICIENT_PERMISSIONS)
	if _, err := c.Events(); !errors.Is(err, abi.NV_ERR_INSUFFICIENT_PERMISSIONS) {
		t.Errorf("Events = %v", err)
	}
	d.Refuse(abi.NV2080_CTRL_CMD_GR_FECS_BIND_EVTBUF_FOR_UID_V2, abi.NV_OK)
	d.Drop()
	if _, err := c.Events(); !rm.Forbidden(err) {
		t.Errorf("Events without CAP_SYS_ADMIN = %v", err)
	}
	if n := d.Descriptors(); n != before {
		t.Errorf("%d descriptors, want %d as before", n, before)
	}
}

func TestEventsOfALostGPU(t *testing.T) {
	d := rmtest.New()
	e := events(t, d)
	d.Lose()
	if _, err := e.Read(make([]rm.Switch, 1)); !rm.Lost(err) {
		t.Errorf("Read = %v", err)
	}
}

func TestLinuxAdoptsOnlyTheControlNode(t *testing.T) {
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (rm.Linux{}).Adopt(f); err == nil {
		t.Error("took /dev/null")
	}
	if err := f.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the refused file is still open: %v", err)
	}
}

func TestLinuxHasNoOwnNodesButTheControlNode(t *testing.T) {
	nodes, err := rm.Linux{}.Own()
	if err != nil {
		t.Fatal(err)
	}
	if len(nodes) != 0 { // this process has opened none
		t.Errorf("%d of this process's descriptors are taken for the control node", len(nodes))
	}
}

func TestKnownDriver(t *testing.T) {
	for version, known := range map[string]bool{
		"580.159.04": true, "580.65.06": true, "580": true,
		"595.45.04": false, "570.86.15": false, "58": false, "": false, "x.y": false,
	} {
		nearest, got := rm.KnownDriver(version)
		if got != known || nearest != "580.159.04" {
			t.Errorf("KnownDriver(%q) = %q, %v, want %v", version, nearest, got, known)
		}
	}
}

func TestDriverVersion(t *testing.T) {
	got, err := rm.DriverVersion(fstest.MapFS{"sys/module/nvidia/version": {Data: []byte("580.159.04\n")}})
	if err != nil || got != "580.159.04" {
		t.Errorf("DriverVersion = %q, %v", got, err)
	}
	if _, err := rm.DriverVersion(fstest.MapFS{}); err == nil {
		t.Error("no module has a version")
	}
}

func TestLookup(t *testing.T) {
	root := fstest.MapFS{
		"proc/driver/nvidia/gpus/0000:3b:00.0/information": {Data: []byte("Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 90\nGPU UUID: \t GPU-5e\nDevice Minor: \t 3\nGPU Excluded:\t No\n")},
		"proc/driver/nvidia/gpus/0000:af:00.0/information": {Data: []byte("Model: \t\t NVIDIA H100 80GB HBM3\n")},
		"proc/driver/nvidia/gpus/0000:d8:00.0/information": {Data: []byte("Device Minor: many\n")},
	}
	if got, err := rm.Lookup(root, "0000:3B:00.0"); err != nil || got != (rm.GPU{PCI: "0000:3B:00.0", Minor: 3}) {
		t.Errorf("Lookup = %+v, %v", got, err)
	}
	for _, pci := range []string{"0000:af:00.0", "0000:d8:00.0", "0000:00:00.0", "../../../x", ""} {
		if got, err := rm.Lookup(root, pci); err == nil {
			t.Errorf("Lookup(%q) = %+v", pci, got)
		}
	}
}
