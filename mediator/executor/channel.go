package executor

import (
	"errors"
	"fmt"
	"time"

	"vgpud/gpu"
	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu/abi"
)

const (
	// fetchEntries is how many entries are copied out of a ring at a time: at
	// least the longest command.
	fetchEntries = 4 * (abi.MaxMore + 1)
	// flightLimit is how many commands of a channel may be unfinished. The GPU
	// remembers the outcomes of as many.
	flightLimit = gpu.OutcomesKept
	// turnCommands is how many commands a channel may carry out before the
	// context's other channels have their turn.
	turnCommands = 4096

	// aheadLaunches is how many launches of a guest may be on the GPU whatever they
	// are, and aheadWork how much predicted work where that is more launches: enough
	// to keep the GPU fed, and little enough that a suspension is soon felt.
	shallowLaunches = 1
	shallowWork     = time.Millisecond
	// behindLaunches is how many preemptible ones of a channel may be: they leave
	// when they are told to.
	successorLaunches = 2
	// aheadMost bounds the number of short launches.
	shallowMaxShort = 16
)

// Ahead is how much of a context may be on the GPU, while launches need no turn of
// their own. The zero value is [ShallowAhead].
type FetchLimit struct {
	// Launches may be there whatever they are; Most where they are expected to take
	// no longer than Work in all.
	Launches, MaxShort int
	Work               time.Duration
}

var (
	// ShallowAhead is for GPUs where a suspension can't take back what is there. It is
	// for all of a guest's contexts together: see admission.
	ShallowFetchLimit = FetchLimit{Launches: shallowLaunches, MaxShort: shallowMaxShort, Work: shallowWork}
	// DeepAhead is for those where the daemon takes a suspended guest's channels off
	// the hardware, whatever is in them: enough that the GPU need not wait for an
	// executor that is late, and that short kernels fill a time slice. Of those that
	// come while a context has its turn, NVIDIA's GPUs run none in that turn.
	DeepFetchLimit = FetchLimit{Launches: 16, MaxShort: flightLimit - 4, Work: 8 * time.Millisecond}
)

// channel serves one channel of the context.
type channel struct {
	x          *Executor
	index      int
	generation uint32
	vector     int
	gpu        gpu.Channel
	prompt     gpu.Prompt // the same; nil: it isn't

	sub  *abi.SubmissionReader
	com  *abi.CompletionWriter
	seq  uint64 // commands carried out or begun
	dead bool   // the guest broke a rule of the rings
	// closing is set when the guest has closed the channel.
	closing bool

	// fetched holds entries copied out of the ring; those from next on are not
	// yet carried out.
	fetched []abi.Entry
	next    int
	held    int

	current command // what begin is at

	// flight holds the commands whose completion is not written, oldest first,
	// as a ring of records.
	flight [flightLimit]pending
	first  uint64
	after  uint64

	// owed are launches that were answered and are still to be accounted.
	deferred []deferredAccount

	waiter waiter
	onGPU  ongoing

	// job is the launch that what is behind it waits for; nil: none. second is one
	// that was put on the GPU behind it all the same. jobs are both, or were, kept
	// for what they have allocated.
	job, second *job
	jobs        [2]*job
	// beside is a second channel on the GPU, once it is needed: for a launch that
	// goes beside the first.
	corun service
}

// pending is a command that is carried out or being so, and not yet answered.
type pending struct {
	fence    gpu.Fence // 0: nothing to wait for
	zeroed   gpu.Fence // of an allocation's zeroes; 0: they are not waited for
	event    *event    // reached with this command
	record   int       // which recording of the event this is
	fn       *function // a launch
	job      *job      // a launch that answers by itself
	estimate estimate  // of a launch
	// fill is how long a fill was expected to take, 0 of other commands, and brief
	// whether it fitted by that.
	fill   time.Duration
	brief  bool
	quiet  bool
	done   bool   // finish was called
	timed  bool   // a command of the GPU's, with a start and an end
	copied uint64 // bytes
	com    abi.Completion
}

func newChannel(x *Executor, c ipc.Channel) (*channel, error) {
	page, err := slice(x.o.Shared, c.Words, abi.PageSize)
	if err != nil {
		return nil, err
	}
	subRing, err := slice(x.o.Shared, c.SubmissionOffset, uint64(c.SubmissionCount)*abi.EntrySize)
	if err != nil {
		return nil, err
	}
	comRing, err := slice(x.o.Shared, c.CompletionOffset, uint64(c.CompletionCount)*abi.EntrySize)
	if err != nil {
		return nil, err
	}
	ch := &channel{x: x, index: c.Index, generation: c.Generation, vector: c.Vector, fetched: make([]abi.Entry, fetchEntries)}
	if ch.sub, err = abi.NewSubmissionReader(page, subRing); err != nil {
		return nil, err
	}
	if ch.com, err = abi.NewCompletionWriter(page, comRing); err != nil {
		return nil, err
	}
	if ch.gpu, err = x.o.Context.NewChannel(); err != nil {
		return nil, err
	}
	ch.prompt, _ = ch.gpu.(gpu.Prompt) // nil where it is not
	ch.waiter.start(ch.gpu, x.slot)
	return ch, nil
}

