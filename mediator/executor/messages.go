package executor

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"vgpud/gpu"
	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu/abi"
)

// listen handles vm's messages until the connection ends.
func (x *Executor) listen(conn *ipc.Conn) error {
	for {
		m, err := conn.Receive()
		if err != nil {
			return err
		}
		if err := x.handle(conn, m); err != nil {
			return errors.Join(err, m.CloseFiles())
		}
	}
}

// handle handles one message. An error is one of the protocol, and leaves the message's files open.
func (x *Executor) handle(conn *ipc.Conn, m ipc.Message) error {
	switch m.Kind {
	case ipc.KindOpen, ipc.KindShut:
		var c ipc.Channel
		if err := m.Decode(&c); err != nil {
			return err
		}
		done := func(err error) { x.replyTo(conn, m, ipc.Message{Kind: m.Kind}, err) }
		if m.Kind == ipc.KindOpen {
			x.Open(c, done)
		} else {
			x.Shut(c.Index, done)
		}
		return nil
	case ipc.KindGrant:
		var g ipc.Grant
		if err := m.Decode(&g); err != nil {
			return err
		}
		x.Granted(g)
		return nil
	case ipc.KindSave:
		return x.handleSave(conn, m)
	case ipc.KindVector:
		var v ipc.Vector
		if err := m.Decode(&v); err != nil {
			return err
		}
		if len(m.Files) == 0 {
			x.SetVector(v.Index, nil)
			return nil
		}
		return x.setVectors([]int{v.Index}, m.Files)
	case ipc.KindVectors:
		var v ipc.Vectors
		if err := m.Decode(&v); err != nil {
			return err
		}
		return x.setVectors(v.Indexes, m.Files)
	default:
		return fmt.Errorf("unknown message %q", m.Kind)
	}
}

// handleSave has the context saved to the file that comes with the message.
func (x *Executor) handleSave(conn *ipc.Conn, m ipc.Message) error {
	if len(m.Files) != 1 {
		return fmt.Errorf("%s with %d files, want 1", m.Kind, len(m.Files))
	}
	x.Save(m.Files[0], func(s ipc.Saved, err error) {
		reply, merr := ipc.NewMessage(m.Kind, s)
		x.replyTo(conn, m, reply, errors.Join(err, m.CloseFiles(), merr))
	})
	return nil
}

// setVectors has completions raise interrupts by files, each an eventfd of the vector at its index.
func (x *Executor) setVectors(indexes []int, files []*os.File) error {
	if len(indexes) != len(files) {
		return fmt.Errorf("%d interrupt vectors with %d files", len(indexes), len(files))
	}
	for i, f := range files {
		e, err := NewEventfd(f)
		if err != nil {
			return err
		}
		x.SetVector(indexes[i], e)
	}
	return nil
}

// replyTo answers a message of vm's with reply, or with an error alone.
func (x *Executor) replyTo(conn *ipc.Conn, m, reply ipc.Message, err error) {
	if err != nil {
		reply = ipc.Message{Kind: m.Kind, Error: err.Error()}
	}
	reply.ID = m.ID
	if err := conn.Send(reply); err != nil {
		x.o.Log.Warn("answer vm", "kind", m.Kind, "err", err)
	}
}

// notReady tells vm that there will be no context, and of what kind the reason is.
func notReady(conn *ipc.Conn, reason error) error {
	code := abi.ErrorExecutorStart
	switch {
	case errors.Is(reason, gpu.ErrLost):
		code = abi.ErrorDeviceLost
	case errors.Is(reason, gpu.ErrOutOfMemory):
		code = abi.ErrorLimit
	}
	m, err := ipc.NewMessage(ipc.KindReady, ipc.Fault{Code: uint32(code), Text: guestText(reason)})
	if err != nil {
		return err
	}
	m.Error = reason.Error()
	return conn.Send(m)
}

// handOver sends vm, and so the daemon, the context's handles, if it has any.
func handOver(conn *ipc.Conn, c gpu.Context, slot int) (err error) {
	handled, ok := c.(gpu.Handled)
	if !ok {
		return nil
	}
	h, err := handled.Handles()
	if err != nil {
		return err
	}
	defer func() {
		for _, f := range h.Files {
			err = errors.Join(err, f.Close())
		}
	}()
	m, err := ipc.NewMessage(ipc.KindHandles, ipc.Handles{Slot: slot, Names: h.Names}, h.Files...)
	if err != nil {
		return err
	}
	return conn.Send(m)
}

// report tells vm that the context or a channel has ended.
func report(conn *ipc.Conn, log *slog.Logger, kind ipc.Kind, body any) {
	m, err := ipc.NewMessage(kind, body)
	if err == nil {
		err = conn.Send(m)
	}
	if err != nil {
		log.Warn("report to vm", "kind", kind, "err", err)
	}
}

// faultReport returns a function that tells vm, once, what ended the context.
func faultReport(conn *ipc.Conn, log *slog.Logger) func(ipc.Fault) {
	var once sync.Once
	return func(f ipc.Fault) { once.Do(func() { report(conn, log, ipc.KindFault, f) }) }
}

// growOf returns the function that asks vm for more memory, or nil if the context can't get more.
func growOf(conn *ipc.Conn, s *ipc.Setup, log *slog.Logger) func(bytes uint64) {
	if s.Grant == 0 || !s.Grows {
		return nil
	}
	return func(bytes uint64) { report(conn, log, ipc.KindGrow, ipc.Grow{Slot: s.Slot, Memory: bytes}) }
}

// rescuedOf returns the function that sends vm a context that outlives its GPU, or nil if vm does not
// take it.
func rescuedOf(conn *ipc.Conn, s *ipc.Setup) func(*os.File, ipc.Saved) error {
	if s.Grant == 0 || !s.Grows {
		return nil
	}
	return func(f *os.File, saved ipc.Saved) error {
		m, err := ipc.NewMessage(ipc.KindSave, saved, f)
		if err != nil {
			return err
		}
		return conn.Send(m)
	}
}
