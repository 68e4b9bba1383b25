package libvirt

import (
	"context"
	"fmt"
	"io"
)

// Serve is the program's end of a [Conn]: it answers requests from in on out,
// and passes on events, until in ends or the connection to libvirt does. The
// error is why there is no connection, or none any more; out has been told it.
func Serve(ctx context.Context, in io.Reader, out io.Writer, open func() (Hypervisor, error)) error {
	s := server{out: lines{w: out}}
	var err error
	s.hypervisor, err = open()
	if werr := s.out.write(reply{Error: newProblem(err)}); err == nil {
		err = werr
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	requests, events := make(chan error, 1), make(chan error, 1)
	go func() { requests <- scan(in, s.answer) }()
	go func() { events <- s.pass(ctx) }()
	select {
	case err = <-requests: // its end is the other side's
		cancel()
		<-events
	case err = <-events:
		// What waits for in can't be woken; it ends with the program.
		cancel()
		if werr := s.out.write(reply{Error: newProblem(err)}); werr != nil {
			err = fmt.Errorf("%w (and tell so: %w)", err, werr)
		}
	}
	if cerr := s.hypervisor.Close(); err == nil {
		err = cerr
	}
	return err
}

type server struct {
	hypervisor Hypervisor
	out        lines
}

// pass passes events on.
func (s *server) pass(ctx context.Context) error {
	for {
		e, err := s.hypervisor.Next(ctx)
		if err != nil {
			return err
		}
		if err := s.out.write(reply{Event: &e}); err != nil {
			return fmt.Errorf("pass an event on: %w", err)
		}
	}
}

// answer carries a request out.
func (s *server) answer(r request) error {
	a := reply{ID: r.ID}
	var err error
	switch r.Op {
	case opDomain:
		var d Domain
		if d, err = s.hypervisor.Domain(r.Key, r.View); err == nil {
			a.Domain = &d
		}
	case opDefine:
		err = s.hypervisor.Define(r.XML)
	case opDomains:
		a.Domains, err = s.hypervisor.Domains()
	default:
		err = fmt.Errorf("operation %q is not known", r.Op)
	}
	a.Error = newProblem(err)
	return s.out.write(a)
}
