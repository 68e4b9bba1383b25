package vfiouser_test

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"vgpud/vfio/vfiouser"
	"vgpud/vfio/vfiouser/vfiousertest"
)

func eventfds(t testing.TB, n int) []*vfiouser.Eventfd {
	t.Helper()
	var evs []*vfiouser.Eventfd
	for range n {
		e, err := vfiouser.NewEventfd()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		evs = append(evs, e)
	}
	return evs
}

// raised returns how often an eventfd was signalled since the last call, without waiting.
func raised(t interface {
	Helper()
	Fatal(...any)
}, e *vfiouser.Eventfd) uint64 {
	t.Helper()
	var b [8]byte
	_, err := unix.Read(e.FD(), b[:])
	if errors.Is(err, syscall.EAGAIN) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	return uint64(b[0])
}

func wantRaised(t testing.TB, evs []*vfiouser.Eventfd, want ...uint64) {
	t.Helper()
	var got []uint64
	for _, e := range evs {
		got = append(got, raised(t, e))
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("raised (-want +got):\n%s", d)
	}
}

func TestDeviceGetIRQInfo(t *testing.T) {
	dev := gpuLike(t)
	dev.Desc.IRQs[vfiouser.IRQINTx] = vfiouser.IRQ{Count: 1, Flags: vfiouser.IRQFlagMaskable | vfiouser.IRQFlagAutomasked}
	r := vfiousertest.Negotiated(t, dev)
	wantRefused(t, r, vfiouser.CmdDeviceGetIRQInfo, []refusal{
		{name: "no payload", want: syscall.EINVAL},
		{name: "short", payload: make([]byte, 8), want: syscall.EINVAL},
		{name: "bad argsz", payload: enc(&vfiouser.IRQInfo{Argsz: 8}), want: syscall.EINVAL},
		{name: "bad index", payload: enc(&vfiouser.IRQInfo{Argsz: 16, Index: 5}), want: syscall.EINVAL},
	})
	for _, want := range []vfiouser.IRQInfo{
		{Argsz: 16, Flags: 7, Index: 0, Count: 1},
		{Argsz: 16, Flags: 9, Index: 1, Count: 32},
		{Argsz: 16, Flags: 1, Index: 2, Count: 0},
		{Argsz: 16, Flags: 1, Index: 3, Count: 1},
	} {
		p, errno := r.Request(vfiouser.CmdDeviceGetIRQInfo, enc(&vfiouser.IRQInfo{Argsz: 32, Index: want.Index}))
		if errno != 0 {
			t.Fatal(errno)
		}
		var got vfiouser.IRQInfo
		got.UnmarshalBytes(p)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
}

const (
	none    = vfiouser.IRQSetDataNone
	boolean = vfiouser.IRQSetDataBool
	event   = vfiouser.IRQSetDataEventfd
	mask    = vfiouser.IRQSetMask
	unmask  = vfiouser.IRQSetUnmask
	trigger = vfiouser.IRQSetTrigger
)

func irqSet(flags, index, start, count uint32, data ...byte) []byte {
	return enc(&vfiouser.IRQSet{Argsz: uint32(vfiouser.SizeofIRQSet + len(data)), Flags: flags, Index: index, Start: start, Count: count}, data...)
}

func TestSetIRQsRefuses(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	dev := gpuLike(t)
	dev.Desc.IRQs[vfiouser.IRQMSIX] = vfiouser.IRQ{Count: 2048}
	r := vfiousertest.Negotiated(t, dev)
	ev := eventfds(t, 2)
	fd, fd2 := ev[0].FD(), ev[1].FD()
	pipe, file, epoll := openOthers(t)
	const msix, errIRQ = vfiouser.IRQMSIX, vfiouser.IRQErr
	argsz3 := irqSet(none|trigger, msix, 0, 0)
	argsz3[0] = 3
	inval := syscall.EINVAL
	wantRefused(t, r, vfiouser.CmdDeviceSetIRQs, []refusal{
		{"no payload", nil, nil, inval},
		{"short", make([]byte, 8), nil, inval},
		{"bad argsz", argsz3, nil, inval},
		{"bad index", irqSet(none|trigger, 5, 0, 0), nil, inval},
		{"no data form", irqSet(trigger, msix, 0, 1), nil, inval},
		{"no action", irqSet(none, msix, 0, 1), nil, inval},
		{"mask and unmask", irqSet(none|mask|unmask, msix, 0, 1), nil, inval},
		{"two data forms", irqSet(none|boolean|mask, msix, 0, 1, 1), nil, inval},
		{"unknown flag", irqSet(none|trigger|1<<6, msix, 0, 1), nil, inval},
		{"range ends outside", irqSet(none|mask, msix, 2047, 2), nil, inval},
		{"range begins outside", irqSet(none|mask, msix, 2049, 1), nil, inval},
		{"range wraps", irqSet(none|mask, msix, 2, 0xffffffff), nil, inval},
		{"absent interrupt", irqSet(none|trigger, vfiouser.IRQINTx, 0, 1), nil, inval},
		{"masking errors", irqSet(none|mask, errIRQ, 0, 1), nil, inval},
		{"two vectors of one", irqSet(none|trigger, errIRQ, 0, 2), nil, inval},
		{"count 0 masks", irqSet(none|mask, msix, 0, 0), nil, inval},
		{"count 0 from 1", irqSet(none|trigger, msix, 1, 0), nil, inval},
		{"count 0 of bools", irqSet(boolean|trigger, msix, 0, 0), nil, inval},
		{"count 0 of eventfds", irqSet(event|trigger, msix, 0, 0), nil, inval},
		{"bools with a descriptor", irqSet(boolean|trigger, msix, 0, 1, 0), []int{fd}, inval},
		{"none with a descriptor", irqSet(none|trigger, msix, 0, 1), []int{fd}, inval},
		{"too few bools", irqSet(boolean|trigger, msix, 0, 2, 0), nil, inval},
		{"too many bools", irqSet(boolean|trigger, msix, 0, 2, 0, 0, 0), nil, inval},
		{"none with data", irqSet(none|trigger, msix, 0, 1, 0), nil, inval},
		{"eventfds with data", irqSet(event|trigger, msix, 0, 1, 0), []int{fd}, inval},
		{"too few descriptors", irqSet(event|trigger, msix, 0, 2), []int{fd}, inval},
		{"too many descriptors", irqSet(event|trigger, msix, 0, 1), []int{fd, fd2}, inval},
		{"a pipe", irqSet(event|trigger, msix, 0, 1), []int{pipe}, inval},
		{"a file", irqSet(event|trigger, msix, 0, 1), []int{file}, inval},
		{"a poller", irqSet(event|trigger, msix, 0, 1), []int{epoll}, inval},
		{"a pipe after an eventfd", irqSet(event|trigger, msix, 0, 2), []int{fd, pipe}, inval},
		{"a pipe that masks", irqSet(event|mask, msix, 0, 1), []int{pipe}, inval},
	})
	for v := range uint32(3) {
		if dev.Session().Listening(msix, v) {
			t.Errorf("a refused request left vector %d with a listener", v)
		}
	}
}

// openOthers opens descriptors that are not eventfds.
func openOthers(t *testing.T) (pipe, file, epoll int) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(epoll) })
	return int(w.Fd()), int(vfiousertest.Memfd(t, 4096).Fd()), epoll
}

