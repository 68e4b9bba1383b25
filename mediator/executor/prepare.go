package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"vgpud/gpu"
	"vgpud/mediator/ipc"
)

// opened is the GPU that a spare executor has opened before there was a context for it. A nil opened
// is none.
type opened struct {
	gpu    ipc.GPU
	device gpu.Device // nil once it was used
	ahead  *ahead     // nil: there is no context ahead
	sealed bool       // the process, when that was made
}

// receiveSetup receives the setup. A spare executor opens its GPU first, and makes a context ahead if
// it is told to. receiveSetup returns no message if the executor was never needed.
func (p process) receiveSetup(ctx context.Context, conn *ipc.Conn, open Opener, log *slog.Logger) (ipc.Message, *opened, error) {
	m, err := conn.Receive()
	if err != nil || m.Kind != ipc.KindPrepare {
		return m, nil, err
	}
	var q ipc.Prepare
	if err := errors.Join(m.Decode(&q), m.CloseFiles()); err != nil {
		return ipc.Message{}, nil, err
	}
	device, err := open(ctx, q.GPU)
	if err != nil {
		return ipc.Message{}, nil, fmt.Errorf("open GPU %s for a context to come: %w", q.GPU.Name, err)
	}
	o := &opened{gpu: q.GPU, device: device}
	for {
		m, err = conn.Receive()
		if err == nil && m.Kind == ipc.KindAhead {
			if err = p.makeAhead(ctx, conn, m, o, log); err == nil {
				continue
			}
		} else if err == nil {
			return m, o, nil
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return ipc.Message{}, nil, errors.Join(err, o.close())
	}
}

// opener returns an Opener that returns the GPU that was opened, if it is the right one and still
// there.
func (o *opened) opener(open Opener) Opener {
	if o == nil {
		return open
	}
	return func(ctx context.Context, g ipc.GPU) (gpu.Device, error) {
		if d := o.device; d != nil && g == o.gpu && !lost(d) {
			o.device = nil
			return d, nil
		}
		if err := o.close(); err != nil {
			return nil, err
		}
		return open(ctx, g)
	}
}

// close closes the GPU, with the context ahead, unless it is in use.
func (o *opened) close() error {
	if o == nil {
		return nil
	}
	err := o.dropAhead()
	if o.device == nil {
		return err
	}
	d := o.device
	o.device = nil
	return errors.Join(err, d.Close())
}

// lost reports whether a GPU is known to be gone.
func lost(d gpu.Device) bool {
	l, ok := d.(gpu.Losable)
	if !ok {
		return false
	}
	select {
	case <-l.Lost():
		return true
	default:
		return false
	}
}
