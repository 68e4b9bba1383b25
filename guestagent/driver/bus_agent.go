package driver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/guestagent/allot"
	"vgpud/guestagent/vfio"
	"vgpud/mediator/vgpu/abi"
	"vgpud/vfio/vfiouser"
)

// AgentOptions say what to ask the agent for. The zero value is usable.
type AgentOptions struct {
	// Socket is the agent's; "" means /run/vgpu-agent.sock.
	Socket string
	// Address is the PCI address of the device; "" means the only one.
	Address string
	// Ask is the size of the part.
	Ask allot.Ask
}

// agentTimeout bounds the agent's answer. The agent may have to check or reset the device, on a
// busy host. An agent that has ended is noticed at once.
const agentTimeout = 15 * time.Minute

// AgentBus is a part of a virtual GPU that vgpu-agent shares. It implements [Bus]. Registers and
// memory are accessed directly; only registers that control slots are written through the agent.
type AgentBus struct {
	*PCIBus
	grant   allot.Grant
	conn    allot.Conn
	ask     sync.Mutex       // held for one request and its answer
	answers chan allot.Reply // the answer to it

	missed    func() map[string]uint64 // see ReportMissed
	reporting sync.Mutex
	reported  map[string]uint64 // guarded by reporting
}

// DialAgent opens a part of a virtual GPU through vgpu-agent, for one of several programs that
// share a device. The part belongs to this program until the bus is closed or the program ends;
// then the agent destroys what is in it.
func DialAgent(ctx context.Context, o AgentOptions) (*AgentBus, error) {
	if o.Socket == "" {
		o.Socket = allot.DefaultSocket
	}
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	conn, err := allot.Dial(o.Socket)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	reply, files, err := conn.Question(allot.Request{Op: allot.OpOpen, Address: o.Address, Ask: o.Ask}, agentTimeout)
	stop()
	if ctx.Err() != nil {
		allot.CloseAll(files)
		return nil, errors.Join(context.Cause(ctx), ignoreClosed(conn.Close()))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open a part of a virtual GPU: %w", err), conn.Close())
	}
	b, err := newAgentBus(conn, reply.Grant, files)
	if err != nil {
		return nil, fmt.Errorf("open a part of a virtual GPU: %w", err)
	}
	if b.area.b == nil {
		o.Address = reply.Grant.Address
		if err := b.mapEventArea(o); err != nil {
			return nil, errors.Join(fmt.Errorf("open a part of a virtual GPU: %w", err), b.Close())
		}
	}
	return b, nil
}

// mapEventArea maps BAR4 from a descriptor of its own, if the agent has one: it may be older, and the
// device may have no event area.
func (b *AgentBus) mapEventArea(o AgentOptions) error {
	f, err := DialEventArea(o)
	if err != nil {
		return nil // the device is used without
	}
	area, err := unix.Mmap(int(f.Fd()), 0, abi.EventAreaBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return errors.Join(fmt.Errorf("map BAR4: %w", err), f.Close())
	}
	b.area.b = area
	b.closers = append(b.closers, f)
	return nil
}

// DialEventArea asks the agent for the descriptor of a device's event area, and for nothing else: for
// what stands in for a network card. A program must have the device open. The caller maps
// [abi.EventAreaBytes] from its start, and closes it.
func DialEventArea(o AgentOptions) (*os.File, error) {
	if o.Socket == "" {
		o.Socket = allot.DefaultSocket
	}
	conn, err := allot.Dial(o.Socket)
	if err != nil {
		return nil, err
	}
	_, files, err := conn.Question(allot.Request{Op: allot.OpEvents, Address: o.Address}, agentTimeout)
	if err = errors.Join(err, conn.Close()); err == nil && len(files) != 1 {
		err = fmt.Errorf("the agent answers with %d descriptors", len(files))
	}
	if err != nil {
		allot.CloseAll(files)
		return nil, fmt.Errorf("open the event area of a virtual GPU: %w", err)
	}
	return files[0], nil
}

// ignoreClosed returns err, or nil if it says that something was closed before.
func ignoreClosed(err error) error {
	if errors.Is(err, os.ErrClosed) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	return err
}

// newAgentBus makes a bus from the agent's grant. The connection and files belong to it, also after
// an error.
func newAgentBus(conn allot.Conn, g *allot.Grant, files []*os.File) (_ *AgentBus, err error) {
	if g == nil || len(files) != 2+len(g.Allotment.Vectors) {
		allot.CloseAll(files)
		return nil, errors.Join(fmt.Errorf("%d descriptors with %+v", len(files), g), conn.Close())
	}
	b := &AgentBus{PCIBus: PCI{}.newBus(g.Address, AccessAgent), grant: *g, conn: conn, answers: make(chan allot.Reply, 1)}
	if g.Why != "" {
		b.fallbackReason = errors.New(g.Why)
	}
	b.files = files[:2]
	b.closers = append(b.closers, conn)
	defer func() {
		if err != nil { // no goroutine listens yet
			err = errors.Join(err, b.PCIBus.Close())
		}
	}()
	for i, f := range files[2:] {
		e, err := vfiouser.OpenEventfd(f)
		if err != nil {
			allot.CloseAll(files[2+i:])
			return nil, err
		}
		b.events = append(b.events, e)
	}
	for i, m := range []*mapping{&b.registers, &b.shared} {
		r := g.BARs[i]
		if m.b, err = unix.Mmap(int(files[i].Fd()), r.Offset, r.Bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
			return nil, fmt.Errorf("map BAR%d: %w", 2*i, err)
		}
	}
	b.shared.place()
	if r := g.Events; r != nil {
		if r.Bytes != abi.EventAreaBytes {
			return nil, fmt.Errorf("BAR4 has %d bytes, want %d", r.Bytes, abi.EventAreaBytes)
		}
		if b.area.b, err = unix.Mmap(int(files[0].Fd()), r.Offset, r.Bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
			return nil, fmt.Errorf("map BAR4: %w", err)
		}
	}
	if len(b.registers.b) != abi.BAR0Size {
		return nil, fmt.Errorf("BAR0 has %d bytes, want %d", len(b.registers.b), abi.BAR0Size)
	}
	b.workers.Go(b.listen)
	b.startHeartbeat(0)
	return b, nil
}