// slice is a part of shared memory that vm has named; it is checked again,
// because a mistake there must not become one here.
func slice(shared []byte, offset, size uint64) ([]byte, error) {
	if size > uint64(len(shared)) || offset > uint64(len(shared))-size {
		return nil, fmt.Errorf("%d bytes at %#x lie outside the shared memory of %d", size, offset, len(shared))
	}
	return shared[offset : offset+size : offset+size], nil
}

// shut stops fetching and answering. What is on the GPU ends there, and is
// accounted when it does: see drained.
func (ch *channel) shut() {
	ch.closing = true
	ch.next, ch.held = 0, 0
}

// drained is whether nothing of a channel that was shut is on the GPU any more.
func (ch *channel) drained() bool {
	ch.retire()
	ch.accountDeferred()
	return ch.first == ch.after
}

// close lets go of the channel at once.
func (ch *channel) close() error {
	ch.waiter.stop()
	return errors.Join(ch.gpu.Close(), ch.corun.close())
}

// giveBack gives the guest back the GPU memory that its launches here needed.
// Nothing of the channel is on the GPU.
func (ch *channel) freeMemory() error {
	var errs []error
	for _, j := range ch.jobs {
		if j != nil {
			errs = append(errs, ch.x.freeMemory(&j.memory))
		}
	}
	return errors.Join(errs...)
}

// backlog is whether the guest has work here that is not on the GPU.
func (ch *channel) backlog() bool {
	if ch.next < ch.held || ch.job != nil && ch.job.phase != running || ch.second != nil && ch.second.phase != running {
		return true
	}
	n, err := ch.sub.Pending()
	return err == nil && n > 0 && !ch.dead
}

// busy is whether commands are unfinished, or unanswered.
func (ch *channel) busy() bool { return ch.first != ch.after }

// working is whether any is unfinished. What is not answered since the guest makes no
// room for answers is no work.
func (ch *channel) working() bool { return ch.busy() && !ch.flight[(ch.after-1)%flightLimit].done }

// retire takes note of commands that have ended, and answers them in order.
func (ch *channel) retire() bool {
	if ch.first == ch.after {
		return false
	}
	did := ch.finishReached()
	for ch.first != ch.after {
		p := &ch.flight[ch.first%flightLimit]
		if !p.done {
			break
		}
		// A quiet command that fails is answered like any other.
		if !ch.dead && !ch.closing && (!p.quiet || p.com.Status != abi.StatusOK) {
			slot, err := ch.slot()
			if err != nil {
				continue // the channel has just died, and answers no more
			}
			if slot == nil {
				break // the guest must make room first
			}
			p.com.Encode(slot)
		}
		*p = pending{}
		ch.first++
		did = true
	}
	return did
}

// finishReached finishes all commands whose fence is reached, whether or not
// there is room to answer them: the launches among them no longer count as on
// the GPU.
func (ch *channel) finishReached() bool {
	did := false
	done := ch.gpu.Done()
	gone := ch.x.poison != nil && ch.x.o.Context.Fault() != nil
	for i := ch.first; i != ch.after; i++ {
		p := &ch.flight[i%flightLimit]
		if p.job != nil {
			did = p.job.pursue() || did
			if !p.done {
				if ch.second != nil {
					did = ch.second.pursue() || did
				}
				break
			}
			continue
		}
		if !ch.x.zeroes.reached(p.zeroed) && !gone {
			continue // its answer alone waits
		}
		// A context that is gone reaches no more fences but those of copies, which
		// must have stopped before the guest uses their windows again.
		if p.fence > done && (!gone || p.copied > 0) {
			break
		}
		if !p.done {
			ch.finish(p, done)
			did = true
		}
	}
	return did
}

// advance carries out commands until one has to wait.
func (ch *channel) advance() bool {
	before := ch.seq
	did := false
	for range turnCommands {
		if ch.dead || !ch.refill() {
			break
		}
		if ch.after-ch.first == flightLimit {
			break
		}
		e := ch.fetched[ch.next:ch.held]
		if !ch.answerNop(&e[0]) && !ch.begin(e) {
			break
		}
		ch.next += abi.Span(&e[0])
		did = true
		if ch.after-ch.first == flightLimit {
			// What ended at once makes room at once. The GPU forgets launches that were
			// answered and not accounted for when as many commands again have been.
			ch.retire()
			ch.publish()
			ch.accountDeferred()
		}
	}
	if did {
		ch.x.slot.AddCommands(ch.seq - before)
		ch.retire()
	}
	return did
}

