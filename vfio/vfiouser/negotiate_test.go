package vfiouser_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"vgpud/vfio/vfiouser"
	"vgpud/vfio/vfiouser/vfiousertest"
)

// qemuVersion is the payload of the VERSION that QEMU 11.1.3 sends; with its header the message has
// 214 bytes.
const qemuVersion = "\x00\x00\x00\x00" +
	`{"capabilities": {"pgsizes": 4096, "max_msg_fds": 16, "max_dma_maps": 65535, "max_data_xfer_size": 1048576, ` +
	`"migration": {"max_bitmap_size": 268435456, "pgsize": 4096}, "write_multiple": true}}` + "\x00"

func TestNegotiateWithQEMU(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	if n := len(qemuVersion) + vfiouser.SizeofHeader; n != 214 {
		t.Fatalf("QEMU's message has 214 bytes, this one %d", n)
	}
	dev := gpuLike(t)
	r := vfiousertest.RawClient(t, dev)
	reply, errno := r.Request(vfiouser.CmdVersion, []byte(qemuVersion))
	if errno != 0 {
		t.Fatal(errno)
	}
	if string(reply[:4]) != "\x00\x00\x00\x00" || reply[len(reply)-1] != 0 {
		t.Errorf("reply %q: want version 0.0 first and a NUL last", reply)
	}
	var got any
	if err := json.Unmarshal(reply[4:len(reply)-1], &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"capabilities": map[string]any{
		"max_msg_fds": 16.0, "max_data_xfer_size": 1048576.0, "max_dma_maps": 65535.0, "pgsizes": 4096.0, "write_multiple": true,
	}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("capabilities (-want +got):\n%s", d)
	}
	wantPeer := vfiouser.Capabilities{MaxMessageFDs: 16, MaxDataBytes: 1 << 20, MaxDMAMaps: 65535, PageSizes: 4096, WriteMultiple: true}
	if d := cmp.Diff(wantPeer, dev.Session().Capabilities()); d != "" {
		t.Errorf("QEMU's capabilities (-want +got):\n%s", d)
	}
}

func TestNegotiateRefuses(t *testing.T) {
	version := func(json string) []byte { return []byte("\x00\x00\x00\x00" + json) }
	for _, c := range []struct {
		name    string
		cmd     uint16
		flags   uint32
		payload []byte
	}{
		{name: "no payload", cmd: vfiouser.CmdVersion},
		{name: "short version", cmd: vfiouser.CmdVersion, payload: []byte{0, 0, 0}},
		{name: "other major version", cmd: vfiouser.CmdVersion, payload: []byte{1, 0, 0, 0, '{', '}', 0}},
		{name: "other command first", cmd: vfiouser.CmdDeviceGetInfo, payload: make([]byte, 16)},
		{name: "unknown command first", cmd: 999, payload: []byte{0, 0, 0, 0}},
		{name: "without NUL", cmd: vfiouser.CmdVersion, payload: version("{}")},
		{name: "NUL within", cmd: vfiouser.CmdVersion, payload: version("{}\x00{}\x00")},
		{name: "missing brace", cmd: vfiouser.CmdVersion, payload: version("{\x00")},
		{name: "missing quote", cmd: vfiouser.CmdVersion, payload: version("\"\x00")},
		{name: "empty JSON", cmd: vfiouser.CmdVersion, payload: version("\x00")},
		{name: "capabilities no object", cmd: vfiouser.CmdVersion, payload: version(`{"capabilities":"23"}` + "\x00")},
		{name: "descriptors no number", cmd: vfiouser.CmdVersion, payload: version(`{"capabilities":{"max_msg_fds":"foo"}}` + "\x00")},
		{name: "negative descriptors", cmd: vfiouser.CmdVersion, payload: version(`{"capabilities":{"max_msg_fds":-1}}` + "\x00")},
		{name: "deep", cmd: vfiouser.CmdVersion, payload: version(strings.Repeat("[", 12000) + "\x00")},
		{name: "long", cmd: vfiouser.CmdVersion, payload: version(strings.Repeat(" ", 20000) + "{}\x00")},
	} {
		t.Run(c.name, func(t *testing.T) {
			vfiousertest.CheckLeaks(t)
			dev := gpuLike(t)
			r := vfiousertest.RawClient(t, dev)
			if _, errno := r.Request(c.cmd, c.payload); errno != syscall.EINVAL {
				t.Errorf("refused with %v, want EINVAL", errno)
			}
			r.WantClosed()
			if n, _, _ := dev.Counts(); n != 0 {
				t.Error("the device was told of a client")
			}
		})
	}
}

