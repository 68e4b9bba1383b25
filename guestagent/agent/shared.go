package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"vgpud/guestagent/allot"
	"vgpud/guestagent/driver"
	"vgpud/mediator/vgpu/abi"
	"vgpud/vfio/vfiouser"
)

// Tenant is a program that has a part of a device.
type Tenant struct {
	PID int `json:"pid"`
	UID int `json:"uid"`
	// Program is the name of the process, as it was when it connected.
	Program   string          `json:"program"`
	Since     time.Time       `json:"since"`
	Allotment allot.Allotment `json:"allotment"`
	// Contexts and Channels are how many of those allotted are open now; -1: not known.
	Contexts int `json:"contexts"`
	Channels int `json:"channels"`
}

// Lender is a bus that can be shared, as [driver.PCIBus].
type Lender interface {
	driver.Bus
	Lend(a allot.Allotment, state *vfiouser.Eventfd) (allot.Grant, []int, error)
}

// sharedDevice is an open device that tenants share.
type sharedDevice struct {
	address string

	bus     Lender
	log     *slog.Logger
	stop    context.CancelFunc
	done    sync.WaitGroup
	closing sync.Once

	regs sync.Mutex // held for sequences of register accesses

	mu      sync.Mutex
	table   *allot.Table
	tenants map[*tenant]struct{}
	changed chan struct{} // closed and replaced when the device signals that states changed
}

// tenant is one tenant's part.
type tenant struct {
	Tenant
	missed map[string]uint64 // as it reported last
	device *sharedDevice
	state  *waker // relays vector 0; nil without vectors
}

// share opens a device for tenants.
func share(address string, bus Lender, log *slog.Logger) (*sharedDevice, error) {
	info, whole, err := driver.Negotiate(bus)
	if err != nil {
		return nil, errors.Join(err, bus.Close())
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &sharedDevice{
		address: address, bus: bus, log: log, stop: stop, tenants: map[*tenant]struct{}{}, changed: make(chan struct{}),
		table: allot.NewTable(info.Contexts, info.Channels, bus.Vectors(), whole.Rings, whole.Shared),
	}
	if bus.Vectors() > 0 {
		s.done.Go(func() {
			for bus.Wait(ctx, 0) == nil {
				s.relay()
			}
		})
	}
	return s, nil
}

// relay forwards vector 0 to all tenants: an eventfd wakes only one reader.
func (s *sharedDevice) relay() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.changed)
	s.changed = make(chan struct{})
	for t := range s.tenants {
		t.state.raise()
	}
}

// addTenant allots a tenant its part, within the limits of its user.
func (s *sharedDevice) addTenant(who Tenant, ask allot.Ask, limits allot.Limits) (*tenant, error) {
	t := &tenant{Tenant: who, device: s}
	if s.bus.Vectors() > 0 {
		var err error
		if t.state, err = newWaker(); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	if t.Allotment, err = s.table.Allot(ask); err != nil {
		return nil, errors.Join(err, t.close())
	}
	var others []allot.Allotment
	for other := range s.tenants {
		if other.UID == who.UID {
			others = append(others, other.Allotment)
		}
	}
	if who.UID != 0 {
		if err := limits.Check(others, t.Allotment); err != nil {
			s.table.Release(t.Allotment)
			return nil, errors.Join(err, t.close())
		}
	}
	s.tenants[t] = struct{}{}
	return t, nil
}

func (t *tenant) close() error {
	if t.state == nil {
		return nil
	}
	return t.state.Close()
}

// event returns the eventfd that relays vector 0, or nil.
func (t *tenant) event() *vfiouser.Eventfd {
	if t.state == nil {
		return nil
	}
	return t.state.event
}

// set writes a register of a tenant's slots for it.
func (t *tenant) set(offset, value uint32) (abi.ErrorCode, error) {
	if !t.owns(offset) {
		return 0, fmt.Errorf("register %#x is not one of this program's slots", offset)
	}
	return t.device.set(offset, value)
}

func (s *sharedDevice) set(offset, value uint32) (abi.ErrorCode, error) {
	s.regs.Lock()
	defer s.regs.Unlock()
	return driver.Set(s.bus, offset, value)
}

// owns reports whether a register belongs to one of the tenant's slots.
func (t *tenant) owns(offset uint32) bool {
	slot := func(table, size, limit uint32, of []int) bool {
		return offset >= table && offset < table+limit*size && slices.Contains(of, int((offset-table)/size))
	}
	return slot(abi.ContextTable, abi.ContextSlotSize, abi.MaxContexts, t.Allotment.Contexts) ||
		slot(abi.ChannelTable, abi.ChannelSlotSize, abi.MaxChannels, t.Allotment.Channels) ||
		slot(abi.TaskTable, abi.TaskRowSize, abi.MaxContexts, t.Allotment.Contexts)
}

// remove takes back a tenant's part when the host has released what was in it. Until then the tenant
// has it, so that it counts for its user. If the host has not when ctx, the agent's, has been over
// for contextEndTimeout, it stays allotted.
func (s *sharedDevice) remove(ctx context.Context, t *tenant) {
	limit := contextEndTimeout
	late := time.AfterFunc(limit, func() {
		s.log.Warn("the host does not end a program's contexts; they count for its user until it does", "pid", t.PID, "uid", t.UID)
	})
	defer late.Stop()
	ending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(limit, cancel) })
	defer stop()
	left, err := s.destroyContexts(ending, t.Allotment)
	s.mu.Lock()
	delete(s.tenants, t)
	if err == nil {
		s.table.Release(t.Allotment)
	}
	s.mu.Unlock()
	err = errors.Join(err, t.close()) // which may wait
	s.log.Info("program gone", "pid", t.PID, "contexts_left", left)
	if err != nil && !errors.Is(err, driver.ErrGone) {
		s.log.Error("clear what a program left", "pid", t.PID, "err", err)
	}
}

