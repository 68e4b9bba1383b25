package vfiouser_test

import (
	"bytes"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"vgpud/vfio/vfiouser"
	"vgpud/vfio/vfiouser/vfiousertest"
)

// A client that sends requests without end and reads no reply fills its socket and is then
// disconnected, whatever the replies are. The next client is served.
func TestClientThatNeverReads(t *testing.T) {
	reply := vfiousertest.Encode(vfiouser.Header{ID: 9, Cmd: vfiouser.CmdDMARead, Flags: vfiouser.FlagTypeReply}, nil)
	request := func(cmd uint16, payload []byte) []byte {
		return vfiousertest.Encode(vfiouser.Header{ID: 9, Cmd: cmd}, payload)
	}
	for _, c := range []struct {
		name string
		send []byte
	}{
		{"large replies", request(vfiouser.CmdRegionRead, access(vfiouser.RegionBAR2, 0, 1<<20))},
		{"small replies", request(vfiouser.CmdRegionRead, access(vfiouser.RegionConfig, 0, 4))},
		{"replies with a descriptor", request(vfiouser.CmdDeviceGetRegionInfo, enc(&vfiouser.RegionInfo{Argsz: 32, Index: 2}))},
		{"errors", request(vfiouser.CmdMigDataRead, nil)},
		{"errors for replies to nothing", reply},
	} {
		t.Run(c.name, func(t *testing.T) {
			vfiousertest.CheckLeaks(t)
			dev := gpuLike(t)
			srv := &vfiouser.Server{Device: dev, Timeout: 30 * time.Millisecond}
			path, stop := serveAt(t, srv)
			r := connect(t, path)
			r.Negotiate()
			// The connection ends while this side still writes: both directions are full.
			_ = r.Conn.SetWriteDeadline(time.Now().Add(20 * time.Second))
			many := bytes.Repeat(c.send, 64)
			for {
				if _, err := r.Conn.Write(many); err != nil {
					if e, ok := err.(net.Error); ok && e.Timeout() {
						t.Fatal("a client that reads nothing is served for ever")
					}
					break
				}
			}
			client := nextClient(t, path)
			if err := client.Reset(); err != nil {
				t.Error(err)
			}
			client.Close()
			if err := stop(); err != nil {
				t.Error(err)
			}
			if s := srv.Stats(); s.Broken != 1 {
				t.Errorf("counts %+v", s)
			}
		})
	}
}

// A client that leaves a request of the device unanswered is disconnected, even if it sends other
// requests. The next client is served.
func TestClientThatNeverAnswers(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	dev := gpuLike(t)
	read := make(chan error, 1)
	dev.OnReset = func() error {
		err := dev.Session().DMARead(0, make([]byte, 4))
		read <- err
		return err
	}
	srv := &vfiouser.Server{Device: dev, Timeout: 30 * time.Millisecond}
	path, _ := serveAt(t, srv)
	r := connect(t, path)
	r.Negotiate()
	r.Send(vfiouser.CmdDeviceReset, 0, nil)
	if m := r.Receive(); m.Cmd != vfiouser.CmdDMARead {
		t.Fatalf("got %+v", m.Header)
	}
	r.Send(vfiouser.CmdRegionRead, 0, access(vfiouser.RegionConfig, 0, 4))
	if err := <-read; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the device's read ended with %v", err)
	}
	r.WantClosed()
	nextClient(t, path).Close()
}
