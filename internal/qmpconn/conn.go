package qmpconn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// maxMessage bounds the bytes of one message of QEMU's. The longest, of a guest with many devices,
// have some 100 KiB, and the schema of QMP has 300.
const maxMessage = 4 << 20

// ErrEnded means that the connection has ended: QEMU has exited, or the connection was closed.
var ErrEnded = errors.New("QEMU's monitor has ended")

// Conn is a connection to a monitor that takes commands. Its methods may be called from any
// goroutine. Close must be called in the end.
type Conn struct {
	conn    net.Conn
	event   func(Event)
	greeted chan struct{} // closed when QEMU has greeted
	done    chan struct{} // closed when nothing is read any more
	err     error         // why; set before done is closed
	close   func() error  // closes conn once

	sending sync.Mutex // held while a command is written
	senders sync.WaitGroup

	mu      sync.Mutex
	closed  bool             // nothing is sent any more
	pending []chan<- message // of the commands without answer, in their order
}

// New makes a client of a monitor that has just been connected to; conn is the client's from then
// on, also after an error. It returns when QEMU, which greets after it has made its devices, takes
// commands. event is called for each event, in order, by one goroutine, and must not block; nil
// ignores events.
func New(ctx context.Context, conn net.Conn, event func(Event)) (*Conn, error) {
	c := &Conn{
		conn: conn, event: event, close: sync.OnceValue(conn.Close),
		greeted: make(chan struct{}), done: make(chan struct{}),
	}
	go c.read()
	var err error
	select {
	case <-c.greeted:
		err = c.Run(ctx, "qmp_capabilities", nil, nil)
	case <-c.done:
		err = c.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Done returns a channel that is closed after the last event, when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Close ends the connection and the commands that wait. Closing it again does nothing.
func (c *Conn) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	err := c.close()
	<-c.done
	c.senders.Wait()
	return err
}

// Run runs a command. args may be nil, else it is encoded as JSON; result may be nil, else the
// answer is decoded into it. It returns an [*Error] if QEMU refuses, and [ErrEnded] if the
// connection ends. If ctx ends first, the command may still be carried out, and later commands wait
// for that.
func (c *Conn) Run(ctx context.Context, command string, args, result any) error {
	request, err := Encode(command, args)
	if err != nil {
		return err
	}
	answer := make(chan message, 1)
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return ErrEnded
	}
	c.senders.Go(func() { c.send(append(request, '\n'), answer) })
	c.mu.Unlock()
	var m message
	select {
	case m = <-answer:
	case <-c.done:
		select {
		case m = <-answer: // the last one
		default:
			return c.err
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return m.decode(result)
}

// send writes a command. A command that is written in part spoils the connection.
func (c *Conn) send(request []byte, answer chan<- message) {
	c.sending.Lock()
	defer c.sending.Unlock()
	c.mu.Lock()
	c.pending = append(c.pending, answer)
	c.mu.Unlock()
	if _, err := c.conn.Write(request); err != nil {
		_ = c.close() // Close returns the error
	}
}

// read reads messages until the connection ends.
func (c *Conn) read() {
	defer close(c.done)
	bounded := &io.LimitedReader{R: c.conn}
	in := json.NewDecoder(bounded)
	greeted := false
	for {
		bounded.N = maxMessage
		var m message
		if err := in.Decode(&m); err != nil {
			if bounded.N <= 0 {
				err = fmt.Errorf("a message has more than %d bytes", maxMessage)
			}
			c.err = fmt.Errorf("%w: %w", ErrEnded, err)
			_ = c.close() // Close returns the error
			return
		}
		switch {
		case m.Event.Event != "":
			if c.event != nil {
				c.event(m.Event)
			}
		case m.QMP != nil && !greeted:
			greeted = true
			close(c.greeted)
		case m.Return != nil || m.Error != nil:
			c.answered(m)
		}
	}
}

// answered passes an answer on to the oldest command. An answer to no command is ignored.
func (c *Conn) answered(m message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pending) == 0 {
		return
	}
	c.pending[0] <- m
	c.pending = c.pending[1:]
}
