package vfiouser_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vgpud/vfio/vfiouser"
	"vgpud/vfio/vfiouser/vfiousertest"
)

// scripted returns a client and the raw end of its server, both after the negotiation.
func scripted(t *testing.T, opt vfiouser.ClientOptions) (*vfiouser.Client, *vfiousertest.Raw) {
	t.Helper()
	ours, theirs := vfiousertest.Sockets(t)
	server := vfiousertest.NewRaw(t, theirs)
	var c *vfiouser.Client
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err = vfiouser.NewClient(context.Background(), ours, opt)
	}()
	m := server.Receive()
	server.SendBytes(reply(m.Header, 0, []byte("\x00\x00\x00\x00{\"capabilities\":{\"max_msg_fds\":4,\"write_multiple\":true}}\x00")))
	<-done
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, server
}

func reply(h vfiouser.Header, flags uint32, payload []byte) []byte {
	return vfiousertest.Encode(vfiouser.Header{ID: h.ID, Cmd: h.Cmd, Flags: vfiouser.FlagTypeReply | flags}, payload)
}

// The client's VERSION is as expected byte for byte, except for its ID.
func TestClientNegotiates(t *testing.T) {
	ours, theirs := vfiousertest.Sockets(t)
	go func() { _, _ = vfiouser.NewClient(context.Background(), ours, vfiouser.ClientOptions{}) }()
	server := vfiousertest.NewRaw(t, theirs)
	m := server.Receive()
	want := "\x00\x00\x00\x00" + `{"capabilities":{"max_msg_fds":16,"max_data_xfer_size":1048576,"max_dma_maps":65535,"pgsizes":4096,"write_multiple":true}}` + "\x00"
	if string(m.Payload) != want || m.Cmd != vfiouser.CmdVersion || m.Flags != 0 {
		t.Errorf("%+v %q\nwant %q", m.Header, m.Payload, want)
	}
	theirs.Close()
}

// A server that announces no capabilities gets single writes and one descriptor in a message.
func TestServerWithoutCapabilities(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	ours, theirs := vfiousertest.Sockets(t)
	server := vfiousertest.NewRaw(t, theirs)
	ev := eventfds(t, 2)
	done := make(chan error)
	go func() {
		c, err := vfiouser.NewClient(context.Background(), ours, vfiouser.ClientOptions{})
		if err == nil {
			writes := []vfiouser.WriteMultiEntry{{Offset: 1, Count: 2}, {Offset: 8, Count: 8}}
			err = errors.Join(c.WriteMulti(writes, false), c.EnableIRQs(1, 5, ev...), c.Close())
		}
		done <- err
	}()
	m := server.Receive()
	server.SendBytes(reply(m.Header, 0, []byte{0, 0, 0, 0}))
	for _, want := range [][]byte{access(0, 1, 2, 0, 0), access(0, 8, 8, 0, 0, 0, 0, 0, 0, 0, 0)} {
		m := server.Receive()
		if m.Cmd != vfiouser.CmdRegionWrite || !bytes.Equal(m.Payload, want) {
			t.Errorf("%+v % x, want % x", m.Header, m.Payload, want)
		}
		server.SendBytes(reply(m.Header, 0, m.Payload[:16]))
	}
	for i := range uint32(2) {
		m := server.Receive()
		if want := irqSet(event|trigger, 1, 5+i, 1); !bytes.Equal(m.Payload, want) || len(m.FDs) != 1 {
			t.Errorf("% x with %d descriptors, want % x with 1", m.Payload, len(m.FDs), want)
		}
		server.SendBytes(reply(m.Header, 0, nil))
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// With many callers at once and replies in any order, each caller gets its own reply.
func TestRepliesInAnyOrder(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	c, server := scripted(t, vfiouser.ClientOptions{})
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 64).Draw(rt, "callers")
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				v, err := c.ReadUint64(0, uint64(i)*8)
				if err != nil || v != uint64(i)*8+1 {
					t.Errorf("caller %d got %d, %v", i, v, err)
				}
			})
		}
		var requests []vfiousertest.Message
		for range n {
			requests = append(requests, server.Receive())
		}
		for _, i := range rapid.Permutation(indexes(n)).Draw(rt, "order") {
			m := requests[i]
			offset := binary.LittleEndian.Uint64(m.Payload)
			server.SendBytes(reply(m.Header, 0, binary.LittleEndian.AppendUint64(m.Payload, offset+1)))
		}
		wg.Wait()
	})
}

func indexes(n int) []int {
	var x []int
	for i := range n {
		x = append(x, i)
	}
	return x
}

func TestMoreCallersThanIDs(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	c := vfiousertest.Client(t, gpuLike(t))
	var wg sync.WaitGroup
	for i := range 300 {
		wg.Go(func() {
			for k := range uint32(20) {
				at := uint64(i) * 8
				if err := c.WriteUint32(0, at, k); err != nil {
					t.Error(err)
				}
				if v, err := c.ReadUint32(0, at); v != k || err != nil {
					t.Errorf("caller %d got %d, want %d, %v", i, v, k, err)
				}
			}
		})
	}
	wg.Wait()
}

