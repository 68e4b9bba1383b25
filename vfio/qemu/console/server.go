package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// maxPrograms limits the programs that run in a guest at once.
const maxPrograms = 64

// Guest performs a [Server]'s requests.
type Guest interface {
	// Start runs a program with env added to the environment.
	Start(args, env []string) (Child, error)
	// Power ends the guest as action says. It returns only if it fails.
	Power(action string) error
}

// Child is a started program. The pipes are the guest's ends of the program's standard files. The
// server's goroutines that use a pipe close it.
type Child struct {
	PID            int
	Stdin          io.WriteCloser
	Stdout, Stderr io.ReadCloser
	// Wait waits for the end and returns the exit status or else the signal. It is called once.
	Wait func() (status, signal int)
	// Signal sends a signal. It may be called at any time.
	Signal func(signal int) error
}

// pipeGrace is how long the server waits for a program's output after its end: descendants of the
// program may keep the pipes open.
const pipeGrace = time.Second

// Server is the guest's end of the line. mu guards programs.
type Server struct {
	Guest Guest
	// Boot identifies this boot and must differ from that of every other.
	Boot uint32
	// Text describes the guest for people.
	Text string
	// Log, if set, is called with errors of the line.
	Log func(string)

	out      sender
	mu       sync.Mutex
	programs map[uint32]*program
	wg       sync.WaitGroup
}

// program is a running program.
type program struct {
	id    uint32
	child Child
	input chan []byte // nil ends the input; has room for the one unacknowledged message
	ended chan struct{}
}

// Serve sends Hello and then performs the host's requests until ctx ends or the line fails, and
// returns the reason. It kills programs that still run.
func (s *Server) Serve(ctx context.Context, line io.ReadWriter) error {
	s.programs = map[uint32]*program{}
	s.out.w = line
	s.out.begin(s.Boot)
	if err := s.out.send(Message{Kind: Hello, Text: s.Text}); err != nil {
		return err
	}
	defer s.wg.Wait()
	defer s.killAll()
	if c, ok := line.(io.Closer); ok {
		defer context.AfterFunc(ctx, func() { c.Close() })()
	}
	in := NewReader(line)
	in.Noise = func(p []byte) { s.log(fmt.Sprintf("noise on the line: %q", p)) }
	var expected uint32
	for {
		m, err := in.Next()
		if err != nil {
			return errors.Join(ctx.Err(), err)
		}
		if m.Boot != s.Boot {
			s.log(fmt.Sprintf("a %s message of another boot", m.Kind))
			continue
		}
		if m.Number != expected {
			s.refuse(0, fmt.Errorf("messages %d to %d were lost", expected, m.Number-1))
		}
		expected = m.Number + 1
		s.handle(m)
	}
}

func (s *Server) handle(m Message) {
	switch m.Kind {
	case Run:
		s.run(m)
	case Input:
		s.input(m)
	case Kill:
		if p := s.program(m.Program); p != nil {
			if err := p.child.Signal(m.Signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
				s.log(fmt.Sprintf("signal %d to process %d: %v", m.Signal, p.child.PID, err))
			}
		}
	case Power:
		s.refuse(0, fmt.Errorf("%s: %w", m.Text, s.Guest.Power(m.Text)))
	default:
		s.refuse(0, fmt.Errorf("a %q message is nothing a host sends", m.Kind))
	}
}

func (s *Server) program(id uint32) *program {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.programs[id]
}

func (s *Server) run(m Message) {
	fail := func(err error) { s.send(Message{Kind: Exited, Program: m.Program, Status: -1, Text: err.Error()}) }
	s.mu.Lock()
	_, taken := s.programs[m.Program]
	n := len(s.programs)
	s.mu.Unlock()
	switch {
	case taken:
		s.refuse(0, fmt.Errorf("program %d is running", m.Program))
		return
	case n >= maxPrograms:
		fail(fmt.Errorf("%d programs are running, which is the limit", n))
		return
	case len(m.Args) == 0:
		fail(errors.New("no program is named"))
		return
	}
	child, err := s.Guest.Start(m.Args, m.Env)
	if err != nil {
		fail(err)
		return
	}
	p := &program{id: m.Program, child: child, input: make(chan []byte, 1), ended: make(chan struct{})}
	s.mu.Lock()
	s.programs[p.id] = p
	s.mu.Unlock()
	s.send(Message{Kind: Started, Program: p.id, PID: child.PID})
	s.wg.Go(func() { s.feed(p) })
	s.wg.Go(func() { s.follow(p) })
}

// input passes a message's data to the program. It never waits: a host that respects the limit of
// one unacknowledged message finds room.
func (s *Server) input(m Message) {
	p := s.program(m.Program)
	if p == nil {
		s.send(Message{Kind: Taken, Program: m.Program})
		return
	}
	data := m.Data
	if len(data) == 0 {
		data = nil
	}
	select {
	case p.input <- data:
	default:
		s.refuse(p.id, errors.New("input that the last message's was not taken for yet"))
	}
}

// feed writes a program's input until the input or the program ends.
func (s *Server) feed(p *program) {
	defer p.child.Stdin.Close()
	for {
		select {
		case data := <-p.input:
			if data == nil {
				return
			}
			// A program that doesn't read its input is not an error. It gets no more input, but the
			// messages are still acknowledged.
			if _, err := p.child.Stdin.Write(data); err != nil {
				p.child.Stdin.Close()
			}
			s.send(Message{Kind: Taken, Program: p.id})
		case <-p.ended:
			return
		}
	}
}

// follow sends a program's output and its end.
func (s *Server) follow(p *program) {
	var pipes sync.WaitGroup
	pipes.Go(func() { s.copy(p, Stdout, p.child.Stdout) })
	pipes.Go(func() { s.copy(p, Stderr, p.child.Stderr) })
	status, signal := p.child.Wait()
	close(p.ended)
	grace := time.AfterFunc(pipeGrace, func() {
		p.child.Stdout.Close()
		p.child.Stderr.Close()
	})
	pipes.Wait()
	grace.Stop()
	p.child.Stdin.Close() // ends feed if it waits for the program to read
	s.mu.Lock()
	delete(s.programs, p.id)
	s.mu.Unlock()
	s.send(Message{Kind: Exited, Program: p.id, Status: status, Signal: signal})
}

func (s *Server) copy(p *program, stream int, r io.ReadCloser) {
	defer r.Close()
	buf := make([]byte, MaxChunk)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			s.send(Message{Kind: Output, Program: p.id, Stream: stream, Data: buf[:n]})
		}
		if err != nil {
			return
		}
	}
}

// killAll kills the programs that still run.
func (s *Server) killAll() {
	const sigkill = 9
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.programs {
		_ = p.child.Signal(sigkill) // it may have ended by itself
	}
}

func (s *Server) refuse(program uint32, err error) {
	s.log(err.Error())
	s.send(Message{Kind: Refused, Program: program, Text: err.Error()})
}

// send writes a message. Serve notices if the line has ended.
func (s *Server) send(m Message) {
	if err := s.out.send(m); err != nil {
		s.log(err.Error())
	}
}

func (s *Server) log(text string) {
	if s.Log != nil {
		s.Log(text)
	}
}
