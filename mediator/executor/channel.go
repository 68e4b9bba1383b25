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
	// fetchEntries is how many entries are copied out of a ring at a time, at least the longest
	// command.
	fetchEntries = 4 * (abi.MaxMore + 1)
	// flightLimit is how many commands of a channel may be unfinished. The GPU keeps the outcomes
	// of as many.
	flightLimit = gpu.OutcomesKept
	// turnCommands is how many commands a channel may carry out before the context's other channels
	// have their turn.
	turnCommands = 4096

	// shallowLaunches is how many launches of a guest may be on the GPU whatever they are, and
	// shallowWork how much predicted work of more launches: enough to keep the GPU busy, and little
	// enough that a suspension takes effect soon.
	shallowLaunches = 1
	shallowWork     = time.Millisecond
	// successorLaunches is how many preemptible launches of a channel may be there: they leave when
	// told.
	successorLaunches = 2
	// shallowMaxShort bounds the number of short launches.
	shallowMaxShort = 16
)

// FetchLimit is how much of a context may be on the GPU while launches need no turn of their own.
// The zero value is [ShallowFetchLimit].
type FetchLimit struct {
	// Launches may be there whatever they are, and MaxShort if they are expected to take at most
	// Work together.
	Launches, MaxShort int
	Work               time.Duration
}

var (
	// ShallowFetchLimit is for GPUs where a suspension can't take back what is there. It holds for
	// all of a guest's contexts together: see admission.
	ShallowFetchLimit = FetchLimit{Launches: shallowLaunches, MaxShort: shallowMaxShort, Work: shallowWork}
	// DeepFetchLimit is for GPUs where the daemon takes a suspended guest's channels off the
	// hardware, whatever is in them. It is enough that the GPU need not wait for an executor that
	// is late, and that short kernels fill a time slice: NVIDIA's GPUs run launches that come while
	// a context has its slice only in the next.
	DeepFetchLimit = FetchLimit{Launches: 16, MaxShort: flightLimit - 4, Work: 8 * time.Millisecond}
)

// channel serves one channel of the context.
type channel struct {
	x          *Executor
	place      ipc.Channel // as it was opened
	index      int
	generation uint32
	vector     int
	gpu        gpu.Channel
	prompt     gpu.Prompt // the same channel, or nil
	train      gpu.Train  // likewise
	yields     bool       // the command just begun ends the channel's turn: see endTurn

	sub  *abi.SubmissionReader
	com  *abi.CompletionWriter
	seq  uint64 // commands carried out or begun
	dead bool   // the guest broke a rule of the rings
	// closing is set when the guest has closed the channel.
	closing bool

	// fetched holds entries copied out of the ring. Those from next up to held are not yet carried
	// out.
	fetched []abi.Entry
	next    int
	held    int

	current command // that begin carries out

	// flight is a ring of the commands whose completion is not written, from first up to after.
	flight [flightLimit]pending
	first  uint64
	after  uint64

	// deferred are launches that were answered and are still to be accounted for, and deferredPolls
	// how many steps that was put off.
	deferred      []deferredAccount
	deferredPolls int

	waiter waiter
	onGPU  ongoing

	// led is how many commands the newest train has, and ledWork how long they are expected to take.
	led     int
	ledWork time.Duration

	// job is the launch that later commands wait for, or nil. second is a launch that was put on
	// the GPU behind it all the same. jobs holds both for reuse of their memory.
	job, second *job
	jobs        [2]*job
	// corun is a second channel on the GPU, once it is needed: for a launch that runs beside the
	// first.
	corun service
}

// pending is a command that was begun and is not yet answered.
type pending struct {
	fence    gpu.Fence // 0: nothing to wait for
	zeroed   gpu.Fence // of an allocation's zeroing; 0: it does not wait for that
	event    *event    // reached with this command
	record   int       // which recording of the event this is
	fn       *function // a launch
	job      *job      // of a launch that has one
	estimate estimate  // of a launch
	// fill is how long a fill was expected to take, 0 for other commands; brief reports whether it
	// counted as short.
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
	ch := &channel{x: x, place: c, index: c.Index, generation: c.Generation, vector: c.Vector, fetched: make([]abi.Entry, fetchEntries)}
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
	ch.train, _ = ch.gpu.(gpu.Train)
	ch.waiter.start(ch.gpu, x.slot)
	return ch, nil
}

// slice returns a part of shared memory that vm has named. It is checked again, so that a mistake
// of vm's does no harm here.
func slice(shared []byte, offset, size uint64) ([]byte, error) {
	if size > uint64(len(shared)) || offset > uint64(len(shared))-size {
		return nil, fmt.Errorf("%d bytes at %#x lie outside the shared memory of %d", size, offset, len(shared))
	}
	return shared[offset : offset+size : offset+size], nil
}

// shut stops fetching and answering. Commands on the GPU end there, and are then accounted for: see
// drained.
func (ch *channel) shut() {
	ch.closing = true
	ch.next, ch.held = 0, 0
}

// drained reports whether a channel that was shut has nothing on the GPU any more.
func (ch *channel) drained() bool {
	ch.retire()
	ch.accountDeferred()
	return ch.first == ch.after
}

// close closes the channel at once.
func (ch *channel) close() error {
	ch.waiter.stop()
	return errors.Join(ch.gpu.Close(), ch.corun.close())
}

// freeMemory frees the GPU memory of the channel's preemptible launches. The channel has nothing on
// the GPU.
func (ch *channel) freeMemory() error {
	var errs []error
	for _, j := range ch.jobs {
		if j != nil {
			errs = append(errs, ch.x.freeMemory(&j.memory))
		}
	}
	return errors.Join(errs...)
}

