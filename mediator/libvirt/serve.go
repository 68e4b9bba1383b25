package libvirt

import (
	"context"
	"fmt"
	"io"
)

// Serve is the program's end of a [Conn]: it reads requests from in, writes answers and events to
// out, until in ends or the connection to libvirt does. It returns the reason why there is no
// connection, or none any more, which it has also written to out.
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
	case err = <-requests: // the other side has closed in
		cancel()
		<-events
	case err = <-events:
		// The read of in can't be cancelled; it ends with the program.
		cancel()
		if werr := s.out.write(reply{Error: newProblem(err)}); werr != nil {
			err = fmt.Errorf("%w (and report it: %w)", err, werr)
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

// pass writes events to out.
func (s *server) pass(ctx context.Context) error {
	for {
		e, err := s.hypervisor.Next(ctx)
		if err != nil {
			return err
		}
		if err := s.out.write(reply{Event: &e}); err != nil {
			return fmt.Errorf("write an event: %w", err)
		}
	}
}

// answer carries out a request.
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
		err = fmt.Errorf("unknown operation %q", r.Op)
	}
	a.Error = newProblem(err)
	return s.out.write(a)
}