// QEMU sets up MSI with one message that has a descriptor for each vector.
func TestMSIVectorsInOneMessage(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	dev := gpuLike(t)
	r := vfiousertest.Negotiated(t, dev)
	ev := eventfds(t, 16)
	var fds []int
	for _, e := range ev {
		fds = append(fds, e.FD())
	}
	if _, errno := r.Request(vfiouser.CmdDeviceSetIRQs, irqSet(event|trigger, vfiouser.IRQMSI, 0, 16), fds...); errno != 0 {
		t.Fatal(errno)
	}
	s := dev.Session()
	for i := range uint32(32) {
		if got := s.Trigger(vfiouser.IRQMSI, i); got != (i < 16) {
			t.Errorf("vector %d: listened to %t", i, got)
		}
	}
	wantRaised(t, ev, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)
	if s.Trigger(vfiouser.IRQMSI, 32) || s.Trigger(5, 0) || s.Trigger(0xffffffff, 0xffffffff) {
		t.Error("vectors that there aren't are listened to")
	}
	if _, errno := r.Request(vfiouser.CmdDeviceSetIRQs, irqSet(none|trigger, vfiouser.IRQMSI, 0, 0)); errno != 0 {
		t.Fatal(errno)
	}
	if s.Trigger(vfiouser.IRQMSI, 3) {
		t.Error("a disabled vector is listened to")
	}
}

