package vfiouser_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"vgpud/vfio/vfiouser"
	"vgpud/vfio/vfiouser/vfiousertest"
)

func dmaMap(flags uint32, offset, addr, size uint64) []byte {
	return enc(&vfiouser.DMAMap{Argsz: 32, Flags: flags, Offset: offset, Addr: addr, Size: size})
}

func dmaUnmap(flags uint32, addr, size uint64) []byte {
	return enc(&vfiouser.DMAUnmap{Argsz: 24, Flags: flags, Addr: addr, Size: size})
}

// If the device does no DMA, every mapping is acknowledged and no descriptor stays open.
func TestDMAMapIsAcknowledged(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	r := vfiousertest.Negotiated(t, gpuLike(t))
	ram := int(vfiousertest.Memfd(t, 1<<20).Fd())
	badArgsz := dmaMap(3, 0, 0, 4096)
	badArgsz[0] = 31
	before := vfiousertest.Descriptors(t)
	inval := syscall.EINVAL
	wantRefused(t, r, vfiouser.CmdDMAMap, []refusal{
		{"guest RAM", dmaMap(3, 0, 0, 1<<20), []int{ram}, 0},
		{"the same again", dmaMap(3, 0, 0, 1<<20), []int{ram}, 0},
		{"ROM, without a descriptor", dmaMap(1, 0, 0xfffc0000, 0x40000), nil, 0},
		{"the device's own BAR", dmaMap(3, 0, 0xf8000000, 64<<20), nil, 0},
		{"up to the last byte", dmaMap(3, 0, math.MaxUint64-4095, 4096), nil, 0},
		{"no payload", nil, []int{ram}, inval},
		{"short", make([]byte, 8), []int{ram}, inval},
		{"bad argsz", badArgsz, []int{ram}, inval},
		{"to be mapped", dmaMap(7, 0, 0, 4096), []int{ram}, 0},
		{"to be mapped, without a descriptor", dmaMap(7, 0, 0, 4096), nil, inval},
		{"to be read and written", dmaMap(11, 0, 0, 4096), []int{ram}, 0},
		{"to be read and written, without a descriptor", dmaMap(11, 0, 0, 4096), nil, inval},
		{"both", dmaMap(15, 0, 0, 4096), []int{ram}, inval},
		{"unknown flags", dmaMap(16, 0, 0, 4096), []int{ram}, inval},
		{"empty", dmaMap(3, 0, 0, 0), []int{ram}, inval},
		{"address wraps", dmaMap(3, 0, math.MaxUint64-4095, 8192), []int{ram}, inval},
		{"offset wraps", dmaMap(3, math.MaxUint64-4095, 0, 8192), []int{ram}, inval},
		{"two descriptors", dmaMap(3, 0, 0, 4096), []int{ram, ram}, inval},
	})
	if d := cmp.Diff(before, vfiousertest.Descriptors(t)); d != "" {
		t.Errorf("descriptors (-before +after):\n%s", d)
	}
}

func TestDMAUnmap(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	r := vfiousertest.Negotiated(t, gpuLike(t))
	badArgsz := dmaUnmap(0, 0, 4096)
	badArgsz[0] = 8
	wantRefused(t, r, vfiouser.CmdDMAUnmap, []refusal{
		{name: "no payload", want: syscall.EINVAL},
		{name: "short", payload: make([]byte, 8), want: syscall.EINVAL},
		{name: "bad argsz", payload: badArgsz, want: syscall.EINVAL},
		{name: "dirty bitmap", payload: dmaUnmap(1, 0, 4096), want: syscall.ENOTSUP},
		{name: "unknown flag", payload: dmaUnmap(4, 0x1000, 4096), want: syscall.EINVAL},
		{name: "argsz of more than any reply", payload: enc(&vfiouser.DMAUnmap{Argsz: 1<<20 + 8, Addr: 0x1000, Size: 4096}), want: syscall.EINVAL},
		{name: "all, with an address", payload: dmaUnmap(2, 0x10000, 4096), want: syscall.EINVAL},
		{name: "all, dirty bitmap", payload: dmaUnmap(3, 0, 0), want: syscall.EINVAL},
		{name: "empty", payload: dmaUnmap(0, 0, 0), want: syscall.EINVAL},
		{name: "wraps", payload: dmaUnmap(0, math.MaxUint64, 4096), want: syscall.EINVAL},
	})
	// With a guest's IOMMU, QEMU unmaps ranges that were never mapped. All replies echo the
	// request.
	for _, p := range [][]byte{dmaUnmap(0, 0x1000, 4096), dmaUnmap(0, 0, math.MaxUint64), dmaUnmap(2, 0, 0)} {
		if got, errno := r.Request(vfiouser.CmdDMAUnmap, p); errno != 0 || !bytes.Equal(got, p) {
			t.Errorf("reply % x, %v; want % x", got, errno, p)
		}
	}
}

// A DMAMapper gets the files and closes them itself.
func TestDMAMapperGetsTheFiles(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	dev := &vfiousertest.MappedDevice{Device: vfiousertest.Device{Desc: gpuLike(t).Desc}}
	c := vfiousertest.Client(t, dev)
	ram := vfiousertest.Memfd(t, 1<<20)
	if err := c.DMAMap(vfiouser.DMAMap{Flags: 3, Offset: 4096, Addr: 0x10000, Size: 8192}, ram); err != nil {
		t.Fatal(err)
	}
	if err := c.DMAMap(vfiouser.DMAMap{Flags: 1, Addr: 0x20000, Size: 4096}, nil); err != nil {
		t.Fatal(err)
	}
	m := dev.Mappings()
	if len(m) != 2 || m[0].File == nil || m[1].File != nil || !sameFile(t, int(ram.Fd()), m[0].File) {
		t.Fatalf("mappings %+v", m)
	}
	if want := (vfiouser.DMAMap{Argsz: 32, Flags: 3, Offset: 4096, Addr: 0x10000, Size: 8192}); m[0].DMAMap != want {
		t.Errorf("mapping %+v, want %+v", m[0].DMAMap, want)
	}
	if err := c.DMAUnmap(0x10000, 8192); err != nil || len(dev.Mappings()) != 1 {
		t.Errorf("%d mappings after one was taken back, %v", len(dev.Mappings()), err)
	}
	if err := c.DMAUnmapAll(); err != nil || len(dev.Mappings()) != 0 {
		t.Errorf("%d mappings after all were taken back, %v", len(dev.Mappings()), err)
	}
	dev.Refuse = syscall.ENOSPC
	if err := c.DMAMap(vfiouser.DMAMap{Flags: 3, Addr: 0x10000, Size: 8192}, ram); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("refused mapping: %v", err)
	}
}

// memory is a client's memory that a device accesses by messages.
type memory struct {
	mu    sync.Mutex
	bytes []byte
}

func (m *memory) DMARead(addr uint64, p []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if addr > uint64(len(m.bytes)) || uint64(len(p)) > uint64(len(m.bytes))-addr {
		return syscall.EFAULT
	}
	copy(p, m.bytes[addr:])
	return nil
}

func (m *memory) DMAWrite(addr uint64, p []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if addr > uint64(len(m.bytes)) || uint64(len(p)) > uint64(len(m.bytes))-addr {
		return syscall.EFAULT
	}
	copy(m.bytes[addr:], p)
	return nil
}

func clientWithMemory(t *testing.T, dev vfiouser.Device, mem vfiouser.DMAHandler) *vfiouser.Client {
	t.Helper()
	c, err := vfiouser.NewClient(context.Background(), vfiousertest.Serve(t, dev), vfiouser.ClientOptions{DMA: mem})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// On a doorbell the device copies memory while the client waits for the doorbell's reply: each end
// handles a request while it waits for a reply.
func TestDMAWhileARequestIsHandled(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	dev := gpuLike(t)
	dev.OnWrite = func(_ uint32, _ uint64, p []byte) error {
		s := dev.Session()
		buf := make([]byte, 3<<20)
		if err := s.DMARead(0, buf); err != nil {
			return err
		}
		if err := s.DMAWrite(4<<20, buf); err != nil {
			return err
		}
		if p[0] != 9 {
			return errors.New("the request's own data was overwritten")
		}
		return nil
	}
	mem := &memory{bytes: make([]byte, 8<<20)}
	for i := range mem.bytes[:4<<20] {
		mem.bytes[i] = byte(i >> 4)
	}
	c := clientWithMemory(t, dev, mem)
	if err := c.WriteUint32(0, 0, 9); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(mem.bytes[:3<<20], mem.bytes[4<<20:7<<20]) {
		t.Error("copied wrongly")
	}
}

// The device accesses memory from its own goroutine while the client sends requests. Some of them
// arrive while the device's goroutine is the reader.
func TestDMAAtAnyTime(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	dev := gpuLike(t)
	mem := &memory{bytes: make([]byte, 4096)}
	c := clientWithMemory(t, dev, mem)
	served := make(chan error)
	go func() { served <- c.Serve(context.Background()) }()
	s := dev.Session()
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 200 {
				want := []byte{byte(g), byte(i), 1, 2}
				got := make([]byte, 4)
				if err := errors.Join(s.DMAWrite(uint64(g)*8, want), s.DMARead(uint64(g)*8, got)); err != nil {
					t.Error(err)
					return
				}
				if !bytes.Equal(got, want) {
					t.Errorf("read % x, want % x", got, want)
				}
			}
		})
		wg.Go(func() {
			for i := range uint32(200) {
				if err := c.WriteUint32(0, uint64(g)*8, i); err != nil {
					t.Error(err)
					return
				}
				if v, err := c.ReadUint32(0, uint64(g)*8); v != i || err != nil {
					t.Errorf("read %d, want %d, %v", v, i, err)
				}
			}
		})
	}
	wg.Wait()
	if err := s.DMARead(4093, make([]byte, 4)); !errors.Is(err, syscall.EFAULT) {
		t.Errorf("outside the memory: %v", err)
	}
	c.Close()
	if err := <-served; !errors.Is(err, vfiouser.ErrClosed) {
		t.Errorf("served until %v", err)
	}
}

func TestDMAWithAClientThatHasNoMemory(t *testing.T) {
	dev := gpuLike(t)
	var err error
	dev.OnWrite = func(uint32, uint64, []byte) error { err = dev.Session().DMARead(0, make([]byte, 4)); return nil }
	c := vfiousertest.Client(t, dev)
	if e := c.WriteUint32(0, 0, 0); e != nil || !errors.Is(err, syscall.ENOSYS) {
		t.Errorf("%v; DMA: %v, want ENOSYS", e, err)
	}
}

// The client answers each kind of request of its server.
func TestClientAnswersDMARequests(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	ours, theirs := vfiousertest.Sockets(t)
	server := vfiousertest.NewRaw(t, theirs)
	mem := &memory{bytes: []byte("0123456789")}
	done := make(chan error, 1)
	go func() {
		c, err := vfiouser.NewClient(context.Background(), ours, vfiouser.ClientOptions{DMA: mem})
		if err == nil {
			err = c.Serve(context.Background())
		}
		done <- err
	}()
	v := server.Receive()
	server.SendBytes(vfiousertest.Encode(vfiouser.Header{ID: v.ID, Cmd: v.Cmd, Flags: vfiouser.FlagTypeReply}, []byte{0, 0, 0, 0}))
	at := func(addr, count uint64, data ...byte) []byte {
		return enc(&vfiouser.DMARegionAccess{Addr: addr, Count: count}, data...)
	}
	f := int(vfiousertest.Memfd(t, 4096).Fd())
	wantRefused(t, server, vfiouser.CmdDMARead, []refusal{
		{"no payload", nil, nil, syscall.EINVAL},
		{"with data", at(0, 1, 1), nil, syscall.EINVAL},
		{"with a descriptor", at(0, 1), []int{f}, syscall.EINVAL},
		{"too much", at(0, 1<<20+1), nil, syscall.EINVAL},
		{"wraps", at(math.MaxUint64, 2), nil, syscall.EINVAL},
		{"outside", at(9, 2), nil, syscall.EFAULT},
	})
	wantRefused(t, server, vfiouser.CmdDMAWrite, []refusal{
		{"short", make([]byte, 15), nil, syscall.EINVAL},
		{"too little data", at(0, 2, 1), nil, syscall.EINVAL},
		{"outside", at(9, 2, 1, 2), nil, syscall.EFAULT},
	})
	wantRefused(t, server, vfiouser.CmdDeviceReset, []refusal{{"no command for clients", nil, nil, syscall.ENOSYS}})
	server.Send(vfiouser.CmdDMAWrite, vfiouser.FlagNoReply, at(2, 2, 'a', 'b'))
	if p, errno := server.Request(vfiouser.CmdDMAWrite, at(4, 1, 'c')); errno != 0 || !bytes.Equal(p, at(4, 1)) {
		t.Errorf("% x, %v", p, errno)
	}
	if p, errno := server.Request(vfiouser.CmdDMARead, at(1, 5)); errno != 0 || string(p[16:]) != "1abc5" {
		t.Errorf("%q, %v", p, errno)
	}
	theirs.Close()
	if err := <-done; !errors.Is(err, vfiouser.ErrClosed) {
		t.Errorf("served until %v", err)
	}
}

// A client that sends requests without end while it owes a reply is disconnected; it cannot fill
// the server's memory.
func TestRequestsQueuedDuringDMAAreBounded(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	dev := gpuLike(t)
	var err error
	stopped := make(chan struct{})
	dev.OnReset = func() error {
		err = dev.Session().DMARead(0, make([]byte, 4))
		close(stopped)
		return err
	}
	r := vfiousertest.Negotiated(t, dev)
	r.Send(vfiouser.CmdDeviceReset, 0, nil)
	if m := r.Receive(); m.Cmd != vfiouser.CmdDMARead {
		t.Fatalf("got %+v", m.Header)
	}
	one := vfiousertest.Encode(vfiouser.Header{Cmd: vfiouser.CmdDMAMap}, dmaMap(3, 0, 0, 4096))
	ram := int(vfiousertest.Memfd(t, 4096).Fd())
	for range 257 {
		r.SendBytes(one, ram)
	}
	<-stopped
	if err == nil || errors.Is(err, syscall.EIO) {
		t.Errorf("the read ended with %v", err)
	}
	r.WantClosed()
}

func TestRequestsQueuedDuringDMAStayInOrder(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	dev := gpuLike(t)
	dev.OnReset = func() error { return dev.Session().DMARead(0, make([]byte, 4)) }
	r := vfiousertest.Negotiated(t, dev)
	reset := r.Send(vfiouser.CmdDeviceReset, 0, nil)
	dma := r.Receive()
	var ids []uint16
	for i := range byte(100) {
		ids = append(ids, r.Send(vfiouser.CmdRegionWrite, 0, access(0, uint64(i), 1, i)))
	}
	r.SendBytes(vfiousertest.Encode(vfiouser.Header{ID: dma.ID, Cmd: dma.Cmd, Flags: vfiouser.FlagTypeReply}, append(dma.Payload, 1, 2, 3, 4)))
	r.Reply(vfiouser.CmdDeviceReset, reset)
	for _, id := range ids {
		r.Reply(vfiouser.CmdRegionWrite, id)
	}
	for i, w := range dev.Writes() {
		if w.Offset != uint64(i) {
			t.Fatalf("write %d went to %d", i, w.Offset)
		}
	}
}

func TestDMAReplies(t *testing.T) {
	for _, c := range []struct {
		name  string
		reply func(dma vfiousertest.Message) []byte
		want  error // of DMARead
		open  bool  // the connection afterwards
	}{
		{"error", func(m vfiousertest.Message) []byte {
			return vfiousertest.Encode(vfiouser.Header{ID: m.ID, Cmd: m.Cmd, Flags: 0x21, Errno: uint32(syscall.EPERM)}, nil)
		}, syscall.EPERM, true},
		{"error 0", func(m vfiousertest.Message) []byte {
			return vfiousertest.Encode(vfiouser.Header{ID: m.ID, Cmd: m.Cmd, Flags: 0x21}, nil)
		}, syscall.EIO, true},
		{"short", func(m vfiousertest.Message) []byte {
			return vfiousertest.Encode(vfiouser.Header{ID: m.ID, Cmd: m.Cmd, Flags: 1}, append(m.Payload, 1))
		}, nil, false},
		{"long", func(m vfiousertest.Message) []byte {
			return vfiousertest.Encode(vfiouser.Header{ID: m.ID, Cmd: m.Cmd, Flags: 1}, append(m.Payload, 1, 2, 3, 4, 5))
		}, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			vfiousertest.CheckLeaks(t)
			dev := gpuLike(t)
			errs := make(chan error, 1)
			dev.OnReset = func() error { errs <- dev.Session().DMARead(0, make([]byte, 4)); return nil }
			r := vfiousertest.Negotiated(t, dev)
			id := r.Send(vfiouser.CmdDeviceReset, 0, nil)
			r.SendBytes(c.reply(r.Receive()))
			if err := <-errs; err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("read: %v, want %v", err, c.want)
			}
			if c.open {
				r.Reply(vfiouser.CmdDeviceReset, id)
			} else {
				r.WantClosed()
			}
		})
	}
}

func TestDMAMapClosedFile(t *testing.T) {
	c := vfiousertest.Client(t, gpuLike(t))
	f, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if err := c.DMAMap(vfiouser.DMAMap{Flags: 3, Size: 4096}, f); err == nil {
		t.Error("a closed file is mapped")
	}
	if err := c.Reset(); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}
