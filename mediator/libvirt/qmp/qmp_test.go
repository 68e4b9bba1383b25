package qmp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vgpud/clock"
	"vgpud/internal/qmpconn"
)

// fakeQEMU answers as QEMU 11.1 does, with a cooperative guest.
type fakeQEMU struct {
	answers map[string]string // by command; what is not there are the defaults
	bridge  string            // what the only port is like
	device  string            // in the port, empty for none
	// address is what the guest gives the device once it is asked for the n-th time; 0 is never.
	after, asked int
	keepsDevice  bool   // lets go of nothing
	refuse       string // a command it knows no device for
	log          []string
}

var qemu11 = map[string]string{
	"query-version":  `{"qemu": {"micro": 3, "minor": 1, "major": 11}, "package": "Debian"}`,
	"qom-list-types": `[{"name": "vfio-user-pci", "parent": "vfio-pci-device"}]`,
	"query-memdev":   `[{"share": true, "id": "mem", "size": 134217728}]`,
	"qom-get":        `"/objects/mem"`,
	"query-name":     `{"name": "web1"}`,
	"query-uuid":     `{"UUID": "5d4b2f6e-0b0a-4c56-9d3f-6b1f0a0e7c11"}`,
}

const sparePort = `{"bus": 0, "slot": 24, "function": 0, "qdev_id": "vgpu-spare", "class_info": {"class": 1540}, "id": {"device": 12, "vendor": 6966}, "regions": [],
 "pci_bridge": {"bus": {"number": 0, "secondary": 1, "subordinate": 1, "prefetchable_range": {"base": 4294967296, "limit": 4831838207}}, "devices": [DEVICE]}}`

func newQEMU() *fakeQEMU {
	return &fakeQEMU{answers: maps.Clone(qemu11), bridge: sparePort, after: 2}
}

func (q *fakeQEMU) pci() string {
	device := ""
	if q.device != "" {
		device = `{"bus": 1, "slot": 0, "function": 0, "qdev_id": "` + q.device + `", "class_info": {"class": 4608}, "id": {"device": 1, "vendor": 30311},
 "regions": [{"bar": 0, "size": 65536, "address": -1}, {"bar": 2, "size": 67108864, "address": -1}]}`
	}
	return `[{"bus": 0, "devices": [{"bus": 0, "slot": 0, "function": 0, "qdev_id": "", "class_info": {"class": 1536}, "id": {"device": 10688, "vendor": 32902}, "regions": []},
` + strings.ReplaceAll(q.bridge, "DEVICE", device) + `]}]`
}

// hmp reads physical memory.
func (q *fakeQEMU) hmp(command string) string {
	switch command {
	case "xp /1xw 0xb0000000":
		return "b0000000: Cannot access memory\r\n"
	case "xp /1xw 0xe0000000":
		return "e0000000: 0x29c08086\r\n"
	case "xp /2xw 0xe0100018":
		if q.asked++; q.after == 0 || q.asked < q.after {
			return "e0100018: 0xf000000c 0x00000000\r\n" // while its size is looked for
		}
		return "e0100018: 0x1000000c 0x00000001\r\n"
	}
	return "unknown command\r\n"
}

func (q *fakeQEMU) Run(ctx context.Context, command string, args, result any) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var a map[string]any
	if args != nil {
		a = args.(map[string]any)
	}
	out, ok := q.answers[command]
	switch {
	case command == q.refuse:
		return fmt.Errorf("QEMU's %s: '%s' is not a valid device model name", command, a["driver"])
	case ok:
	case command == "query-pci":
		out = q.pci()
	case command == "human-monitor-command":
		b, err := json.Marshal(q.hmp(a["command-line"].(string)))
		if err != nil {
			return err
		}
		out = string(b)
	case command == "device_add":
		q.log = append(q.log, fmt.Sprint("add ", a["id"], " to ", a["bus"]))
		q.device, out = a["id"].(string), "{}"
	case command == "device_del":
		q.log = append(q.log, fmt.Sprint("del ", a["id"]))
		if !q.keepsDevice {
			q.device = ""
		}
		out = "{}"
	default:
		return fmt.Errorf("no command %s", command)
	}
	return qmpconn.Decode([]byte(`{"return": `+out+`}`), result)
}