func TestNegotiateWithoutCapabilities(t *testing.T) {
	for _, payload := range []string{"\x00\x00\x00\x00", "\x00\x00\x07\x00{}\x00", "\x00\x00\x00\x00{\"capabilities\":{}}\x00", "\x00\x00\x00\x00{\"new\":[1]}\x00"} {
		dev := gpuLike(t)
		r := vfiousertest.RawClient(t, dev)
		if _, errno := r.Request(vfiouser.CmdVersion, []byte(payload)); errno != 0 {
			t.Fatalf("%q: %v", payload, errno)
		}
		want := vfiouser.Capabilities{MaxMessageFDs: 1, MaxDataBytes: 1 << 20, MaxDMAMaps: 65535, PageSizes: 4096}
		if d := cmp.Diff(want, dev.Session().Capabilities()); d != "" {
			t.Errorf("%q: defaults (-want +got):\n%s", payload, d)
		}
		if _, errno := r.Request(vfiouser.CmdVersion, []byte(payload)); errno != syscall.EINVAL {
			t.Errorf("second VERSION: %v, want EINVAL", errno)
		}
	}
}

func TestNegotiateWithADeviceThatRefuses(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	dev := gpuLike(t)
	dev.OnAttach = func(*vfiouser.Session) error { return syscall.ENODEV }
	r := vfiousertest.RawClient(t, dev)
	if _, errno := r.Request(vfiouser.CmdVersion, []byte(qemuVersion)); errno != syscall.ENODEV {
		t.Errorf("refused with %v, want ENODEV", errno)
	}
	r.WantClosed()
	if _, n, _ := dev.Counts(); n != 0 {
		t.Error("detached though never attached")
	}
}

func TestDescriptionIsChecked(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*vfiouser.Description)
	}{
		{"odd BAR", func(d *vfiouser.Description) { d.Regions[0].Size = 3 }},
		{"areas without a file", func(d *vfiouser.Description) { d.Regions[0].Areas = []vfiouser.SparseMmapArea{{Size: 4096}} }},
		{"unaligned area", func(d *vfiouser.Description) { d.Regions[4].Areas[0].Offset = 8 }},
		{"area outside", func(d *vfiouser.Description) { d.Regions[4].Areas[1].Size = 1 << 40 }},
		{"areas overlap", func(d *vfiouser.Description) { d.Regions[4].Areas[1].Offset = 0 }},
		{"file offset", func(d *vfiouser.Description) { d.Regions[4].FileOffset = 1 << 63 }},
		{"regions", func(d *vfiouser.Description) { d.Regions = append(d.Regions, vfiouser.Region{}) }},
		{"interrupts", func(d *vfiouser.Description) { d.IRQs = append(d.IRQs, vfiouser.IRQ{}) }},
		{"vectors", func(d *vfiouser.Description) { d.IRQs[2].Count = 1 << 30 }},
	} {
		dev := gpuLike(t)
		c.change(&dev.Desc)
		r := vfiousertest.RawClient(t, dev)
		if _, errno := r.Request(vfiouser.CmdVersion, []byte(qemuVersion)); errno != syscall.EIO {
			t.Errorf("%s: %v, want EIO", c.name, errno)
		}
	}
}

func TestClientTellsWhyItWasRefused(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	dev := gpuLike(t)
	dev.OnAttach = func(*vfiouser.Session) error { return syscall.ENODEV }
	_, err := vfiouser.NewClient(context.Background(), vfiousertest.Serve(t, dev), vfiouser.ClientOptions{})
	var e *vfiouser.Error
	if !errors.As(err, &e) || e.Errno != syscall.ENODEV || e.Cmd != vfiouser.CmdVersion {
		t.Errorf("error %v", err)
	}
}

func TestNegotiationEndsWithItsContext(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	ours, _ := vfiousertest.Sockets(t) // no server answers
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := vfiouser.NewClient(ctx, ours, vfiouser.ClientOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }
