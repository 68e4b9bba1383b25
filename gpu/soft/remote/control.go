package remote

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/gpu"
	"vgpud/gpu/soft"
	"vgpud/internal/unixmsg"
)

// A context's handle is a socket on which the server takes orders for that context alone: to enable
// or disable its channels, and to set its time slice. It corresponds to a descriptor of the driver
// for a real GPU. As there, the effects of orders outlive the socket.

// controlLimit is the time limit of an order. The holder of the socket may have received it from a
// process that could have passed any socket.
const controlLimit = time.Second

// newControl returns a context's handle, of which there is one.
func (p *program) newControl(id uint32, c served) (*reply, []*os.File, error) {
	if !p.s.e.Properties().Preempts {
		return nil, nil, fmt.Errorf("control of a context on a GPU that takes nothing off in mid-kernel: %w", gpu.ErrUnsupported)
	}
	if p.controlled[id] {
		return nil, nil, fmt.Errorf("control of context %d: handed out already", id)
	}
	ends, err := pairOfSockets()
	if err != nil {
		return nil, nil, fmt.Errorf("make a context's control: %w", err)
	}
	theirs := ends[1]
	ours, err := packetConn(ends[0])
	if err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	if err := p.s.serveControl(ours, c); err != nil {
		return nil, nil, errors.Join(err, ours.Close(), theirs.Close())
	}
	if p.controlled == nil {
		p.controlled = make(map[uint32]bool)
	}
	p.controlled[id] = true
	return &reply{}, []*os.File{theirs}, nil
}

// pairOfSockets returns the two ends of a connection of packets.
func pairOfSockets() (ends [2]*os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return ends, err
	}
	for i, fd := range fds {
		ends[i] = os.NewFile(uintptr(fd), "control")
	}
	return ends, nil
}

// packetConn makes a connection from a socket, and closes f.
func packetConn(f *os.File) (*net.UnixConn, error) {
	c, err := net.FileConn(f)
	if err = errors.Join(err, f.Close()); err != nil {
		if c != nil {
			err = errors.Join(err, c.Close())
		}
		return nil, fmt.Errorf("use a context's control: %w", err)
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(errors.New("use a context's control: not a unix socket"), c.Close())
	}
	return u, nil
}

// serveControl carries out orders for a context until the other end is closed, which may be long
// after the end of the context. Therefore an owner may have at most twice as many controls as
// contexts.
func (s *Server) serveControl(c *net.UnixConn, of served) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, limit := of.tenant.owner, 2*of.tenant.limit
	switch n := s.controls[o]; {
	case s.over:
		return errors.New("the soft GPU ends")
	case limit > 0 && n >= limit:
		return fmt.Errorf("control beside %d of the same owner: %w", n, gpu.ErrFull)
	}
	s.conns[c] = struct{}{}
	s.controls[o]++
	s.all.Go(func() {
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.conns, c)
			if s.controls[o]--; s.controls[o] == 0 {
				delete(s.controls, o)
			}
		}()
		if err := serveOrders(c, of); !errors.Is(err, io.EOF) {
			s.o.Log.Warn("soft GPU: control of a context cut off", "error", err)
		}
		_ = c.Close()
	})
	return nil
}

// serveOrders carries out orders until the connection ends.
func serveOrders(c *net.UnixConn, of soft.ContextDriver) error {
	buf := make([]byte, maxPacket)
	for {
		b, files, err := receive(c, buf)
		if err = errors.Join(err, unixmsg.CloseAll(files)); err != nil {
			return err
		}
		var req request
		if err := decode(b, &req); err != nil {
			return err
		}
		r := &reply{}
		switch req.Op {
		case opEnable, opSlice:
			_, err = simple(of, &req)
		default:
			err = fmt.Errorf("unknown order %.40q", req.Op)
		}
		r.Error = toRemote(err)
		if b, err = encode(r); err == nil {
			err = send(c, b)
		}
		if err != nil {
			return err
		}
	}
}

// Control returns the context's handle. The caller closes it.
func (c *remoteContext) Control() (*os.File, error) {
	_, f, err := c.d.one(&request{Op: opControl, Context: c.id})
	return f, err
}

// Control returns control of a context, given its handles.
func (d *driver) Control(h gpu.Handles) (gpu.Control, error) {
	if len(h.Files) != 1 {
		return nil, errors.Join(fmt.Errorf("control of a context: %d files, want 1", len(h.Files)), unixmsg.CloseAll(h.Files))
	}
	c, err := packetConn(h.Files[0])
	if err != nil {
		return nil, err
	}
	return &control{c: c, buf: make([]byte, maxPacket)}, nil
}

// control controls one context.
type control struct {
	c    *net.UnixConn
	buf  []byte
	owed int // replies that have not come, those to orders that took too long among them
}

// order makes the server carry out an order.
func (c *control) order(req *request) error {
	b, err := encode(req)
	if err != nil {
		return err
	}
	if err := c.c.SetDeadline(time.Now().Add(controlLimit)); err != nil {
		return fmt.Errorf("%s: %w", req.Op, err)
	}
	if err := send(c.c, b); err != nil {
		return fmt.Errorf("%s: %w", req.Op, err)
	}
	for c.owed++; c.owed > 0; c.owed-- {
		var files []*os.File
		b, files, err = receive(c.c, c.buf)
		if err = errors.Join(err, unixmsg.CloseAll(files)); err != nil {
			return fmt.Errorf("%s: %w", req.Op, err)
		}
	}
	var r reply
	if err := decode(b, &r); err != nil {
		return fmt.Errorf("%s: %w", req.Op, err)
	}
	return r.Error.result()
}

// Suspend takes the context's channels off the GPU.
func (c *control) Suspend() error { return c.order(&request{Op: opEnable}) }

// Resume puts the channels back.
func (c *control) Resume() error { return c.order(&request{Op: opEnable, On: true}) }

// SetTimeslice sets the context's time slice.
func (c *control) SetTimeslice(d time.Duration) error {
	return c.order(&request{Op: opSlice, Slice: d})
}

// Close closes the socket. The effects of orders remain.
func (c *control) Close() error { return c.c.Close() }
