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

// tenant is what contexts of one label share, so that no guest has all there is, however many programs it runs.
type tenant struct {
	label    string
	contexts int
	load     chan struct{} // held while a module of its contexts is compiled
}

// served is a program's context and whose it is.
type served struct {
	soft.ContextDriver
	tenant *tenant
}

// enter counts a context towards its label's. Contexts without a label are nobody's, and not limited.
func (s *Server) enter(label string) (*tenant, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tenants[label]
	if t == nil {
		t = &tenant{label: label, load: make(chan struct{}, 1)}
		s.tenants[label] = t
	}
	if label != "" && t.contexts >= s.o.ContextsPerLabel {
		return nil, fmt.Errorf("new context beside %d of the same label: %w", t.contexts, gpu.ErrOutOfMemory)
	}
	t.contexts++
	return t, nil
}

// leave undoes enter.
func (s *Server) leave(t *tenant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.contexts--; t.contexts == 0 {
		delete(s.tenants, t.label)
	}
}

// turn waits until a module may be compiled: one of each label at a time, and a few in all. The caller calls done.
func (s *Server) turn(ctx context.Context, t *tenant) (done func(), err error) {
	var held []chan struct{}
	done = func() {
		for _, c := range held {
			<-c
		}
	}
	wait := []chan struct{}{t.load, s.loads}
	if t.label == "" {
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
