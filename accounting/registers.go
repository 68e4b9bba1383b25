package accounting

import (
	"errors"
	"fmt"
	"time"

	"vgpud/accounting/nvreg"
)

// ErrGone means that the GPU's registers no longer answer: it fell off the bus, or its page was
// taken away.
var ErrGone = errors.New("the GPU no longer answers")

// Registers is the [Source] for NVIDIA's GPUs from Ampere on, and for the soft GPU, whose page has
// the same registers at the same offsets. It reads the engine status of the graphics runlist and,
// on request, the entries of the channels. It is a [Watcher] and an [EntryReader].
type Registers struct {
	space   nvreg.Space
	runlist nvreg.Runlist
	host    func() time.Duration
	// offset converts the host's clock to the GPU's.
	offset  time.Duration
	entries bool

	status  nvreg.EngineStatus
	channel nvreg.EngineChannel
	entry   nvreg.ChannelEntry
}

// RegisterOptions say how a [Registers] reads. The zero value is usable.
type RegisterOptions struct {
	// Settle is how long PTIMER must stand still, on the host's clock, to be taken for the soft
	// GPU's: 200 µs by default.
	Settle time.Duration
}

// OpenRegisters finds the compute engine's status in a register space: a mapping of BAR0 or of the
// soft GPU's page. host reads the host's CLOCK_MONOTONIC. The mapping must outlive the source.
func OpenRegisters(space nvreg.Space, host func() time.Duration, o RegisterOptions) (*Registers, error) {
	runlist, err := nvreg.FindGraphics(space)
	if err != nil {
		return nil, fmt.Errorf("accounting: find the compute engine's status: %w", err)
	}
	if o.Settle == 0 {
		o.Settle = 200 * time.Microsecond
	}
	// Neither the offset's accuracy nor whether the timer ticks by itself matters here: all stamps
	// are the host's, and only their differences count.
	offset, _, _ := nvreg.Calibrate(space, host, o.Settle)
	return &Registers{space: space, runlist: runlist, host: host, offset: offset}, nil
}

// Sample implements [Source]. Its clock is the host's, converted to the GPU's, which costs no read
// over the bus.
func (r *Registers) Sample() (Status, error) {
	r.status, r.channel, r.entry = r.read()
	clock := r.host() + r.offset
	if r.status.Gone() {
		return Status{}, fmt.Errorf("%w: NV_RUNLIST_ENGINE_STATUS0 is %#x", ErrGone, uint32(r.status))
	}
	st := StatusOf(r.status.Decode())
	st.Clock = clock
	if r.entries {
		if _, on := r.channel.ID(); on && r.entry.Working() {
			st.Entry = EntryPending
		} else {
			st.Entry = EntryIdle
		}
	}
	return st, nil
}

// ReadEntries implements [EntryReader]. It makes a sample read three registers instead of one.
func (r *Registers) ReadEntries(yes bool) { r.entries = yes }

// Changed implements [Watcher].
func (r *Registers) Changed() bool {
	if !r.entries {
		return r.runlist.Status(r.space) != r.status
	}
	status, channel, entry := r.read()
	return status != r.status || channel != r.channel || entry != r.entry
}

// read reads the registers one after the other, so that they may be of different instants, as LoGA
// §5.4 found.
func (r *Registers) read() (status nvreg.EngineStatus, channel nvreg.EngineChannel, entry nvreg.ChannelEntry) {
	status = r.runlist.Status(r.space)
	if r.entries {
		channel = r.runlist.Channel(r.space)
		if id, on := channel.ID(); on {
			entry = r.runlist.Entry(r.space, id)
		}
	}
	return status, channel, entry
}

// StatusOf translates an engine's state. The result has no clock and no channel entry.
func StatusOf(e nvreg.EngineState) Status {
	st := Status{Group: GroupID(e.TSGID), Busy: e.Busy, Valid: true}
	switch e.Context {
	case nvreg.ContextValid:
	case nvreg.ContextSave:
		st.Switch = Saving
	case nvreg.ContextLoad:
		st.Switch, st.Next = Loading, GroupID(e.NextTSGID)
	case nvreg.ContextSwitch:
		st.Switch, st.Next = Switching, GroupID(e.NextTSGID)
	default:
		return Status{Busy: e.Busy}
	}
	return st
}
