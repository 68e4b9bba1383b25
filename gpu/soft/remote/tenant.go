package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/gpu"
	"vgpud/gpu/soft"
)

// owner is whom contexts belong to, so that no guest has all there is, however many programs it runs. A guest's
// programs are a user of their own, and the kernel says which: what they call themselves is nothing to go by. Where
// guests have no users of their own, they are the server's or root's, and known by their contexts' labels.
type owner struct {
	uid   uint32
	label string // of a trusted user's
}

// String names the owner to the engine. No label has a blank.
func (o owner) String() string {
	if o.label != "" || o.uid == 0 {
		return o.label
	}
	return fmt.Sprintf("user %d", o.uid)
}

// tenant is what contexts of one owner share.
type tenant struct {
	owner    owner
	limit    int // of contexts; 0: none
	contexts int
	load     chan struct{} // held while a module of its contexts is compiled
}

// served is a program's context and whose it is.
type served struct {
	soft.ContextDriver
	tenant *tenant
}

// enter counts a user's context towards its owner's. A trusted user's without a label are nobody's, and limited by
// what there is alone.
func (s *Server) enter(uid uint32, label string) (*tenant, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, limit := owner{uid: uid}, s.o.PerUser
	if s.trusted(uid) {
		if o, limit = (owner{label: label}), s.o.ContextsPerLabel; label == "" {
			limit = 0
		}
	}
	t := s.tenants[o]
	if t == nil {
		t = &tenant{owner: o, limit: limit, load: make(chan struct{}, 1)}
		s.tenants[o] = t
	}
	if t.limit > 0 && t.contexts >= t.limit {
		return nil, fmt.Errorf("new context beside %d of the same owner: %w", t.contexts, gpu.ErrFull)
	}
	t.contexts++
	return t, nil
}

// leave undoes enter.
func (s *Server) leave(t *tenant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.contexts--; t.contexts == 0 {
		delete(s.tenants, t.owner)
	}
}

// turn waits until a module may be compiled: one of each owner at a time, and a few in all. The caller calls done.
func (s *Server) turn(ctx context.Context, t *tenant) (done func(), err error) {
	var held []chan struct{}
	done = func() {
		for _, c := range held {
			<-c
		}
	}
	wait := []chan struct{}{t.load, s.loads}
	if t.limit == 0 {
		wait = wait[1:]
	}
	for _, c := range wait {
		select {
		case c <- struct{}{}:
			held = append(held, c)
		case <-ctx.Done():
			done()
			return nil, errors.New("the program is gone")
		}
	}
	return done, nil
}

// attend returns a context that ends when the peer goes. Nothing may be received before stop is called.
func attend(c *net.UnixConn) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var watch sync.WaitGroup
	watch.Go(func() {
		if hungUp(c) {
			cancel()
		}
	})
	return ctx, func() {
		_ = c.SetReadDeadline(time.Unix(1, 0)) // ends the watch
		watch.Wait()
		_ = c.SetReadDeadline(time.Time{})
		cancel()
	}
}

// hungUp waits until the peer is gone, or for the deadline for reading, and says which. A request that comes early is
// left alone.
func hungUp(c *net.UnixConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	err = raw.Read(func(fd uintptr) bool {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		_, err := unix.Poll(p, 0)
		return err == nil && p[0].Revents != 0
	})
	return err == nil || errors.Is(err, net.ErrClosed)
}
