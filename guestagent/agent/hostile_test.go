package agent_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/guestagent/agent"
	"vgpud/guestagent/allot"
	"vgpud/guestagent/driver"
	"vgpud/guestagent/driver/drivertest"
	"vgpud/internal/proctest"
	"vgpud/mediator/vgpu/abi"
)

// open opens a part of the guest's device without a driver.
func (g *guest) open(t *testing.T, ask allot.Ask) (allot.Conn, *allot.Grant, []*os.File) {
	t.Helper()
	conn, err := allot.Dial(g.socket)
	check(t, err)
	reply, files, err := conn.Question(allot.Request{Op: allot.OpOpen, Ask: ask}, time.Minute)
	check(t, err)
	t.Cleanup(func() {
		_ = conn.Close()
		allot.CloseAll(files)
	})
	return conn, reply.Grant, files
}

// TestFullEventfd: a program that fills the eventfd that the agent raises, and has writes to it block,
// holds up nobody, neither before nor after it has gone, although it keeps the descriptor.
func TestFullEventfd(t *testing.T) {
	g := start(t, kernels(0), agent.Options{}, address)
	conn, grant, files := g.open(t, allot.Ask{Channels: 2})
	if grant.Allotment.Vectors[0] != 0 {
		t.Fatalf("vectors %v, want 0 first", grant.Allotment.Vectors)
	}
	fd := int(files[2].Fd()) // after BAR0 and BAR2
	full := make([]byte, 8)
	binary.LittleEndian.PutUint64(full, math.MaxUint64-1)
	_, err := unix.Write(fd, full)
	check(t, err)
	check(t, unix.SetNonblock(fd, false))
	t.Cleanup(func() { // an agent that waits goes on
		check(t, unix.SetNonblock(fd, true))
		_, _ = unix.Read(fd, full)
	})
	bus, dev := g.dial(t, allot.Ask{Channels: 2})
	check(t, compute(t.Context(), bus, dev)) // which raises it
	free := make(chan []agent.Device, 1)
	go func() { free <- g.Devices() }()
	proctest.Until(t, "the device is not held up", func() bool { return len(free) > 0 })
	check(t, conn.Close())
	g.settled(t, 1)
	check(t, dev.Close())
}

// slowHosts are devices whose hosts end no context while they are slow.
type slowHosts struct {
	mu     sync.Mutex
	slow   bool
	ends   []func() error // contexts that were to end
	polled int            // how often a context's state was read
}

func (h *slowHosts) setSlow() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.slow = true
}

// slowHost is one of them.
type slowHost struct {
	agent.Lender
	of *slowHosts
}

func (h slowHost) Write(off, v uint32) error {
	h.of.mu.Lock()
	defer h.of.mu.Unlock()
	if off == uint32(abi.ContextSlot(0, abi.ContextControl)) && v == uint32(abi.ControlDestroy) && h.of.slow {
		h.of.ends = append(h.of.ends, func() error { return h.Lender.Write(off, v) })
		return nil
	}
	return h.Lender.Write(off, v)
}

func (h slowHost) Read(off uint32) (uint32, error) {
	h.of.mu.Lock()
	defer h.of.mu.Unlock()
	if off == uint32(abi.ContextSlot(0, abi.ContextStatus)) {
		h.of.polled++
	}
	return h.Lender.Read(off)
}

// awaitPolls waits until the state of a context was read n times more.
func (h *slowHosts) awaitPolls(t *testing.T, n int) {
	t.Helper()
	polled := func() int {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.polled
	}
	want := polled() + n
	proctest.Until(t, "somebody waits for the host", func() bool { return polled() >= want })
}

// end ends what contexts were to end.
func (h *slowHosts) end(t *testing.T) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.slow = false
	for _, end := range h.ends {
		check(t, end())
	}
}

// TestSlowHost: slots that the host has not released count for the user of the program that had them,
// however long that takes, and others get them as soon as it has.
func TestSlowHost(t *testing.T) {
	t.Cleanup(agent.SetContextEndTimeout(time.Millisecond)) // after the agent has ended
	host := &slowHosts{}
	g := start(t, kernels(0), agent.Options{
		PerUser: allot.Limits{Programs: 1},
		Open: func(context.Context, string) (agent.Lender, error) {
			h, err := drivertest.NewHost(drivertest.Options{Features: abi.AllFeatures, Kernels: kernels(0)})
			if err != nil {
				return nil, err
			}
			shared, err := drivertest.NewShareable(h)
			return slowHost{shared, host}, err
		},
	}, address)
	check(t, errors.Join(os.Chmod(g.root, 0o755), os.Chmod(g.socket, 0o666)))
	first, _ := g.dial(t, allot.Ask{}) // once the agent has prepared the device
	check(t, first.Close())
	g.settled(t, 0)
	host.setSlow()
	var conn allot.Conn
	var err error
	as(t, 1000, func() { conn, err = allot.Dial(g.socket) })
	check(t, err)
	reply, files, err := conn.Question(allot.Request{Op: allot.OpOpen, Ask: allot.Ask{Contexts: 1, Channels: 1}}, time.Minute)
	check(t, err)
	allot.CloseAll(files)
	_, _, err = conn.Question(allot.Request{Op: allot.OpSet, Offset: uint32(abi.ContextSlot(0, abi.ContextControl)), Value: uint32(abi.ControlCreate)}, time.Minute)
	check(t, err)
	check(t, conn.Close())
	g.log.await(t, "they count for its user")
	host.awaitPolls(t, 3)
	as(t, 1000, func() {
		_, err = driver.DialAgent(t.Context(), driver.AgentOptions{Socket: g.socket, Ask: allot.Ask{Contexts: 1, Channels: 1}})
	})
	if err == nil || !strings.Contains(err.Error(), allot.ErrUserLimit.Error()) {
		t.Errorf("beside what the host has not released: %v", err)
	}
	if at := g.Devices()[0].Tenants; len(at) != 1 || !slices.Equal(at[0].Allotment.Contexts, reply.Grant.Allotment.Contexts) || at[0].Contexts != 1 {
		t.Errorf("programs %+v", at)
	}
	host.end(t)
	g.settled(t, 0)
	bus, _ := g.dial(t, allot.Ask{Contexts: 1, Channels: 1})
	if got, want := bus.Allotment().Contexts, reply.Grant.Allotment.Contexts; !slices.Equal(got, want) {
		t.Errorf("the next program has contexts %v, want %v", got, want)
	}
	check(t, bus.Close())
}