// QEMU sets up MSI-X with vector 0 without a descriptor first, then one vector at a time, and again
// when the guest moves a vector.
func TestVectorsReplacedOneByOne(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	dev := gpuLike(t)
	dev.Desc.IRQs[vfiouser.IRQMSIX] = vfiouser.IRQ{Count: 4}
	r := vfiousertest.Negotiated(t, dev)
	ev := eventfds(t, 3)
	set := func(start uint32, fds ...int) {
		t.Helper()
		if _, errno := r.Request(vfiouser.CmdDeviceSetIRQs, irqSet(event|trigger, vfiouser.IRQMSIX, start, 1), fds...); errno != 0 {
			t.Fatal(errno)
		}
	}
	before := len(vfiousertest.Descriptors(t))
	set(0)
	set(0, ev[0].FD())
	set(1, ev[1].FD())
	s := dev.Session()
	s.Trigger(vfiouser.IRQMSIX, 0)
	s.Trigger(vfiouser.IRQMSIX, 1)
	set(0, ev[2].FD())
	s.Trigger(vfiouser.IRQMSIX, 0)
	wantRaised(t, ev, 1, 1, 1)
	for range 50 {
		set(0, ev[2].FD())
	}
	set(0)
	set(1)
	if s.Trigger(vfiouser.IRQMSIX, 0) || s.Trigger(vfiouser.IRQMSIX, 1) {
		t.Error("vectors without a descriptor are listened to")
	}
	if after := len(vfiousertest.Descriptors(t)); after != before {
		t.Errorf("%d descriptors before, %d after replacing", before, after)
	}
}