// contextEndTimeout bounds how long the host may take to end a context before that is logged, and
// before an agent that ends no longer waits.
var contextEndTimeout = 15 * time.Second

// destroyContexts destroys the contexts of an allotment with their channels, and returns how many
// there were.
func (s *sharedDevice) destroyContexts(ctx context.Context, a allot.Allotment) (left int, err error) {
	for _, slot := range a.Contexts {
		state, err := s.contextState(slot)
		if err != nil {
			return left, err
		}
		if state == abi.ContextFree {
			continue
		}
		left++
		// A refusal means that it is ending already.
		if _, err := s.set(uint32(abi.ContextSlot(slot, abi.ContextControl)), uint32(abi.ControlDestroy)); err != nil {
			return left, err
		}
	}
	for _, slot := range a.Contexts {
		if err := s.await(ctx, slot); err != nil {
			return left, err
		}
	}
	return left, nil
}

// contextState returns the state of a context.
func (s *sharedDevice) contextState(slot int) (abi.ContextState, error) {
	v, err := s.bus.Read(uint32(abi.ContextSlot(slot, abi.ContextStatus)))
	return abi.ContextState(v), err
}

// await waits until a context's slot is free.
func (s *sharedDevice) await(ctx context.Context, slot int) error {
	poll := time.NewTicker(10 * time.Millisecond) // for devices without interrupts
	defer poll.Stop()
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		state, err := s.contextState(slot)
		if err != nil || state == abi.ContextFree {
			return err
		}
		select {
		case <-changed:
		case <-poll.C:
		case <-s.bus.Done():
			return driver.ErrGone
		case <-ctx.Done():
			return fmt.Errorf("context %d does not end: %w", slot, context.Cause(ctx))
		}
	}
}

// open returns how many slots are not free, or -1 if the device does not tell.
func (s *sharedDevice) open(slots []int, status func(slot int) int) (n int) {
	for _, slot := range slots {
		v, err := s.bus.Read(uint32(status(slot)))
		if err != nil {
			return -1
		}
		if v != 0 { // free, of contexts and channels alike
			n++
		}
	}
	return n
}

// gone reports whether the device no longer exists.
func (s *sharedDevice) gone() bool {
	select {
	case <-s.bus.Done():
		return true
	default:
		return false
	}
}

// close closes the device, which has no tenant any more. Closing it again does nothing.
func (s *sharedDevice) close() (err error) {
	s.closing.Do(func() {
		s.stop()
		s.done.Wait()
		err = s.bus.Close()
	})
	return err
}

// tenantsOf returns the tenants; s may be nil for a device that is not open.
func (s *sharedDevice) tenantsOf() []Tenant {
	list := []Tenant{}
	if s == nil {
		return list
	}
	s.mu.Lock()
	for t := range s.tenants {
		list = append(list, t.Tenant)
	}
	s.mu.Unlock()
	for i := range list {
		t := &list[i]
		t.Contexts = s.open(t.Allotment.Contexts, func(slot int) int { return abi.ContextSlot(slot, abi.ContextStatus) })
		t.Channels = s.open(t.Allotment.Channels, func(slot int) int { return abi.ChannelSlot(slot, abi.ChannelStatus) })
	}
	slices.SortFunc(list, func(a, b Tenant) int { return a.Since.Compare(b.Since) })
	return list
}
