package console

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"strings"
	"sync"
	"syscall"
)

// maxUnread limits the standard output that waits to be read.
const maxUnread = 4 << 20

// maxTail is the amount of a program's standard error that is kept for an [ExitError].
const maxTail = 2 << 10

// Command is a program to run in a guest.
type Command struct {
	Args   []string  // the program's path in the guest, and its arguments
	Env    []string  // added to the guest's environment
	Stdin  []byte    // its standard input
	Stderr io.Writer // if set, receives its standard error
}

// Process is a program that runs in a guest. mu guards the fields below it.
type Process struct {
	c    *Client
	id   uint32
	cmd  Command
	stop func() bool // stops the watch on Run's context

	started chan struct{} // closed when the program runs, or will never run
	taken   chan struct{} // receives one value for each acknowledged input message
	done    chan struct{} // closed at the end

	mu   sync.Mutex
	cond sync.Cond // signals changes of out and over; uses mu
	runs bool      // it was started
	pid  int
	out  bytes.Buffer
	tail []byte
	over bool
	err  error
}

// ExitError describes how a program failed.
type ExitError struct {
	Args   []string
	Status int            // the exit status, -1 if there is none
	Signal syscall.Signal // the signal that killed it, or 0
	Reason string         // why it did not start, or ""
	Stderr string         // the end of its standard error
}

func (e *ExitError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s in the guest: ", strings.Join(e.Args, " "))
	switch {
	case e.Reason != "":
		b.WriteString(e.Reason)
	case e.Signal != 0:
		fmt.Fprintf(&b, "signal: %v", e.Signal)
	default:
		fmt.Fprintf(&b, "exit status %d", e.Status)
	}
	if s := strings.TrimSpace(e.Stderr); s != "" {
		fmt.Fprintf(&b, ": %s", s)
	}
	return b.String()
}

// Run runs a program in the guest, which must be ready. If ctx ends, the program is killed and ends
// with ctx's cause, even if the guest no longer responds.
func (c *Client) Run(ctx context.Context, cmd Command) (*Process, error) {
	p := &Process{
		c: c, cmd: cmd,
		started: make(chan struct{}), taken: make(chan struct{}, 1), done: make(chan struct{}),
	}
	p.cond.L = &p.mu
	err := context.Cause(ctx)
	if err == nil {
		c.mu.Lock()
		c.last++
		p.id = c.last
		c.programs[p.id] = p
		c.mu.Unlock()
		err = c.send(Message{Kind: Run, Program: p.id, Args: cmd.Args, Env: cmd.Env})
	}
	if err != nil {
		c.forget(p)
		return nil, fmt.Errorf("run %s in the guest: %w", strings.Join(cmd.Args, " "), err)
	}
	p.mu.Lock()
	p.stop = context.AfterFunc(ctx, func() {
		_ = p.Signal(syscall.SIGKILL) // the guest may be gone
		p.finish(fmt.Errorf("%s in the guest: %w", strings.Join(cmd.Args, " "), context.Cause(ctx)))
	})
	p.mu.Unlock()
	go p.feed()
	<-p.started
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.runs && p.err != nil {
		return nil, p.err
	}
	return p, nil
}

func (c *Client) forget(p *Process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.programs, p.id)
}

// PID returns the program's process ID in the guest.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pid
}

// Signal sends a signal to the program. Signalling a program that has ended is not an error.
func (p *Process) Signal(sig syscall.Signal) error {
	return p.c.send(Message{Kind: Kill, Program: p.id, Signal: int(sig)})
}

// Lines yields the lines of standard output as they arrive, without LF, until the output ends. Each
// line is yielded once in total.
func (p *Process) Lines() iter.Seq[string] {
	return func(yield func(string) bool) {
		for {
			line, ok := p.line()
			if !ok || !yield(line) {
				return
			}
		}
	}
}

// line waits for a line. The last one may lack its LF.
func (p *Process) line() (string, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	searched := 0
	for {
		rest := p.out.Bytes()
		if i := bytes.IndexByte(rest[min(searched, len(rest)):], '\n'); i >= 0 {
			line := string(p.out.Next(searched + i + 1))
			return line[:len(line)-1], true
		}
		if p.over {
			line := string(p.out.Next(p.out.Len()))
			return line, line != ""
		}
		searched = len(rest)
		p.cond.Wait()
	}
}

// Wait waits for the program's end. It returns nil for exit status 0, an [*ExitError] if the
// program failed, or the reason why its end is unknown.
func (p *Process) Wait() error {
	<-p.done
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Done returns a channel that is closed when the program has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// feed sends the program's input, one message at a time.
func (p *Process) feed() {
	rest := p.cmd.Stdin
	for {
		n := min(len(rest), MaxChunk)
		if err := p.c.send(Message{Kind: Input, Program: p.id, Data: rest[:n]}); err != nil || n == 0 {
			return
		}
		rest = rest[n:]
		select {
		case <-p.taken:
		case <-p.done:
			return
		}
	}
}

// handle handles a message about the program. Only the client's reader calls it.
func (p *Process) handle(m Message) {
	switch m.Kind {
	case Started:
		p.mu.Lock()
		if !p.over && !p.runs {
			p.runs, p.pid = true, m.PID
			close(p.started)
		}
		p.mu.Unlock()
	case Output:
		p.output(m.Stream, m.Data)
	case Taken:
		select {
		case p.taken <- struct{}{}:
		default: // more acknowledgements than messages
		}
	case Exited:
		p.finish(p.end(m))
	}
}

func (p *Process) output(stream int, data []byte) {
	if stream == Stderr {
		if p.cmd.Stderr != nil {
			_, _ = p.cmd.Stderr.Write(data) // the writer knows of its own errors
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.tail = append(p.tail, data...)
		p.tail = p.tail[max(0, len(p.tail)-maxTail):]
		return
	}
	p.mu.Lock()
	full := p.out.Len()+len(data) > maxUnread
	if !full {
		p.out.Write(data)
		p.cond.Broadcast()
	}
	p.mu.Unlock()
	if full {
		p.finish(fmt.Errorf("%s in the guest: %d bytes of output that is not read", p.cmd.Args[0], maxUnread))
	}
}

// end returns the error, if any, of a program that ended according to m.
func (p *Process) end(m Message) error {
	if m.Status == 0 && m.Signal == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return &ExitError{Args: p.cmd.Args, Status: m.Status, Signal: syscall.Signal(m.Signal), Reason: m.Text, Stderr: string(p.tail)}
}

// finish ends the program for the host. Only the first call has an effect.
func (p *Process) finish(err error) {
	p.c.forget(p)
	p.mu.Lock()
	if p.over {
		p.mu.Unlock()
		return
	}
	p.over, p.err = true, err
	runs, stop := p.runs, p.stop
	p.cond.Broadcast()
	p.mu.Unlock()
	if stop != nil {
		stop()
	}
	close(p.done)
	if !runs {
		close(p.started)
	}
}