func TestTriggerMaskAndUnmaskByMessage(t *testing.T) {
	dev := gpuLike(t)
	c := vfiousertest.Client(t, dev)
	ev := eventfds(t, 3)
	if err := c.EnableIRQs(vfiouser.IRQMSI, 4, ev...); err != nil {
		t.Fatal(err)
	}
	set := func(flags, start uint32, data ...byte) {
		t.Helper()
		err := c.SetIRQs(vfiouser.IRQSet{Flags: flags | boolean, Index: vfiouser.IRQMSI, Start: start, Count: uint32(len(data))}, data, nil)
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := c.TriggerIRQs(vfiouser.IRQMSI, 0, 32); err != nil {
		t.Fatal(err)
	}
	wantRaised(t, ev, 1, 1, 1)
	set(trigger, 4, 0, 1, 0)
	wantRaised(t, ev, 0, 1, 0)
	set(mask, 4, 1, 0, 1)
	s := dev.Session()
	for v := range uint32(3) {
		for range 2 {
			if !s.Trigger(vfiouser.IRQMSI, 4+v) {
				t.Errorf("vector %d is not listened to", 4+v)
			}
		}
	}
	wantRaised(t, ev, 0, 2, 0)
	set(unmask, 4, 1, 1, 0)
	wantRaised(t, ev, 1, 0, 0)
	if err := c.UnmaskIRQs(vfiouser.IRQMSI, 6, 1); err != nil {
		t.Fatal(err)
	}
	wantRaised(t, ev, 0, 0, 1)
	if err := c.MaskIRQs(vfiouser.IRQMSI, 4, 3); err != nil {
		t.Fatal(err)
	}
	s.Trigger(vfiouser.IRQMSI, 4)
	if err := c.DisableIRQ(vfiouser.IRQMSI); err != nil {
		t.Fatal(err)
	}
	if err := c.EnableIRQs(vfiouser.IRQMSI, 4, ev...); err != nil {
		t.Fatal(err)
	}
	s.Trigger(vfiouser.IRQMSI, 4)
	wantRaised(t, ev, 1, 0, 0) // neither masked nor pending from before
}

// listening is a device that records which vectors the client has disabled.
type listening struct {
	*vfiousertest.Device
	changes [][3]uint32
}

func (d *listening) IRQsChanged(index, start, count uint32) {
	d.changes = append(d.changes, [3]uint32{index, start, count})
}

// A device is notified of the vectors that the client changed, and of all when it disables them.
func TestDeviceIsToldOfDisabledVectors(t *testing.T) {
	dev := &listening{Device: gpuLike(t)}
	c := vfiousertest.Client(t, dev)
	if err := c.EnableIRQs(vfiouser.IRQMSI, 4, eventfds(t, 2)...); err != nil {
		t.Fatal(err)
	}
	if err := c.DisableIRQ(vfiouser.IRQMSI); err != nil {
		t.Fatal(err)
	}
	want := [][3]uint32{{vfiouser.IRQMSI, 4, 2}, {vfiouser.IRQMSI, 0, 32}}
	if diff := cmp.Diff(want, dev.changes); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
}

// Each trigger of INTx masks it, and the client unmasks it by an eventfd, as KVM does when the
// guest acknowledges.
func TestAutomaskedInterruptIsUnmaskedByEventfd(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	dev := gpuLike(t)
	dev.Desc.IRQs[vfiouser.IRQINTx] = vfiouser.IRQ{Count: 1, Flags: vfiouser.IRQFlagMaskable | vfiouser.IRQFlagAutomasked}
	c := vfiousertest.Client(t, dev)
	ev := eventfds(t, 3)
	line, ack, masker := ev[0], ev[1], ev[2]
	if err := c.EnableIRQs(vfiouser.IRQINTx, 0, line); err != nil {
		t.Fatal(err)
	}
	for flags, e := range map[uint32]*vfiouser.Eventfd{event | unmask: ack, event | mask: masker} {
		if err := c.SetIRQs(vfiouser.IRQSet{Flags: flags, Index: vfiouser.IRQINTx, Count: 1}, nil, []int{e.FD()}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	s := dev.Session()
	s.Trigger(vfiouser.IRQINTx, 0)
	wantRaised(t, ev[:1], 1)
	for range 20 {
		s.Trigger(vfiouser.IRQINTx, 0) // masked by the previous trigger
		wantRaised(t, ev[:1], 0)
		if err := ack.Signal(); err != nil {
			t.Fatal(err)
		}
		if n, err := line.Wait(ctx); n != 1 || err != nil {
			t.Fatalf("raised %d times after the unmasking, %v", n, err)
		}
		if err := c.MaskIRQs(vfiouser.IRQINTx, 0, 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.UnmaskIRQs(vfiouser.IRQINTx, 0, 1); err != nil {
		t.Fatal(err)
	}
	if err := masker.Signal(); err != nil {
		t.Fatal(err)
	}
	// Eventually triggers no longer arrive.
	for s.Trigger(vfiouser.IRQINTx, 0); raised(t, line) != 0; s.Trigger(vfiouser.IRQINTx, 0) {
		if err := c.UnmaskIRQs(vfiouser.IRQINTx, 0, 1); err != nil || ctx.Err() != nil {
			t.Fatal(err, ctx.Err())
		}
		if err := masker.Signal(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestMaskersAreBounded(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	dev := gpuLike(t)
	dev.Desc.IRQs[vfiouser.IRQMSIX] = vfiouser.IRQ{Count: 2048}
	r := vfiousertest.Negotiated(t, dev)
	fd := eventfds(t, 1)[0].FD()
	var last syscall.Errno
	n := 0
	for last == 0 && n < 2048 {
		_, last = r.Request(vfiouser.CmdDeviceSetIRQs, irqSet(event|mask, vfiouser.IRQMSIX, uint32(n), 1), fd)
		n++
	}
	if last != syscall.ENOSPC || n != 65 {
		t.Errorf("masker %d: %v, want ENOSPC for the 65th", n, last)
	}
	if _, errno := r.Request(vfiouser.CmdDeviceSetIRQs, irqSet(none|trigger, vfiouser.IRQMSIX, 0, 0)); errno != 0 {
		t.Fatal(errno)
	}
	if _, errno := r.Request(vfiouser.CmdDeviceSetIRQs, irqSet(event|mask, vfiouser.IRQMSIX, 0, 1), fd); errno != 0 {
		t.Errorf("after all were taken away: %v", errno)
	}
}

// The client shares the eventfd, so it can fill it and make it blocking.
func TestTriggerNeverBlocks(t *testing.T) {
	dev := gpuLike(t)
	c := vfiousertest.Client(t, dev)
	e := eventfds(t, 1)[0]
	if err := c.EnableIRQs(vfiouser.IRQMSI, 0, e); err != nil {
		t.Fatal(err)
	}
	full := []byte{0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	if _, err := unix.Write(e.FD(), full); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(e.FD(), false); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if !dev.Session().Trigger(vfiouser.IRQMSI, 0) {
			t.Error("not listened to")
		}
	}
}

func TestClientSplitsManyVectors(t *testing.T) {
	dev := gpuLike(t)
	c := vfiousertest.Client(t, dev)
	ev := eventfds(t, 32)
	if err := c.EnableIRQs(vfiouser.IRQMSI, 0, ev...); err != nil {
		t.Fatal(err)
	}
	for v := range uint32(32) {
		dev.Session().Trigger(vfiouser.IRQMSI, v)
		if raised(t, ev[v]) != 1 {
			t.Errorf("vector %d did not come through", v)
		}
	}
	info, err := c.IRQInfo(vfiouser.IRQMSI)
	if want := (vfiouser.IRQInfo{Argsz: 16, Flags: 9, Index: 1, Count: 32}); err != nil || info != want {
		t.Errorf("%+v, %v; want %+v", info, err, want)
	}
}

func TestEventfdWait(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	e := eventfds(t, 1)[0]
	ctx, cancel := context.WithCancel(context.Background())
	go cancel()
	if _, err := e.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := e.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled before: %v", err)
	}
	for range 2 {
		if err := e.Signal(); err != nil {
			t.Fatal(err)
		}
	}
	live, stop := context.WithCancel(context.Background())
	defer stop()
	if n, err := e.Wait(live); n != 2 || err != nil {
		t.Errorf("raised %d times, %v", n, err)
	}
	go e.Close()
	if _, err := e.Wait(live); !errors.Is(err, os.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// Another process may signal the client's interrupt through a duplicate of its eventfd.
func TestEventfdOfAVector(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	dev := gpuLike(t)
	c := vfiousertest.Client(t, dev)
	ev := eventfds(t, 1)
	if err := c.EnableIRQs(vfiouser.IRQMSI, 2, ev...); err != nil {
		t.Fatal(err)
	}
	f, err := dev.Session().Eventfd(vfiouser.IRQMSI, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := c.DisableIRQ(vfiouser.IRQMSI); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte{3, 0, 0, 0, 0, 0, 0, 0}); err != nil {
		t.Fatal(err)
	}
	wantRaised(t, ev, 3)
	for _, v := range [][2]uint32{{vfiouser.IRQMSI, 2}, {vfiouser.IRQMSI, 32}, {5, 0}} {
		if f, err := dev.Session().Eventfd(v[0], v[1]); f != nil || err != nil {
			t.Errorf("interrupt %d, vector %d: %v, %v", v[0], v[1], f, err)
		}
	}
}