// backlog reports whether the guest has work in the channel that is not on the GPU. Commands behind an
// event are none until the event is reached.
func (ch *channel) backlog() bool {
	if ch.job != nil && !ch.job.state.onGPU() || ch.second != nil && !ch.second.state.onGPU() {
		return true
	}
	if ch.next < ch.held {
		return !ch.waitsForEvent()
	}
	n, err := ch.sub.Pending()
	return err == nil && n > 0 && !ch.dead
}

// busy reports whether commands are unfinished or unanswered.
func (ch *channel) busy() bool { return ch.first != ch.after }

// working reports whether commands are unfinished. Those that are only unanswered, because the
// guest makes no room for answers, don't count.
func (ch *channel) working() bool { return ch.busy() && !ch.flight[(ch.after-1)%flightLimit].done }

// retire finishes commands that have ended, and answers them in order.
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
				continue // the channel has failed just now, and answers no more
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

// finishReached finishes all commands whose fence is reached, whether or not there is room to
// answer them: launches among them no longer count as on the GPU.
func (ch *channel) finishReached() bool {
	did := false
	done := ch.gpu.Done()
	gone := ch.x.poison != nil && ch.x.o.Context.Fault() != nil
	for i := ch.first; i != ch.after; i++ {
		p := &ch.flight[i%flightLimit]
		if p.job != nil {
			did = p.job.advance() || did
			if !p.done {
				if ch.second != nil {
					did = ch.second.advance() || did
				}
				break
			}
			continue
		}
		if !ch.x.zeroes.reached(p.zeroed) && !gone {
			continue // only its answer waits
		}
		// A context that is gone reaches only the fences of copies, which must have stopped before
		// the guest uses their windows again.
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
		if ch.yields {
			ch.yields = false
			break
		}
		if ch.after-ch.first == flightLimit {
			// Commands that ended at once make room at once. The GPU forgets launches that were
			// answered and not accounted for after as many further commands.
			ch.retire()
			ch.publish()
			ch.accountDeferred()
		}
	}
	ch.endTrain()
	if did {
		ch.x.slot.AddCommands(ch.seq - before)
		ch.retire()
	}
	return did
}

// refill fetches entries if none is left, and reports whether there is one.
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

// die ends a channel whose guest broke the rules of the rings.
func (ch *channel) die(err error) {
	if ch.dead {
		return
	}
	ch.dead = true
	code := abi.ErrorInternal
	if c, ok := errors.AsType[abi.ErrorCode](err); ok {
		code = c
	}
	ch.x.slot.AddErrorReason(ipc.ErrorRequest)
	ch.x.slot.AddError()
	ch.x.o.Log.Debug("channel ended", "channel", ch.index, "err", err)
	ch.x.report(func() {
		if f := ch.x.o.ChannelFailed; f != nil {
			f(ipc.ChannelFailure{Index: ch.index, Generation: ch.generation, Code: uint32(code)})
		}
	})
}

// endTurn ends the channel's turn behind a copy, if other channels have work. A GPU makes the copies
// of a direction one after the other, in the order in which they are queued: one that is queued
// behind a kernel of its channel keeps those of other channels behind it waiting for that kernel.
// If a channel queued all that it has at once, others' copies would wait for all of its kernels.
func (ch *channel) endTurn() { ch.yields = ch.x.severalBusy }

// answerNop answers a no-op at once, if no command before it is unanswered, and reports whether it
// did. It is a fast path beside begin and retire for guests that use no-ops to measure latency or
// to keep a ring polled.
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

// begin carries out or begins the command that starts with e[0]. It reports false if the command
// has to wait.
func (ch *channel) begin(e []abi.Entry) bool {
	h, err := abi.DecodeHeader(&e[0])
	c := &ch.current
	*c = command{ch: ch, h: h, entry: &e[0], more: e[1:abi.Span(&e[0])]}
	p := &ch.flight[ch.after%flightLimit]
	*p = pending{quiet: h.Flags&abi.FlagQuiet != 0}
	p.com.Op, p.com.Cookie = h.Op, h.Cookie
	if endsTrain(h.Op) {
		ch.endTrain()
	}
	if err == nil {
		how := &commands[h.Op]
		switch {
		case how.run == nil || h.Op.Command().Feature&^(Features|eventFeatures) != 0:
			err = abi.StatusNotSupported
		case ch.x.poison != nil && !how.poisoned:
			err = ch.x.status
		case ch.job != nil && how.ordered && ch.job.holdsBack(h.Op), how.blocks && ch.x.preempted != nil:
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

// busyOnGPU reports whether an earlier command of the channel is on the GPU.
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

// newest returns the fence of the newest command on the GPU, or 0.
func (ch *channel) newest() gpu.Fence {
	for i := ch.after; i != ch.first; i-- {
		if f := ch.flight[(i-1)%flightLimit].fence; f != 0 {
			return f
		}
	}
	return 0
}

// oldest returns the fence that the channel waits for, or 0.
func (ch *channel) oldest() gpu.Fence {
	for i := ch.first; i != ch.after; i++ {
		if f := ch.flight[i%flightLimit].fence; f != 0 {
			return f
		}
	}
	return 0
}

// arm asks the guest for a doorbell, and reports whether there is nothing to do until then.
// suspended reports whether commands are not fetched anyway.
func (ch *channel) arm(suspended bool) bool {
	if ch.dead {
		return true
	}
	if ch.busy() && ch.flight[ch.first%flightLimit].done && !ch.com.ArmRoom() {
		return false // there is room now for completions that wait for it
	}
	if ch.next < ch.held {
		return true // fetched, and waiting for the GPU or the daemon
	}
	return ch.sub.Arm() || suspended || ch.after-ch.first == flightLimit
}
