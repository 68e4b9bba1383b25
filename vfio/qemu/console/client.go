package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
)

// ErrNotReady means that the guest's init has not sent Hello yet, or that its boot has ended since.
var ErrNotReady = errors.New("the guest is not ready")

// Client is the host's end of the line. Its methods may be called from several goroutines at once.
// mu guards the fields below it.
type Client struct {
	line io.ReadWriteCloser
	out  sender
	done chan struct{} // closed when the line has ended

	mu       sync.Mutex
	ready    chan struct{} // closed while the guest is booted
	isReady  bool
	boot     uint32
	expected uint32
	text     string
	programs map[uint32]*Process
	last     uint32 // the ID of the newest program
	err      error  // the reason why the line ended
}

// NewClient returns a client for the guest at the other end of line, which may still have to boot.
// noise, if not nil, is called with bytes on the line that are not messages. Close must be called.
func NewClient(line io.ReadWriteCloser, noise func([]byte)) *Client {
	c := &Client{
		line:     line,
		out:      sender{w: line},
		done:     make(chan struct{}),
		ready:    make(chan struct{}),
		programs: map[uint32]*Process{},
	}
	in := NewReader(line)
	in.Noise = noise
	go c.read(in)
	return c
}

// Close closes the line. Running programs end with an error.
func (c *Client) Close() error {
	err := c.line.Close()
	<-c.done
	return err
}

// Done returns a channel that is closed when the line has ended.
func (c *Client) Done() <-chan struct{} { return c.done }

// Ready waits for the Hello of the guest's init, and returns its text.
func (c *Client) Ready(ctx context.Context) (string, error) {
	for {
		c.mu.Lock()
		ready, is, text := c.ready, c.isReady, c.text
		c.mu.Unlock()
		if is {
			return text, nil
		}
		select {
		case <-ready:
		case <-c.done:
			return "", c.lineError()
		case <-ctx.Done():
			return "", fmt.Errorf("%w: %w", ErrNotReady, context.Cause(ctx))
		}
	}
}

// EndBoot tells the client that the guest's boot is over. The caller that resets the guest knows
// this before the next Hello. Running programs end with err.
func (c *Client) EndBoot(err error) {
	c.mu.Lock()
	if c.isReady {
		c.isReady = false
		c.ready = make(chan struct{})
	}
	c.mu.Unlock()
	c.failAll(err)
}

// Power asks the guest to end itself: [PowerOff], [Reboot] or [Panic]. The VMM reports when it has.
func (c *Client) Power(action string) error {
	return c.send(Message{Kind: Power, Text: action})
}

// send sends a message if the guest is booted.
func (c *Client) send(m Message) error {
	c.mu.Lock()
	is := c.isReady
	c.mu.Unlock()
	if !is {
		return ErrNotReady
	}
	return c.out.send(m)
}

// lineError returns the reason why the line ended. It must only be called after done is closed.
func (c *Client) lineError() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Errorf("the guest's console has ended: %w", c.err)
}

func (c *Client) read(in *Reader) {
	defer close(c.done)
	for {
		m, err := in.Next()
		if err != nil {
			c.mu.Lock()
			c.err, c.isReady = err, false
			c.mu.Unlock()
			c.failAll(c.lineError())
			return
		}
		c.handle(m)
	}
}

func (c *Client) handle(m Message) {
	if m.Kind == Hello {
		c.hello(m)
		return
	}
	c.mu.Lock()
	if !c.isReady || m.Boot != c.boot {
		c.mu.Unlock()
		return
	}
	lost := m.Number != c.expected
	gap := fmt.Errorf("messages %d to %d of the guest were lost", c.expected, m.Number-1)
	c.expected = m.Number + 1
	p := c.programs[m.Program]
	c.mu.Unlock()
	if lost {
		c.failAll(gap)
		return
	}
	if m.Kind == Refused {
		err := fmt.Errorf("the guest refuses: %s", m.Text)
		if p != nil {
			p.finish(err)
		} else {
			c.failAll(err)
		}
		return
	}
	if p != nil {
		p.handle(m)
	}
}

// hello begins a boot.
func (c *Client) hello(m Message) {
	c.EndBoot(errors.New("the guest has restarted"))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.boot, c.expected, c.text, c.isReady = m.Boot, m.Number+1, m.Text, true
	c.out.begin(m.Boot)
	close(c.ready)
}

// failAll ends every program with err.
func (c *Client) failAll(err error) {
	c.mu.Lock()
	all := make([]*Process, 0, len(c.programs))
	for _, p := range c.programs {
		all = append(all, p)
	}
	c.mu.Unlock()
	for _, p := range all {
		p.finish(err)
	}
}
