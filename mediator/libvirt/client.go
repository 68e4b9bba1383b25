package libvirt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ProgramName is the program that loads libvirt's library.
const ProgramName = "vgpu-libvirt"

// Options configure a connection; the zero value has useful defaults.
type Options struct {
	// URI is libvirt's URI of the hypervisor; by default [DefaultURI].
	URI string
	// Program is by default [ProgramName] beside this program, or in $PATH.
	Program string
}

// Conn is a connection to libvirt through the program. Its methods may be called from any
// goroutine. Close must be called in the end.
type Conn struct {
	cmd     *exec.Cmd
	in      *os.File      // the program's standard input, a pipe
	writing chan struct{} // holds a value while a call writes to in
	events  *EventQueue
	ended   chan struct{} // closed when the program has
	stderr  tail

	mu    sync.Mutex
	last  uint64
	calls map[uint64]chan reply
	err   error // why no more calls are answered
}

// Open starts the program and waits until it has connected.
func Open(ctx context.Context, o Options) (*Conn, error) {
	if o.URI == "" {
		o.URI = DefaultURI
	}
	if o.Program == "" {
		var err error
		if o.Program, err = findProgram(); err != nil {
			return nil, err
		}
	}
	c := &Conn{cmd: exec.Command(o.Program, o.URI), events: NewEventQueue(), writing: make(chan struct{}, 1), ended: make(chan struct{}), calls: make(map[uint64]chan reply)}
	// In another session the program gets no interrupt from the terminal. It ends when its standard
	// input does, so with this process at the latest.
	c.cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	c.cmd.Stderr = &c.stderr
	out, err := c.start()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", o.Program, unavailable(err))
	}
	first := make(chan reply, 1)
	c.calls[0] = first
	go c.read(out)
	if _, err := c.wait(ctx, 0, first); err != nil {
		return nil, errors.Join(fmt.Errorf("connect to libvirt at %s: %w", o.URI, err), c.Close())
	}
	return c, nil
}

// start starts the program with pipes to its standard input and from its output.
func (c *Conn) start() (out io.Reader, err error) {
	// exec's own pipe promises no deadlines.
	theirs, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	if out, err = c.cmd.StdoutPipe(); err != nil {
		return nil, errors.Join(err, theirs.Close(), in.Close())
	}
	c.in, c.cmd.Stdin = in, theirs
	err = errors.Join(c.cmd.Start(), theirs.Close())
	if err != nil {
		err = errors.Join(err, in.Close())
	}
	return out, err
}

// unavailable adds ErrUnavailable to the error of a program that can't be started. Other errors,
// such as a lack of processes, pass.
func unavailable(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: %w", err, ErrUnavailable)
	}
	return err
}

// findProgram finds the program.
func findProgram() (string, error) {
	if self, err := os.Executable(); err == nil {
		if path := filepath.Join(filepath.Dir(self), ProgramName); runs(path) {
			return path, nil
		}
	}
	path, err := exec.LookPath(ProgramName)
	if err != nil {
		return "", fmt.Errorf("the program %s is neither beside this one nor in $PATH: %w", ProgramName, ErrUnavailable)
	}
	return path, nil
}

func runs(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0
}

// read handles the program's output until the program has ended.
func (c *Conn) read(out io.Reader) {
	defer close(c.ended)
	err := scan(out, func(r reply) error {
		if r.Event != nil {
			c.events.Add(*r.Event)
			return nil
		}
		c.mu.Lock()
		call := c.calls[r.ID]
		delete(c.calls, r.ID)
		c.mu.Unlock()
		if call != nil {
			call <- r
			return nil
		}
		if r.ID == 0 && r.Error != nil {
			return r.Error // the reason for its end
		}
		return nil // the call was cancelled
	})
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	err = c.finish(err)
	c.mu.Lock()
	c.err = err
	calls := c.calls
	c.calls = nil
	c.mu.Unlock()
	for _, call := range calls {
		close(call)
	}
	c.events.Fail(err)
}

// finish waits for the program's end, and returns the reason for it.
func (c *Conn) finish(err error) error {
	// The program may be stuck in the library.
	if kerr := ignoreDone(c.cmd.Process.Kill()); kerr != nil {
		err = errors.Join(err, kerr)
	}
	werr := c.cmd.Wait()
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("%s ended: %v", ProgramName, werr)
		if s := c.stderr.last(); s != "" {
			err = fmt.Errorf("%w: %s", err, s)
		}
	}
	if errors.Is(err, ErrClosed) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrClosed, err)
}

