package driver

import (
	"context"
	"sync/atomic"
	"time"

	"vgpud/mediator/vgpu/abi"
)

// Pending is a command under way. It may be used for another command when it is done. Its zero
// value is done.
type Pending struct {
	ch        *Channel
	op        abi.Opcode
	last      uint64 // index of the command in its channel; of a batch, of its last command
	remaining uint64 // completions yet to come; more than one for a batch
	busy      atomic.Bool

	window      abi.Window                 // released when it is done
	host        atomic.Pointer[HostMemory] // released when it is done
	windowInUse bool                       // a goroutine still reads a window of this command, see returnWindow
	result      abi.Completion
	err         error      // instead of a result
	form        launchForm // of a launch
	event       *Event     // that it records, and which recording of it this is
	record      int
	queued      bool // it was sent while others of its channel were under way
}

// begin makes p a batch of n commands of which last is the index of the last.
func (p *Pending) begin(ch *Channel, op abi.Opcode, n, last uint64) {
	p.ch, p.op, p.remaining, p.last = ch, op, n, last
	p.result, p.err = abi.Completion{}, nil
	p.busy.Store(true)
}

// complete records one completion; the channel's leader calls it. The result of a batch is its
// first failure.
func (p *Pending) complete(c *abi.Completion) {
	if p.result.Status == abi.StatusOK {
		p.result = *c
	}
	before := p.ch.lastEnd
	p.ch.lastEnd = max(before, c.End)
	if p.remaining--; p.remaining > 0 {
		return
	}
	if p.form.forms != nil {
		if !p.queued {
			before = 0
		}
		p.form.finish(&p.result, before)
		p.form = launchForm{form: p.form.form}
	}
	if p.event != nil {
		p.event.recorded(p.record, &p.result)
		p.event = nil
	}
	if p.windowInUse {
		p.ch.windowsMu.Lock()
		defer p.ch.windowsMu.Unlock()
	}
	if p.window.Size != 0 {
		p.ch.dev.staging.release(p.window)
		p.window = abi.Window{}
	}
	p.releaseHost()
	p.busy.Store(false)
}

// releaseHost releases the host memory that the command uses, once.
func (p *Pending) releaseHost() {
	if p.host.Load() == nil {
		return // the usual case
	}
	if m := p.host.Swap(nil); m != nil {
		m.release()
	}
}

// Done reports whether the command has completed, as far as completions have been read; it does not
// read them.
func (p *Pending) Done() bool { return !p.busy.Load() }

// Wait waits until the command has completed and returns its error: an [*Error], or the reason for
// which its channel or ctx ended. A command whose ctx ended continues and can be waited for again.
func (p *Pending) Wait(ctx context.Context) error {
	if p.busy.Load() {
		if err := p.ch.await(ctx, target{command: p}); err != nil {
			return err
		}
	}
	switch {
	case p.err != nil:
		return p.err
	case p.result.Status != abi.StatusOK:
		return p.ch.errorOf(ctx, &p.result)
	}
	return nil
}

// Times returns when the GPU began and ended the command, on the GPU's clock. They are zero before
// the command is done and for commands that do nothing on the GPU.
func (p *Pending) Times() (start, end time.Duration) {
	if p.busy.Load() {
		return 0, 0
	}
	return time.Duration(p.result.Start), time.Duration(p.result.End)
}

// Form returns the form of a completed launch; 0 means the original.
func (p *Pending) Form() abi.PreemptForm {
	if p.busy.Load() {
		return 0
	}
	return p.form.form
}

// Evictions returns how often a completed launch was evicted.
func (p *Pending) Evictions() uint64 {
	if p.busy.Load() || p.form.form == 0 {
		return 0
	}
	return p.result.Value[0]
}

// value returns the command's results.
func (p *Pending) value() [3]uint64 { return p.result.Value }

// errorOf returns a completion's error. For a fault it asks the host, once a context, for its text.
func (ch *Channel) errorOf(ctx context.Context, c *abi.Completion) error {
	e := &Error{Op: c.Op, Status: c.Status}
	if c.Status.Poisons() && c.Op != abi.OpLastFault {
		e.Detail = ch.ctx.Fault(ctx)
	}
	return e
}

// faultBytes bounds a fault's text.
const faultBytes = 4096

// faultTimeout bounds the wait for a fault's text, which the host may be unable to give.
const faultTimeout = time.Second

// Fault returns the host's text about the fault that poisoned the context: kernel, block, thread,
// line and address. It is empty if there was none or the host no longer knows it.
func (c *Context) Fault(ctx context.Context) string {
	c.mu.Lock()
	text, own := c.fault, c.own
	c.mu.Unlock()
	if text != "" || own == nil {
		return text
	}
	ctx, cancel := context.WithTimeout(ctx, faultTimeout)
	defer cancel()
	text, err := own.text(ctx, abi.OpLastFault, faultBytes)
	if err != nil {
		return ""
	}
	c.mu.Lock()
	c.fault = text
	c.mu.Unlock()
	return text
}
