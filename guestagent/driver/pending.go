package driver

import (
	"context"
	"sync/atomic"
	"time"

	"vgpud/mediator/vgpu/abi"
)

// Pending is a command under way. It may be used for another command once it is
// done. Its zero value is done.
type Pending struct {
	ch   *Channel
	op   abi.Opcode
	last uint64 // the channel's commands before it; of a batch, before its last
	left uint64 // completions still to come; more than one for a batch
	busy atomic.Bool

	window abi.Window                 // given back when it is done
	host   atomic.Pointer[HostMemory] // kept until it is done
	lent   bool                       // a goroutine still reads a window of this command: see leave
	result abi.Completion
	err    error  // instead of a result
	chosen chosen // of a launch
	behind bool   // it was sent while others of its channel were under way
}

// begin makes p a batch of n commands that ends with the channel's command last.
func (p *Pending) begin(ch *Channel, op abi.Opcode, n, last uint64) {
	p.ch, p.op, p.left, p.last = ch, op, n, last
	p.result, p.err = abi.Completion{}, nil
	p.busy.Store(true)
}

// complete takes one completion; the channel's leader calls it. The first failure of
// a batch is its result.
func (p *Pending) complete(c *abi.Completion) {
	if p.result.Status == abi.StatusOK {
		p.result = *c
	}
	before := p.ch.gpuEnd
	p.ch.gpuEnd = max(before, c.End)
	if p.left--; p.left > 0 {
		return
	}
	if p.chosen.forms != nil {
		if !p.behind {
			before = 0
		}
		p.chosen.ended(&p.result, before)
		p.chosen = chosen{form: p.chosen.form}
	}
	if p.lent {
		p.ch.keep.Lock()
		defer p.ch.keep.Unlock()
	}
	if p.window.Size != 0 {
		p.ch.dev.staging.give(p.window)
		p.window = abi.Window{}
	}
	p.letGo()
	p.busy.Store(false)
}

// letGo lets go of the host memory that the command names, once.
func (p *Pending) letGo() {
	if p.host.Load() == nil {
		return // as nearly always
	}
	if m := p.host.Swap(nil); m != nil {
		m.drop()
	}
}

// Done reports whether the command has completed, as far as completions were read
// lately; it does not read them.
func (p *Pending) Done() bool { return !p.busy.Load() }

// Wait waits until the command has completed and returns its error: an [*Error], or
// why its channel or ctx ended. A command whose ctx ended goes on and can be waited
// for again.
func (p *Pending) Wait(ctx context.Context) error {
	if p.busy.Load() {
		if err := p.ch.await(ctx, goal{p: p}); err != nil {
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

// Times returns when the GPU began and ended the command, on its own clock; zero
// for commands that do nothing on the GPU, and before it is done.
func (p *Pending) Times() (start, end time.Duration) {
	if p.busy.Load() {
		return 0, 0
	}
	return time.Duration(p.result.Start), time.Duration(p.result.End)
}

// Form returns the form in which a launch went that has ended; 0 for the original.
func (p *Pending) Form() abi.PreemptForm {
	if p.busy.Load() {
		return 0
	}
	return p.chosen.form
}

// Evictions returns how often a launch that has ended was taken off the GPU for
// others meanwhile.
func (p *Pending) Evictions() uint64 {
	if p.busy.Load() || p.chosen.form == 0 {
		return 0
	}
	return p.result.Value[0]
}

// value returns the command's answers.
func (p *Pending) value() [3]uint64 { return p.result.Value }

// errorOf makes an error of a completion. For a fault it asks the host, once a
// context, what it was.
func (ch *Channel) errorOf(ctx context.Context, c *abi.Completion) error {
	e := &Error{Op: c.Op, Status: c.Status}
	if c.Status.Poisons() && c.Op != abi.OpLastFault {
		e.Detail = ch.ctx.Fault(ctx)
	}
	return e
}

// faultBytes bounds a fault's text.
const faultBytes = 4096

// faultPatience is how long to wait for a fault's text: the host may be unable to
// give it.
const faultPatience = time.Second

// Fault returns the host's text about the fault that poisoned the context: kernel,
// block, thread, line and address. It is empty without one, or when the host cannot
// tell any more.
func (c *Context) Fault(ctx context.Context) string {
	c.mu.Lock()
	text, own := c.fault, c.own
	c.mu.Unlock()
	if text != "" || own == nil {
		return text
	}
	ctx, cancel := context.WithTimeout(ctx, faultPatience)
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