// If the server violates the protocol, the call fails, the connection is closed, all later calls
// fail in the same way, and nothing is leaked.
func TestServerBreaksTheProtocol(t *testing.T) {
	data := make([]byte, 20)
	for _, c := range []struct {
		name  string
		reply func(h vfiouser.Header) []byte
		want  string
	}{
		{"reply too long", func(h vfiouser.Header) []byte { return reply(h, 0, make([]byte, 21)) }, "at most 20 expected"},
		{"reply too short", func(h vfiouser.Header) []byte { return reply(h, 0, data[:19]) }, "want 20"},
		{"other id", func(h vfiouser.Header) []byte { h.ID++; return reply(h, 0, data) }, "no call awaits"},
		{"other command", func(h vfiouser.Header) []byte { h.Cmd++; return reply(h, 0, data) }, "no call awaits"},
		{"twice", func(h vfiouser.Header) []byte { h.ID += 64; return reply(h, 0, data) }, "no call awaits"},
		{"size 0", func(h vfiouser.Header) []byte { h.Size = 0; return enc(&h) }, "size of 0 bytes"},
		{"size huge", func(h vfiouser.Header) []byte { h.Size = 1 << 30; h.Flags = 1; return enc(&h) }, "size of 1073741824 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			vfiousertest.CheckLeaks(t)
			client, server := scripted(t, vfiouser.ClientOptions{})
			errs := make(chan error)
			go func() {
				_, err := client.ReadUint32(0, 0)
				errs <- err
			}()
			fd := eventfds(t, 1)[0].FD()
			server.SendBytes(c.reply(server.Receive().Header), fd)
			err := <-errs
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one about %q", err, c.want)
			}
			<-client.Done()
			if err := client.Reset(); err == nil {
				t.Error("a call after that succeeds")
			}
			server.WantClosed()
		})
	}
}

func TestServerGoesWithCallsInFlight(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	c, server := scripted(t, vfiouser.ClientOptions{})
	var wg sync.WaitGroup
	for range 100 { // more than may be in flight
		wg.Go(func() {
			if err := c.Reset(); !errors.Is(err, vfiouser.ErrClosed) {
				t.Errorf("error %v", err)
			}
		})
	}
	m := server.Receive()
	server.SendBytes(reply(m.Header, 0, nil)[:7]) // and disconnects within the message
	server.Conn.Close()
	wg.Wait()
}

func TestCloseWithCallsInFlight(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	c, server := scripted(t, vfiouser.ClientOptions{})
	errs := make(chan error)
	for range 3 {
		go func() { errs <- c.Reset() }()
	}
	for range 3 {
		server.Receive()
	}
	c.Close()
	for range 3 {
		if err := <-errs; !errors.Is(err, vfiouser.ErrClosed) {
			t.Errorf("error %v", err)
		}
	}
}