// call sends the program a request and waits for the answer.
func (c *Conn) call(ctx context.Context, r request) (reply, error) {
	answer := make(chan reply, 1)
	c.mu.Lock()
	if c.calls == nil {
		defer c.mu.Unlock()
		return reply{}, c.err
	}
	c.last++
	r.ID = c.last
	c.calls[r.ID] = answer
	c.mu.Unlock()
	err := c.send(ctx, r)
	if err == nil || errors.Is(err, syscall.EPIPE) {
		return c.wait(ctx, r.ID, answer) // the program's end says more than a broken pipe
	}
	c.forget(r.ID)
	return reply{}, fmt.Errorf("ask %s: %w", ProgramName, err)
}

// forget drops a call.
func (c *Conn) forget(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.calls, id)
}

// send writes a request. The program reads one after another, and none while it is stuck in the
// library, so the pipe may fill.
func (c *Conn) send(ctx context.Context, r request) error {
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode a request: %w", err)
	}
	select {
	case c.writing <- struct{}{}:
		defer func() { <-c.writing }()
	case <-ctx.Done():
		return fmt.Errorf("it reads no requests: %w", context.Cause(ctx))
	}
	// An earlier writer may have set a deadline.
	if err := c.in.SetWriteDeadline(time.Time{}); err != nil {
		return err
	}
	expired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(expired)
		_ = c.in.SetWriteDeadline(time.Unix(1, 0)) // fails where in is closed, and so does the write
	})
	n, err := c.in.Write(append(b, '\n'))
	if !stop() {
		<-expired // before the next writer sets its deadline
	}
	if err == nil {
		return nil
	}
	if n > 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		// Nothing can follow half a line in the pipe.
		err = errors.Join(err, ignoreDone(c.cmd.Process.Kill()))
	}
	if cause := context.Cause(ctx); cause != nil {
		err = fmt.Errorf("it reads no requests: %w (%w)", cause, err)
	}
	return err
}

func ignoreDone(err error) error {
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// wait waits for the answer to a call.
func (c *Conn) wait(ctx context.Context, id uint64, answer chan reply) (reply, error) {
	select {
	case r, ok := <-answer:
		if !ok {
			return reply{}, c.err
		}
		if r.Error != nil {
			return reply{}, r.Error
		}
		return r, nil
	case <-ctx.Done():
		c.forget(id)
		return reply{}, fmt.Errorf("libvirt does not answer: %w", context.Cause(ctx))
	}
}

// Domain returns a domain, given by UUID or name.
func (c *Conn) Domain(ctx context.Context, key string, v View) (Domain, error) {
	r, err := c.call(ctx, request{Op: opDomain, Key: key, View: v})
	if err != nil {
		return Domain{}, fmt.Errorf("domain %q: %w", key, err)
	}
	if r.Domain == nil {
		return Domain{}, fmt.Errorf("domain %q: %s answered without it", key, ProgramName)
	}
	return *r.Domain, nil
}

// Define creates a domain, or changes one from its next start on.
func (c *Conn) Define(ctx context.Context, xml []byte) error {
	if _, err := c.call(ctx, request{Op: opDefine, XML: string(xml)}); err != nil {
		return fmt.Errorf("define the domain: %w", err)
	}
	return nil
}

// Domains lists all domains, without their XML.
func (c *Conn) Domains(ctx context.Context) ([]Domain, error) {
	r, err := c.call(ctx, request{Op: opDomains})
	if err != nil {
		return nil, fmt.Errorf("list the domains: %w", err)
	}
	return r.Domains, nil
}

// Next waits for an event. It fails with [ErrClosed] when there will be none.
func (c *Conn) Next(ctx context.Context) (Event, error) { return c.events.Next(ctx) }

// closeLimit bounds the time in which the program disconnects from libvirt.
const closeLimit = time.Second

// Close ends the connection and the program.
func (c *Conn) Close() error {
	// The program ends at the end of its input, unless it is stuck in the library.
	err := c.in.Close()
	t := time.NewTimer(closeLimit)
	defer t.Stop()
	select {
	case <-c.ended:
	case <-t.C:
		err = errors.Join(err, ignoreDone(c.cmd.Process.Kill()))
		<-c.ended
	}
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// tail keeps the last line that the program wrote to standard error.
type tail struct {
	mu   sync.Mutex
	text string
}

const tailBytes = 512

// Write implements [io.Writer].
func (s *tail) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text += string(b)
	if over := len(s.text) - tailBytes; over > 0 {
		s.text = s.text[over:]
	}
	return len(b), nil
}

func (s *tail) last() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := strings.TrimSpace(s.text)
	return strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
}
