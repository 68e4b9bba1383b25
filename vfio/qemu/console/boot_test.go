package console

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
)

// script is a guest that sends raw messages.
type script struct {
	t    *testing.T
	conn net.Conn
	out  sender
	in   *Reader
}

// scripted connects a client to a guest that the test plays.
func scripted(t *testing.T) (*Client, *script) {
	t.Helper()
	host, guest := net.Pipe()
	c := NewClient(host, nil)
	t.Cleanup(func() {
		c.Close()
		guest.Close()
	})
	return c, &script{t: t, conn: guest, out: sender{w: guest}, in: NewReader(guest)}
}

func (s *script) send(m Message) {
	s.t.Helper()
	if err := s.out.send(m); err != nil {
		s.t.Fatal(err)
	}
}

func (s *script) hello(boot uint32) {
	s.t.Helper()
	s.out.begin(boot)
	s.send(Message{Kind: Hello})
}

// want reads the next message, which must be of the given kind.
func (s *script) want(kind Kind) Message {
	s.t.Helper()
	m, err := s.in.Next()
	if err != nil {
		s.t.Fatal(err)
	}
	if m.Kind != kind {
		s.t.Fatalf("the host sends %+v, want %s", m, kind)
	}
	return m
}

// start makes the client run a program and reports it as started.
func (s *script) start(c *Client) *Process {
	s.t.Helper()
	// Hello has been sent, but not necessarily received.
	if _, err := c.Ready(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	started := make(chan *Process, 1)
	go func() {
		p, err := c.Run(context.Background(), Command{Args: []string{"x"}, Stdin: []byte("y")})
		if err != nil {
			s.t.Error(err)
		}
		started <- p
	}()
	m := s.want(Run)
	if m.Boot != s.out.boot {
		s.t.Errorf("the host speaks of boot %d in boot %d", m.Boot, s.out.boot)
	}
	s.want(Input)
	s.send(Message{Kind: Started, Program: m.Program, PID: 2})
	return <-started
}

func wantEnd(t *testing.T, p *Process, text string) {
	t.Helper()
	if err := p.Wait(); err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("the program ended with %v, want %q", err, text)
	}
}

func TestNothingRunsBeforeTheGuestIsReady(t *testing.T) {
	c, s := scripted(t)
	if _, err := c.Run(t.Context(), Command{Args: []string{"x"}}); !errors.Is(err, ErrNotReady) {
		t.Errorf("run: %v", err)
	}
	if err := c.Power(Reboot); !errors.Is(err, ErrNotReady) {
		t.Errorf("power: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Ready(ctx); !errors.Is(err, ErrNotReady) || !errors.Is(err, context.Canceled) {
		t.Errorf("ready: %v", err)
	}
	s.hello(1)
	if _, err := c.Ready(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestARestartEndsPrograms(t *testing.T) {
	c, s := scripted(t)
	s.hello(1)
	if _, err := c.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := s.start(c)
	s.hello(2)
	wantEnd(t, p, "restarted")
	p = s.start(c)
	s.send(Message{Kind: Exited, Program: p.id})
	if err := p.Wait(); err != nil {
		t.Error(err)
	}
}

func TestAResetEndsProgramsAtOnce(t *testing.T) {
	c, s := scripted(t)
	s.hello(1)
	if _, err := c.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := s.start(c)
	reset := errors.New("reset")
	c.EndBoot(reset)
	if err := p.Wait(); !errors.Is(err, reset) {
		t.Errorf("the program ended with %v", err)
	}
	// Late messages of the old boot don't belong to the next one.
	s.send(Message{Kind: Output, Program: p.id, Stream: Stdout, Data: []byte("x\n")})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Ready(ctx); !errors.Is(err, ErrNotReady) {
		t.Errorf("ready: %v", err)
	}
	s.hello(2)
	if _, err := c.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Neither does a message with the old boot's number.
	q := s.start(c)
	s.out.boot = 1
	s.send(Message{Kind: Exited, Program: q.id, Status: 9})
	s.out.begin(2)
	s.out.next = 2
	s.send(Message{Kind: Exited, Program: q.id})
	if err := q.Wait(); err != nil {
		t.Error(err)
	}
}

func TestALostMessageIsAnError(t *testing.T) {
	c, s := scripted(t)
	s.hello(1)
	if _, err := c.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := s.start(c)
	s.out.next++
	s.send(Message{Kind: Output, Program: p.id, Stream: Stdout, Data: []byte("x\n")})
	wantEnd(t, p, "messages 2 to 2 of the guest were lost")
	// The line still works.
	q := s.start(c)
	s.send(Message{Kind: Exited, Program: q.id})
	if err := q.Wait(); err != nil {
		t.Error(err)
	}
}

func TestTheLinesEndEndsPrograms(t *testing.T) {
	c, s := scripted(t)
	s.hello(1)
	if _, err := c.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := s.start(c)
	s.conn.Close()
	wantEnd(t, p, "console has ended")
	<-c.Done()
	if _, err := c.Ready(t.Context()); err == nil {
		t.Error("a guest without a line is ready")
	}
}

func TestUnreadOutputIsBounded(t *testing.T) {
	c, s := scripted(t)
	s.hello(1)
	if _, err := c.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := s.start(c)
	for sent := 0; sent <= maxUnread; sent += MaxChunk {
		s.send(Message{Kind: Output, Program: p.id, Stream: Stdout, Data: make([]byte, MaxChunk)})
	}
	wantEnd(t, p, "is not read")
}

// Invalid requests get an error, and the next request is served.
func TestServerRefusesWhatIsNoRequest(t *testing.T) {
	host, guest := net.Pipe()
	server := Server{Guest: here{}, Boot: 5}
	served := make(chan error, 1)
	go func() { served <- server.Serve(context.Background(), guest) }()
	s := &script{t: t, conn: host, out: sender{w: host}, in: NewReader(host)}
	if m := s.want(Hello); m.Boot != 5 || m.Number != 0 {
		t.Errorf("hello %+v", m)
	}
	s.out.begin(4)
	s.send(Message{Kind: Run, Args: []string{"/bin/true"}}) // of another boot: no reply
	s.out.begin(5)
	s.send(Message{Kind: "dance"})
	s.want(Refused)
	s.out.next += 3
	s.send(Message{Kind: Run, Program: 1, Args: []string{"/bin/sleep", "1000"}})
	if m := s.want(Refused); !strings.Contains(m.Text, "messages 1 to 3 were lost") {
		t.Errorf("lost messages: %q", m.Text)
	}
	s.want(Started)
	s.send(Message{Kind: Run, Program: 1, Args: []string{"/bin/true"}})
	s.want(Refused)
	s.send(Message{Kind: Input, Program: 9, Data: []byte("x")})
	s.want(Taken)
	s.send(Message{Kind: Kill, Program: 9, Signal: 9})
	s.send(Message{Kind: Kill, Program: 1, Signal: 9})
	if m := s.want(Exited); m.Signal != 9 {
		t.Errorf("the end is %+v", m)
	}
	host.Close()
	if err := <-served; err == nil {
		t.Error("the server's line ended without an error")
	}
}
