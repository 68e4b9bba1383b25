package vfiouser_test

import (
	"bytes"
	"math"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"vgpud/vfio/vfiouser"
	"vgpud/vfio/vfiouser/vfiousertest"
)

// header returns a header's bytes with the given size, right or wrong.
func header(h vfiouser.Header) []byte { return enc(&h) }

// An impossible size gets a reply and then the connection is closed, since the start of the next
// message is unknown.
func TestBadSizeIsAnsweredAndCloses(t *testing.T) {
	for _, size := range []uint32{0, 1, 15, vfiouser.MaxMessageBytes + 1, 1 << 31, math.MaxUint32} {
		for _, negotiated := range []bool{false, true} {
			vfiousertest.CheckLeaks(t)
			dev := gpuLike(t)
			r := vfiousertest.RawClient(t, dev)
			if negotiated {
				r.Negotiate()
			}
			// The descriptors of such a message are closed too.
			r.SendBytes(header(vfiouser.Header{ID: 0xbad1, Cmd: vfiouser.CmdDeviceSetIRQs, Size: size}), eventfds(t, 1)[0].FD())
			if m := r.Reply(vfiouser.CmdDeviceSetIRQs, 0xbad1); syscall.Errno(m.Errno) != syscall.EINVAL {
				t.Errorf("size %d: error %d, want EINVAL", size, m.Errno)
			}
			r.WantClosed()
		}
	}
}

// An error of one request leaves the connection usable.
func TestRequestErrorsKeepTheConnection(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	dev := gpuLike(t)
	srv := &vfiouser.Server{Device: dev}
	r := vfiousertest.NewRaw(t, vfiousertest.ServeWith(t, srv))
	r.Negotiate()
	fd := eventfds(t, 1)[0].FD()
	inval := syscall.EINVAL
	wantErrors := uint64(0)
	for _, c := range []struct {
		name  string
		cmd   uint16
		flags uint32
		refusal
	}{
		{"no payload", vfiouser.CmdDeviceSetIRQs, 0, refusal{want: inval}},
		{"command 0", 0, 0, refusal{want: inval}},
		{"dirty pages, no longer there", 14, 0, refusal{want: inval}},
		{"unknown command", 19, 0, refusal{payload: []byte{0}, want: inval}},
		{"last command", math.MaxUint16, 0, refusal{want: inval}},
		{"a server's command", vfiouser.CmdDMARead, 0, refusal{payload: make([]byte, 16), want: inval}},
		{"migration", vfiouser.CmdMigDataRead, 0, refusal{payload: make([]byte, 8), want: syscall.ENOTSUP}},
		{"reset with payload", vfiouser.CmdDeviceReset, 0, refusal{payload: []byte{0}, want: inval}},
		{"unknown type", vfiouser.CmdDeviceReset, 2, refusal{want: inval}},
		{"error flag in a command", vfiouser.CmdDeviceReset, vfiouser.FlagError, refusal{want: inval}},
		{"unknown header flag", vfiouser.CmdDeviceReset, 1 << 31, refusal{want: inval}},
		{"descriptor with a reset", vfiouser.CmdDeviceReset, 0, refusal{fds: []int{fd}, want: inval}},
		{"descriptors with a read", vfiouser.CmdRegionRead, 0, refusal{payload: access(0, 0, 4), fds: []int{fd, fd}, want: inval}},
		{"feature without flags", vfiouser.CmdDeviceFeature, 0, refusal{payload: make([]byte, 7), want: inval}},
		{"feature", vfiouser.CmdDeviceFeature, 0, refusal{payload: enc(&vfiouser.DeviceFeature{Argsz: 8, Flags: vfiouser.FeatureGet | 1}), want: syscall.ENOTTY}},
	} {
		id := r.Send(c.cmd, c.flags, c.payload, c.fds...)
		if m := r.Reply(c.cmd, id); syscall.Errno(m.Errno) != c.want {
			t.Errorf("%s: %v, want %v", c.name, syscall.Errno(m.Errno), c.want)
		}
		wantErrors++
	}
	// A reply that matches no request is answered with an error, as libvfio-user does.
	r.SendBytes(vfiousertest.Encode(vfiouser.Header{ID: 0xbad2, Cmd: vfiouser.CmdDeviceSetIRQs, Flags: vfiouser.FlagTypeReply}, make([]byte, 100)))
	if m := r.Reply(vfiouser.CmdDeviceSetIRQs, 0xbad2); syscall.Errno(m.Errno) != inval {
		t.Errorf("unsolicited reply: error %d", m.Errno)
	}
	if _, errno := r.Request(vfiouser.CmdDeviceReset, nil); errno != 0 {
		t.Errorf("reset afterwards: %v", errno)
	}
	if got, want := srv.Stats(), (vfiouser.Stats{Clients: 1, Requests: wantErrors + 1, Errors: wantErrors}); got != want {
		t.Errorf("counts %+v, want %+v", got, want)
	}
}