// refill makes sure that an entry is at hand.
func (ch *channel) refill() bool {
	if ch.next < ch.held {
		return true
	}
	n, err := ch.sub.Fetch(ch.fetched)
	if err != nil {
		ch.die(err)
		return false
	}
	ch.next, ch.held = 0, n
	return n > 0
}

// die ends a channel whose guest broke a rule of the rings.
func (ch *channel) die(err error) {
	if ch.dead {
		return
	}
	ch.dead = true
	code := abi.ErrorInternal
	if c, ok := errors.AsType[abi.ErrorCode](err); ok {
		code = c
	}
	ch.x.slot.AddError()
	ch.x.o.Log.Debug("channel ended", "channel", ch.index, "err", err)
	ch.x.report(func() {
		if f := ch.x.o.ChannelFailed; f != nil {
			f(ipc.ChannelFailure{Index: ch.index, Generation: ch.generation, Code: uint32(code)})
		}
	})
}

// answerNop answers a no-op at once where no command before it is unanswered.
// It is a shorter way to what begin and retire do, for guests that use no-ops to
// measure or to keep a ring warm.
func (ch *channel) answerNop(e *abi.Entry) bool {
	if ch.first != ch.after || abi.Opcode(e[0])|abi.Opcode(e[1])<<8 != abi.OpNop {
		return false
	}
	h, err := abi.DecodeHeader(e)
	if err != nil || h.Flags != 0 {
		return false
	}
	if _, err := abi.DecodeEmpty(e); err != nil {
		return false
	}
	slot, err := ch.slot()
	if err != nil || slot == nil {
		return false
	}
	ch.seq++
	com := abi.Completion{Op: abi.OpNop, Cookie: h.Cookie, Seq: ch.seq}
	com.Encode(slot)
	return true
}

// begin carries out the command that starts with e[0], or begins it. It
// reports false where the command has to wait.
func (ch *channel) begin(e []abi.Entry) bool {
	h, err := abi.DecodeHeader(&e[0])
	c := &ch.current
	*c = command{ch: ch, h: h, entry: &e[0], more: e[1:abi.Span(&e[0])]}
	p := &ch.flight[ch.after%flightLimit]
	*p = pending{quiet: h.Flags&abi.FlagQuiet != 0}
	p.com.Op, p.com.Cookie = h.Op, h.Cookie
	if err == nil {
		how := &commands[h.Op]
		switch {
		case how.run == nil || h.Op.Command().Feature&^Features != 0:
			err = abi.StatusNotSupported
		case ch.x.poison != nil && !how.poisoned:
			err = ch.x.status
		case ch.job != nil && how.ordered && ch.job.keeps(h.Op), how.blocks && ch.x.parked != nil:
			return false
		case how.drain && ch.busyOnGPU(), how.wait != nil && how.wait(c):
			return false
		default:
			if err = how.run(c, p); err == errWaits {
				return false
			}
		}
	}
	if err != nil {
		p.fence, p.com.Status = 0, statusOf(err)
		if p.com.Status.Poisons() && ch.x.poison == nil {
			ch.x.fail(err)
		}
	}
	ch.seq++
	p.com.Seq = ch.seq
	ch.after++
	return true
}

// unreached is whether an earlier command of the channel is on the GPU.
func (ch *channel) busyOnGPU() bool {
	if ch.job != nil {
		return true
	}
	done := ch.gpu.Done()
	for i := ch.first; i != ch.after; i++ {
		if ch.flight[i%flightLimit].fence > done {
			return true
		}
	}
	return false
}

// newest is the fence of the newest command on the GPU, 0 for none.
func (ch *channel) newest() gpu.Fence {
	for i := ch.after; i != ch.first; i-- {
		if f := ch.flight[(i-1)%flightLimit].fence; f != 0 {
			return f
		}
	}
	return 0
}

// oldest is the fence that the channel waits for, 0 for none.
func (ch *channel) oldest() gpu.Fence {
	for i := ch.first; i != ch.after; i++ {
		if f := ch.flight[i%flightLimit].fence; f != 0 {
			return f
		}
	}
	return 0
}

// arm asks the guest for a doorbell and reports whether there is nothing to do
// until then. held is whether commands are not fetched anyway.
func (ch *channel) arm(held bool) bool {
	if ch.dead {
		return true
	}
	if ch.busy() && ch.flight[ch.first%flightLimit].done && !ch.com.ArmRoom() {
		return false // completions wait for room that has come
	}
	if ch.next < ch.held {
		return true // fetched, and waiting for the GPU or the daemon
	}
	return ch.sub.Arm() || held || ch.after-ch.first == flightLimit
}