func TestInspect(t *testing.T) {
	q := newQEMU()
	q.device = "vgpu1"
	m, err := Inspect(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	want := &Machine{Devices: []string{"vgpu-spare", "vgpu1"},
		Ports: []Port{{ID: "vgpu-spare", Device: "vgpu1", Occupied: true, Base: 1 << 32, Room: 512 << 20}}}
	if diff := cmp.Diff(want, m); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	who, err := Identify(t.Context(), q)
	if want := (Identity{Name: "web1", UUID: "5d4b2f6e-0b0a-4c56-9d3f-6b1f0a0e7c11"}); err != nil || who != want {
		t.Errorf("it says that it is %v, %v; want %v", who, err, want)
	}
}

func TestPort(t *testing.T) {
	const mib = 1 << 20
	ports := []Port{{ID: "full", Room: 512 * mib, Occupied: true}, {ID: "small", Room: 32 * mib}, {ID: "large", Room: 1024 * mib}, {ID: "spare", Room: 512 * mib}, {ID: "fits", Room: 256 * mib}}
	for _, c := range []struct {
		ports     []Port
		bar2      uint64
		preferred string
		want      string
	}{
		{ports, 256 * mib, "", "fits"},
		{ports, 256 * mib, "spare", "spare"},
		{ports, 16 * mib, "full", "small"},
		{ports, 512 * mib, "fits", "spare"},
		{ports, 2048 * mib, "", "no space: port large has room for 1024 MiB"},
		{ports[:1], mib, "", "no PCI Express port is free"},
		{nil, mib, "", "no PCI Express port is free"},
	} {
		p, err := (&Machine{Ports: c.ports}).Port(c.bar2, c.preferred)
		if got := fmt.Sprint(p.ID, err); !strings.HasPrefix(strings.TrimSuffix(got, "<nil>"), c.want) {
			t.Errorf("%d MiB, preferring %q: %s, want %s", c.bar2/mib, c.preferred, got, c.want)
		}
	}
}

// plug plugs into the only port, with a clock on which waiting takes no time.
func plug(ctx context.Context, t *testing.T, q *fakeQEMU) error {
	t.Helper()
	m, err := Inspect(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return Plug(ctx, q, instantClock{}, "vgpu1", m.Ports[0], "/run/x.sock")
}

// instantClock is a clock on which waiting takes no time.
type instantClock struct{ clock.Real }

func (instantClock) WaitUntil(ctx context.Context, _ time.Duration) error { return ctx.Err() }

func TestPlugIntoAQEMUWithoutTheDevice(t *testing.T) {
	q := newQEMU()
	q.answers["qom-list-types"] = `[]`
	q.refuse = "device_add"
	if err := plug(t.Context(), t, q); err == nil || !strings.Contains(err.Error(), "the VM's QEMU, 11.1, has no vfio-user-pci: want QEMU 10.1") {
		t.Errorf("%v", err)
	}
}

func TestPlugWaitsForTheAddress(t *testing.T) {
	q := newQEMU()
	if err := plug(t.Context(), t, q); err != nil {
		t.Fatal(err)
	}
	if q.asked != 2 || q.device != "vgpu1" {
		t.Errorf("asked %d times; device %q", q.asked, q.device)
	}
}

// limitedContext ends after the guest was asked three times.
type limitedContext struct {
	context.Context
	q    *fakeQEMU
	done chan struct{}
}

func (i *limitedContext) Done() <-chan struct{} { return i.done }

func (i *limitedContext) Err() error {
	if i.q.asked < 3 {
		return nil
	}
	select {
	case <-i.done:
	default:
		close(i.done)
	}
	return context.DeadlineExceeded
}

func TestPlugTakesBackWhatTheGuestDoesNotTake(t *testing.T) {
	for name, c := range map[string]struct {
		bridge, want string
	}{
		"no room":        {sparePort, "no space: the guest has found no addresses for the virtual GPU's memory (BAR2) behind port vgpu-spare, with room for 512 MiB"},
		"HyperTransport": {strings.NewReplacer("4294967296", "1097901015040", "4831838207", "1098437885951").Replace(sparePort), "an AMD processor with 40 address bits"},
	} {
		t.Run(name, func(t *testing.T) {
			q := newQEMU()
			q.bridge, q.after = c.bridge, 0
			err := plug(&limitedContext{t.Context(), q, make(chan struct{})}, t, q)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v; want %s", err, c.want)
			}
			if diff := cmp.Diff([]string{"add vgpu1 to vgpu-spare", "del vgpu1"}, q.log); diff != "" || q.device != "" {
				t.Errorf("device %q is left; -want +got:\n%s", q.device, diff)
			}
		})
	}
}

// A device that the guest keeps is not taken to be out.
func TestPlugSaysWhatIsLeft(t *testing.T) {
	for keepsDevice, c := range map[bool]clock.Clock{false: instantClock{}, true: lateClock{}} {
		q := newQEMU()
		q.after, q.keepsDevice = 0, keepsDevice
		err := Plug(&limitedContext{t.Context(), q, make(chan struct{})}, q, c, "vgpu1", Port{ID: "vgpu-spare", Base: 1 << 32, Room: 512 << 20}, "/run/x.sock")
		if err == nil || errors.Is(err, ErrStillPlugged) != keepsDevice || (q.device != "") != keepsDevice {
			t.Errorf("keepsDevice %v: %v; device %q", keepsDevice, err, q.device)
		}
	}
	q := newQEMU()
	q.answers["device_add"] = "["
	if err := plug(t.Context(), t, q); err == nil || errors.Is(err, ErrStillPlugged) {
		t.Errorf("a device that was not plugged in: %v", err)
	}
}

// lateClock is a clock on which every wait with a deadline is late.
type lateClock struct{ clock.Real }

func (lateClock) WaitUntil(ctx context.Context, _ time.Duration) error {
	if _, ok := ctx.Deadline(); ok {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

func TestUnplug(t *testing.T) {
	q := newQEMU()
	if err := Unplug(t.Context(), q, instantClock{}, "vgpu1"); err == nil || err.Error() != "the VM has no device vgpu1" {
		t.Errorf("nothing there: %v", err)
	}
	q.device = "vgpu1"
	if err := Unplug(t.Context(), q, instantClock{}, "vgpu1"); err != nil || q.device != "" {
		t.Errorf("%v; left: %q", err, q.device)
	}
	q.device, q.keepsDevice = "vgpu1", true
	ctx, cancel := context.WithCancelCause(t.Context())
	go cancel(errors.New("waited long enough"))
	if err := Unplug(ctx, q, clock.Real{}, "vgpu1"); err == nil || !strings.Contains(err.Error(), "long enough") && !errors.Is(err, context.Canceled) {
		t.Errorf("a guest that lets go of nothing: %v", err)
	}
}