// listen receives the agent's answers. The end of the connection means that the device is gone.
func (b *AgentBus) listen() {
	for {
		var r allot.Reply
		files, err := b.conn.Receive(&r)
		allot.CloseAll(files)
		if err != nil {
			b.end(errors.New("the agent has closed it: it was unplugged, or the agent has ended"))
			return
		}
		select {
		case b.answers <- r:
		default: // an answer to no request
		}
	}
}

// Allotment returns the part of the device that belongs to this program.
func (b *AgentBus) Allotment() allot.Allotment { return b.grant.Allotment }

// Set asks the agent to write a register of our slots, and returns the device's error code.
func (b *AgentBus) Set(offset, value uint32) (abi.ErrorCode, error) {
	r, err := b.question(allot.Request{Op: allot.OpSet, Offset: offset, Value: value})
	return abi.ErrorCode(r.Code), err
}

// question sends the agent a request and waits for its answer. An answer with an error in it is
// returned as an error.
func (b *AgentBus) question(q allot.Request) (allot.Reply, error) {
	b.ask.Lock()
	defer b.ask.Unlock()
	if err := b.ended(); err != nil {
		return allot.Reply{}, err
	}
	err := b.conn.Send(q)
	if err == nil {
		late := time.NewTimer(agentTimeout)
		defer late.Stop()
		select {
		case r := <-b.answers:
			if r.Error != "" {
				return r, errors.New(r.Error)
			}
			return r, nil
		case <-b.gone:
		case <-late.C:
			// A later answer would be taken for that to the next request.
			b.end(fmt.Errorf("the agent did not answer for %v", agentTimeout))
		}
	}
	if gone := b.ended(); gone != nil {
		return allot.Reply{}, gone
	}
	return allot.Reply{}, fmt.Errorf("ask the agent: %w", err)
}

// Close gives the part back and returns when the agent has cleared it.
func (b *AgentBus) Close() error {
	b.FlushMissed()
	if b.ended() == nil && b.conn.CloseWrite() == nil {
		late := time.NewTimer(agentTimeout)
		defer late.Stop()
		select {
		case <-b.gone: // the agent has closed its end
		case <-late.C:
		}
	}
	return b.PCIBus.Close()
}

// Lend describes a part of the device for another program, with the descriptors that it needs,
// which stay the bus's. state is an eventfd that is raised for vector 0, which can't be shared; nil
// if there are no vectors.
func (b *PCIBus) Lend(a allot.Allotment, state *vfiouser.Eventfd) (g allot.Grant, fds []int, err error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if err := b.ended(); err != nil {
		return g, nil, err
	}
	g = allot.Grant{Address: b.address, Access: b.access.String(), Allotment: a}
	if b.fallbackReason != nil {
		g.Why = b.fallbackReason.Error()
	}
	g.BARs = [2]allot.Region{{Bytes: len(b.registers.b)}, {Bytes: len(b.shared.b)}}
	if b.vfio != nil {
		for i, index := range []uint32{0, 2} {
			if g.BARs[i].Offset, err = b.vfio.Offset(index); err != nil {
				return g, nil, err
			}
			fds = append(fds, b.vfio.FD())
		}
		if b.area.b != nil {
			r := allot.Region{Bytes: len(b.area.b)}
			if r.Offset, err = b.vfio.Offset(vfio.RegionBAR4); err != nil {
				return g, nil, err
			}
			g.Events = &r
		}
	} else {
		for _, f := range b.files {
			fds = append(fds, int(f.Fd()))
		}
	}
	for _, v := range a.Vectors {
		if v == 0 {
			fds = append(fds, state.FD())
		} else {
			fds = append(fds, b.events[v].FD())
		}
	}
	return g, fds, nil
}

// EventArea returns the descriptor of BAR4, which stays the bus's: of it alone, for what stands in for
// a network card.
func (b *PCIBus) EventArea() (*os.File, error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	switch {
	case b.ended() != nil:
		return nil, b.ended()
	case b.eventFile != nil:
		return b.eventFile, nil
	case b.area.b != nil:
		return nil, errors.New("the event area has no descriptor of its own: the device is open through vfio, whose descriptor reaches all of it")
	}
	return nil, errors.New("the device has no event area")
}

func (b *AgentBus) outside() {}