func TestServerThatDoesNotAnswer(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	c, server := scripted(t, vfiouser.ClientOptions{Timeout: 400 * time.Millisecond})
	for range 3 { // the watchdog stops and starts with the calls
		errs := make(chan error)
		go func() { errs <- c.Reset() }()
		server.SendBytes(reply(server.Receive().Header, 0, nil))
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	err := c.Reset()
	if !errors.Is(err, os.ErrDeadlineExceeded) || !strings.Contains(err.Error(), "DEVICE_RESET") {
		t.Errorf("error %v", err)
	}
}

func TestServeEndsWithItsContext(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	c := vfiousertest.Client(t, gpuLike(t))
	ctx, cancel := context.WithCancel(context.Background())
	go cancel()
	if err := c.Serve(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("served until %v", err)
	}
	if err := c.Serve(context.Background()); !errors.Is(err, context.Canceled) {
		t.Errorf("served again until %v", err)
	}
}

// The client handles any region info of a server, valid or not.
func TestClientRefusesBadRegionInfo(t *testing.T) {
	const size = 8192
	file := vfiousertest.Memfd(t, size)
	info := func(i vfiouser.RegionInfo, caps ...byte) []byte { return enc(&i, caps...) }
	sparse := func(next, areas uint32, a ...vfiouser.SparseMmapArea) []byte {
		b := enc(&vfiouser.SparseMmap{Header: vfiouser.CapHeader{ID: 1, Version: 1, Next: next}, NumAreas: areas})
		for i := range a {
			b = append(b, enc(&a[i])...)
		}
		return b
	}
	const flags = vfiouser.RegionFlagRead | vfiouser.RegionFlagWrite | vfiouser.RegionFlagMmap | vfiouser.RegionFlagCaps
	for _, c := range []struct {
		name  string
		reply []byte
		fds   bool
		want  string
	}{
		{"short", make([]byte, 31), false, "want 32"},
		{"asks for more, again", info(vfiouser.RegionInfo{Argsz: 100}), true, "where 64 were offered"},
		{"capability outside", info(vfiouser.RegionInfo{Argsz: 64, Flags: flags, CapOffset: 60, Size: size}, make([]byte, 32)...), true, "capability at 60"},
		{"capability far outside", info(vfiouser.RegionInfo{Argsz: 64, Flags: flags, CapOffset: 0xfffffff0, Size: size}, make([]byte, 32)...), true, "capability at"},
		{"list bites its tail", info(vfiouser.RegionInfo{Argsz: 64, Flags: flags, CapOffset: 32, Size: size}, enc(&vfiouser.CapHeader{ID: 9, Next: 32}, make([]byte, 24)...)...), true, "goes back"},
		{"more areas than bytes", info(vfiouser.RegionInfo{Argsz: 64, Flags: flags, CapOffset: 32, Size: size}, sparse(0, 2, vfiouser.SparseMmapArea{})...), true, "2 sparse areas"},
		{"areas without end", info(vfiouser.RegionInfo{Argsz: 64, Flags: flags, CapOffset: 32, Size: size}, sparse(0, 0xffffffff, vfiouser.SparseMmapArea{})...), true, "sparse areas"},
		{"area outside the region", info(vfiouser.RegionInfo{Argsz: 64, Flags: flags, CapOffset: 32, Size: size}, sparse(0, 1, vfiouser.SparseMmapArea{Offset: 4096, Size: 8192})...), true, "outside its"},
		{"area outside the file", info(vfiouser.RegionInfo{Argsz: 64, Flags: flags, CapOffset: 32, Size: 1 << 30}, sparse(0, 1, vfiouser.SparseMmapArea{Offset: size, Size: 4096})...), true, "not in its file"},
		{"region larger than the file", info(vfiouser.RegionInfo{Argsz: 32, Flags: flags &^ vfiouser.RegionFlagCaps, Size: 2 * size}), true, "not in its file"},
		{"offset wraps", info(vfiouser.RegionInfo{Argsz: 32, Flags: flags &^ vfiouser.RegionFlagCaps, Size: 2 * size, Offset: ^uint64(4095)}), true, "not in its file"},
		{"no descriptor", info(vfiouser.RegionInfo{Argsz: 32, Flags: flags &^ vfiouser.RegionFlagCaps, Size: size}), false, "cannot be mapped"},
		{"not mappable", info(vfiouser.RegionInfo{Argsz: 32, Flags: 3, Size: size}), true, "cannot be mapped"},
	} {
		t.Run(c.name, func(t *testing.T) {
			vfiousertest.CheckLeaks(t)
			client, server := scripted(t, vfiouser.ClientOptions{})
			errs := make(chan error)
			go func() {
				_, err := client.Map(2)
				errs <- err
			}()
			var fds []int
			if c.fds {
				fds = []int{int(file.Fd()), int(file.Fd())} // one more than wanted
			}
			m := server.Receive()
			server.SendBytes(reply(m.Header, 0, info(vfiouser.RegionInfo{Argsz: 64, Flags: 7, Size: size})), fds...)
			m = server.Receive()
			if want := info(vfiouser.RegionInfo{Argsz: 64, Index: 2}); !bytes.Equal(m.Payload, want) {
				t.Errorf("asked % x, want % x", m.Payload, want)
			}
			server.SendBytes(reply(m.Header, 0, c.reply), fds...)
			if err := <-errs; err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one about %q", err, c.want)
			}
		})
	}
}

func TestMapping(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	c := vfiousertest.Client(t, gpuLike(t))
	before := len(vfiousertest.Descriptors(t))
	m, err := c.Map(4)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(vfiousertest.Descriptors(t)); n != before {
		t.Errorf("%d descriptors before, %d with a mapping", before, n)
	}
	for _, w := range []struct {
		offset, n uint64
		ok        bool
	}{{0, 4096, true}, {0, 4097, false}, {4095, 1, true}, {4096, 1, false}, {8192, 8192, true}, {16384, 0, true}, {16385, 0, false}, {^uint64(0), 1, false}, {8200, ^uint64(0), false}} {
		if b := m.Bytes(w.offset, w.n); (b != nil) != w.ok || b != nil && uint64(len(b)) != w.n {
			t.Errorf("%d bytes at %#x: %d, want them: %t", w.n, w.offset, len(b), w.ok)
		}
	}
	if err := m.Unmap(); err != nil {
		t.Error(err)
	}
	if err := m.Unmap(); err != nil {
		t.Errorf("second time: %v", err)
	}
	for _, index := range []uint32{0, 1, 9} {
		if _, err := c.Map(index); err == nil {
			t.Errorf("region %d is mapped", index)
		}
	}
	if info, areas, err := c.RegionInfo(4); err != nil || info.Size != 64<<10 || len(areas) != 2 {
		t.Errorf("%+v, %v, %v", info, areas, err)
	}
}
