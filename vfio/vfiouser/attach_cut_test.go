package vfiouser_test

import (
	"errors"
	"net"
	"slices"
	"syscall"
	"testing"

	"vgpud/vfio/vfiouser"
	"vgpud/vfio/vfiouser/vfiousertest"
)

// A QEMU may be killed at any point of its attach. The next one attaches as the first did, and
// nothing of the killed ones is left.
func TestQEMUDisconnectsDuringItsAttach(t *testing.T) {
	steps := qemuAttach()
	for _, c := range []struct {
		name string
		// part returns how many of the n bytes of the next message are still sent.
		part func(n int) int
		// read means that the replies to the complete messages are read.
		read bool
	}{
		{"between messages", func(int) int { return 0 }, true},
		{"between messages, replies unread", func(int) int { return 0 }, false},
		{"in a header", func(int) int { return 1 }, true},
		{"after a header", func(n int) int { return min(n-1, vfiouser.SizeofHeader) }, true},
		{"before the last byte", func(n int) int { return n - 1 }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			vfiousertest.CheckLeaks(t)
			dev := newPCIDevice(t)
			files := newQEMUFiles(t)
			path, stop := serveAt(t, &vfiouser.Server{Device: dev})
			for cut := range steps {
				r := connect(t, path)
				var ids []uint16
				for i := range steps[:cut] {
					ids = append(ids, r.Send(steps[i].cmd, vfiouser.FlagTypeCommand, steps[i].payload, files.of(&steps[i])...))
				}
				for i, id := range ids {
					if c.read {
						r.Reply(steps[i].cmd, id)
					}
				}
				next := vfiousertest.Encode(vfiouser.Header{ID: 0xffff, Cmd: steps[cut].cmd}, steps[cut].payload)
				if n := c.part(len(next)); n > 0 {
					r.SendBytes(next[:n], files.of(&steps[cut])...)
				}
				r.Conn.Close()
				nextClient(t, path).Close()
			}
			replayQEMU(t, connect(t, path), steps)
			if err := stop(); err != nil {
				t.Error(err)
			}
			if a, d, _ := dev.Counts(); a != d || a == 0 {
				t.Errorf("attached %d times, detached %d times", a, d)
			}
		})
	}
}

func connect(t *testing.T, path string) *vfiousertest.Raw {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return vfiousertest.NewRaw(t, c.(*net.UnixConn))
}

// nextClient attaches to a server whose last client is just disconnecting.
func nextClient(t *testing.T, path string) *vfiouser.Client {
	t.Helper()
	for {
		c, err := vfiouser.Dial(t.Context(), path)
		if err == nil {
			return c
		}
		if !errors.Is(err, syscall.EBUSY) {
			t.Fatal(err)
		}
	}
}

// qemuFiles are the descriptors that a QEMU sends.
type qemuFiles struct{ ram, event int }

func newQEMUFiles(t *testing.T) qemuFiles {
	t.Helper()
	return qemuFiles{int(vfiousertest.Memfd(t, 4096).Fd()), eventfds(t, 1)[0].FD()}
}

// of returns the descriptors that go with a message.
func (f qemuFiles) of(s *qemuStep) []int {
	fd := f.ram
	if s.cmd == vfiouser.CmdDeviceSetIRQs {
		fd = f.event
	}
	return slices.Repeat([]int{fd}, s.fds)
}
