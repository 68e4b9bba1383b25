package vfiouser_test

import (
	"io"
	"net"
	"testing"
	"time"

	"vgpud/vfio/vfiouser"
	"vgpud/vfio/vfiouser/vfiousertest"
)

// A flood of requests that want no reply does not accumulate anything in the server, and the client
// is served afterwards.
func TestFloodWithoutReplies(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	dev := newPCIDevice(t)
	r := vfiousertest.Negotiated(t, dev)
	var flood []byte
	for _, s := range qemuAttach()[1:] {
		flood = append(flood, vfiousertest.Encode(vfiouser.Header{Cmd: s.cmd, Flags: vfiouser.FlagNoReply}, s.payload)...)
		flood = append(flood, vfiousertest.Encode(vfiouser.Header{Cmd: s.cmd + 100, Flags: vfiouser.FlagNoReply}, s.payload)...)
	}
	before := vfiousertest.Descriptors(t)
	for range 100 {
		r.SendBytes(flood)
	}
	if _, errno := r.Request(vfiouser.CmdDeviceReset, nil); errno != 0 {
		t.Errorf("afterwards: %v", errno)
	}
	if after := vfiousertest.Descriptors(t); len(after) != len(before) {
		t.Errorf("%d descriptors before, %d after", len(before), len(after))
	}
}

// While a client is served, any number of further connections are refused or closed; the client
// goes on.
func TestFloodOfConnections(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	dev := gpuLike(t)
	path, _ := serveAt(t, &vfiouser.Server{Device: dev, Timeout: 20 * time.Millisecond})
	client := nextClient(t, path)
	defer client.Close()
	for i := range uint32(200) {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 { // some send VERSION, some only wait
			_, _ = c.Write(vfiousertest.Encode(vfiouser.Header{Cmd: vfiouser.CmdVersion}, []byte(qemuVersion)))
		}
		defer func() {
			// The reply is a refusal or nothing, but never an accepted session.
			all, _ := io.ReadAll(c)
			var h vfiouser.Header
			if len(all) >= vfiouser.SizeofHeader {
				h.UnmarshalBytes(all)
			}
			if len(all) > 0 && h.Flags != vfiouser.FlagTypeReply|vfiouser.FlagError {
				t.Errorf("connection %d was answered %+v", i, h)
			}
			c.Close()
		}()
		if err := client.WriteUint32(0, 0, i); err != nil {
			t.Fatal(err)
		}
		if v, err := client.ReadUint32(0, 0); v != i || err != nil {
			t.Fatalf("read %d, want %d, %v", v, i, err)
		}
	}
}
