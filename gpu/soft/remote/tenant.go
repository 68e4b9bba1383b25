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

// owner identifies whose contexts count together, so that no guest can use up a resource with many
// programs. A guest's programs run as a user of their own, which the kernel reports; labels are
// chosen by the programs and prove nothing. Where guests have no users of their own, their programs
// run as the server's user or root, and are distinguished by their contexts' labels.
type owner struct {
	uid   uint32
	label string // only for a trusted user
}

// String returns the owner's name for the engine. Labels contain no blank.
func (o owner) String() string {
	if o.label != "" || o.uid == 0 {
		return o.label
	}
	return fmt.Sprintf("user %d", o.uid)
}

// tenant is the state that the contexts of one owner share.
type tenant struct {
	owner    owner
	limit    int // of contexts; 0 means none
	contexts int
	load     chan struct{} // held while a module of its contexts is compiled
}

// served is a program's context and its owner.
type served struct {
	soft.ContextDriver
	tenant *tenant
}

// count counts a new context for its owner. Contexts of a trusted user without a label have no
// owner, and are limited only by the total.
func (s *Server) count(uid uint32, label string) (*tenant, error) {
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

// uncount undoes count.
func (s *Server) uncount(t *tenant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.contexts--; t.contexts == 0 {
		delete(s.tenants, t.owner)
	}
}

// compileSlot waits until a module may be compiled: one of each owner at a time, and a few in
// total. The caller calls done afterwards.
func (s *Server) compileSlot(ctx context.Context, t *tenant) (done func(), err error) {
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

// peerContext returns a context that ends when the peer disconnects. Nothing may be received before
// stop is called.
func peerContext(c *net.UnixConn) (ctx context.Context, stop func()) {
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

// hungUp waits until the peer disconnects, or for the read deadline, and reports which. It leaves
// an early request in the socket.
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