// More descriptors than announced end the connection, since it is unknown which of them were lost.
func TestTooManyDescriptors(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	r := vfiousertest.Negotiated(t, gpuLike(t))
	fd := eventfds(t, 1)[0].FD()
	fds := make([]int, vfiouser.MaxMessageFDs+4)
	for i := range fds {
		fds[i] = fd
	}
	if _, errno := r.Request(vfiouser.CmdDeviceSetIRQs, irqSet(event|trigger, vfiouser.IRQMSI, 0, 16), fds[:16]...); errno != 0 {
		t.Errorf("%d descriptors: %v", 16, errno)
	}
	r.Send(vfiouser.CmdDeviceSetIRQs, 0, irqSet(event|trigger, vfiouser.IRQMSI, 0, 20), fds...)
	r.WantClosed()
}

// Descriptors on other bytes than a message's first belong to no message, and the kernel drops
// them.
func TestDescriptorsInTheMiddle(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	r := vfiousertest.Negotiated(t, gpuLike(t))
	fd := eventfds(t, 1)[0].FD()
	m := vfiousertest.Encode(vfiouser.Header{ID: 7, Cmd: vfiouser.CmdDMAMap}, dmaMap(3, 0, 0, 4096))
	for i := range m {
		r.SendBytes(m[i:i+1], fd)
	}
	if m := r.Reply(vfiouser.CmdDMAMap, 7); m.Errno != 0 {
		t.Errorf("error %d", m.Errno)
	}
}

// A client may disconnect after any byte. The server then closes everything and detaches the client
// once.
func TestClientDisconnectsAtAnyByte(t *testing.T) {
	session := [][]byte{
		vfiousertest.Encode(vfiouser.Header{ID: 1, Cmd: vfiouser.CmdVersion}, []byte(qemuVersion)),
		vfiousertest.Encode(vfiouser.Header{ID: 2, Cmd: vfiouser.CmdDMAMap}, dmaMap(3, 0, 0, 4096)),
		vfiousertest.Encode(vfiouser.Header{ID: 3, Cmd: vfiouser.CmdDeviceSetIRQs}, irqSet(event|trigger, vfiouser.IRQMSI, 0, 1)),
		vfiousertest.Encode(vfiouser.Header{ID: 4, Cmd: vfiouser.CmdRegionRead}, access(7, 0, 256)),
	}
	vfiousertest.CheckLeaks(t)
	fd := eventfds(t, 1)[0].FD()
	all := bytes.Join(session, nil)
	for cut := 0; cut <= len(all); cut += 1 + cut%3 {
		dev := gpuLike(t)
		client, server := vfiousertest.Sockets(t)
		srv := &vfiouser.Server{Device: dev, Log: quiet()}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = srv.ServeConn(t.Context(), server)
		}()
		r := vfiousertest.NewRaw(t, client)
		left := cut
		for i, m := range session {
			n := min(left, len(m))
			left -= n
			switch {
			case n > 0 && i == 0:
				r.SendBytes(m[:n])
			case n > 0:
				r.SendBytes(m[:n], fd) // the server may refuse the read
			}
		}
		client.Close()
		<-done
		if a, d, _ := dev.Counts(); a != d {
			t.Fatalf("cut at %d: attached %d times, detached %d times", cut, a, d)
		}
		dev.Desc.Regions[2].File.Close()
		dev.Desc.Regions[4].File.Close()
	}
}

// Any sequence of requests gets replies with matching IDs, errors or not, until the server closes
// the connection. The server then serves the next client as before.
func TestAnyRequestsAreAnswered(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	dev := gpuLike(t)
	e := eventfds(t, 1)[0]
	file := int(vfiousertest.Memfd(t, 4096).Fd())
	payloads := [][]byte{
		nil, {0}, make([]byte, 16), make([]byte, 32), []byte(qemuVersion), access(0, 8, 4), access(2, 0, 4, 1, 2, 3, 4),
		access(7, 0, 256), irqSet(event|trigger, 1, 0, 1), irqSet(event|unmask, 1, 3, 1), irqSet(none|trigger, 1, 0, 0),
		dmaMap(3, 0, 0, 4096), dmaUnmap(0, 0, 4096), dmaUnmap(2, 0, 0), multi(1, vfiouser.WriteMultiEntry{Count: 4}),
		enc(&vfiouser.RegionInfo{Argsz: 80, Index: 4}), enc(&vfiouser.IRQInfo{Argsz: 16, Index: 1}), make([]byte, 100000),
	}
	rapid.Check(t, func(rt *rapid.T) {
		r := vfiousertest.Negotiated(t, dev)
		defer r.Conn.Close()
		for range rapid.IntRange(1, 30).Draw(rt, "requests") {
			cmd := rapid.Uint16Range(1, 20).Draw(rt, "command")
			p := append([]byte(nil), rapid.SampledFrom(payloads).Draw(rt, "payload")...)
			if len(p) > 0 && rapid.Bool().Draw(rt, "spoil") {
				p[rapid.IntRange(0, len(p)-1).Draw(rt, "where")] = rapid.Byte().Draw(rt, "with")
			}
			var fds []int
			for range rapid.IntRange(0, 2).Draw(rt, "descriptors") {
				fds = append(fds, rapid.SampledFrom([]int{e.FD(), file}).Draw(rt, "descriptor"))
			}
			r.Request(cmd, p, fds...)
		}
	})
}
