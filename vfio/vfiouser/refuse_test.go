package vfiouser_test

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
	"testing"

	"vgpud/vfio/vfiouser"
	"vgpud/vfio/vfiouser/vfiousertest"
)

// A refused client gets the answer to its VERSION and has time to disconnect. One that does not
// disconnect, or continues to send, is disconnected.
func TestRefusedClientHangsUp(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	for what, then := range map[string]func(*vfiousertest.Raw){
		"stays":   func(r *vfiousertest.Raw) { r.WantClosed() },
		"goes on": func(r *vfiousertest.Raw) { r.Send(vfiouser.CmdDeviceReset, 0, nil); r.WantClosed() },
		"leaves":  func(r *vfiousertest.Raw) { r.Conn.Close() },
	} {
		r := vfiousertest.NewRaw(t, vfiousertest.ServeWith(t, &vfiouser.Server{
			Device: gpuLike(t), Check: func(vfiouser.Peer) error { return syscall.EPERM },
		}))
		if _, errno := r.Request(vfiouser.CmdVersion, []byte{0, 0, 0, 0}); errno != syscall.EPERM {
			t.Errorf("%s: %v", what, errno)
		}
		then(r)
	}
}

// Clients that Check refuses, in any number and however long they stay, don't keep out an accepted
// one.
func TestRefusedClientsDoNotBlockOthers(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	allow := make(chan struct{}, 1)
	path, _ := serveAt(t, &vfiouser.Server{Device: gpuLike(t), Check: func(vfiouser.Peer) error {
		select {
		case <-allow:
			return nil
		default:
			return errors.New("not you")
		}
	}})
	for range 100 {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	// When one more is answered, all of them have been checked or closed without a reply.
	c, err := vfiouser.Dial(context.Background(), path)
	if err == nil || !errors.Is(err, syscall.EACCES) && !errors.Is(err, vfiouser.ErrClosed) && !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("one more: %v, %v", c, err)
	}
	allow <- struct{}{}
	dial(t, path)
}
