package eventqueue

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"vgpud/mediator/vgpu/abi"
)

// Poller is the host's end of an event kernel's queue.
type Poller struct {
	area       []byte // BAR4
	row        []byte // in the kernel's page
	doorbell   *atomic.Uint32
	kickAt     *atomic.Uint32
	seenWord   *atomic.Uint32
	state      *atomic.Uint32
	droppedTop *atomic.Uint32

	base, entryBytes, paramBytes int
	queue, queueEnd              int // where flags may lie

	seen   uint32 // rings that were taken or dropped
	closed bool
	ending bool // rings after last are not this kernel's
	last   uint32
	head   int   // the entry that the next event uses
	flags  []int // offset of the flag of each entry under way; 0: none is
	flying int
	counts Counts
}

// Counts are what has become of an event kernel's rings.
type Counts struct {
	Started uint64 // they started an event
	Ended   uint64 // and it ended
	Dropped uint64 // they found no free entry
}

// NewPoller makes the queue of event kernel n in area, all of BAR4: its row, with the head at the
// first entry, and entries that hold params and point to free flags. Rings count from 0. The queue is
// taken back by [Poller.Close].
func NewPoller(area []byte, n int, row abi.EventRow, params []byte, entries int) (*Poller, error) {
	switch {
	case len(area) != abi.EventAreaBytes:
		return nil, fmt.Errorf("event area of %d bytes, want %d", len(area), abi.EventAreaBytes)
	case n < 0 || n >= abi.MaxEventKernels:
		return nil, fmt.Errorf("event kernel %d of %d", n, abi.MaxEventKernels)
	case entries < 1 || entries > abi.MaxEventEntries || abi.EventQueueSize(len(params), entries) > abi.EventQueueBytes:
		return nil, fmt.Errorf("event queue of %d entries with %d bytes of parameters: at most %d entries and %d bytes with %d for each",
			entries, len(params), abi.MaxEventEntries, abi.EventQueueBytes, abi.EventEntryBytes(len(params))+4)
	}
	page := area[abi.EventPage(n):][:abi.PageSize]
	p := &Poller{
		area: area, row: page[abi.EventRowOffset:][:abi.EventRowBytes],
		doorbell: abi.AtomicWord(page, abi.EventDoorbellWord), kickAt: abi.AtomicWord(page, abi.EventKickAtWord),
		seenWord: abi.AtomicWord(page, abi.EventSeenWord), state: abi.AtomicWord(page, abi.EventStateWord),
		droppedTop: abi.AtomicWord(page, abi.EventDroppedWord),
		base:       abi.EventQueue(n), entryBytes: abi.EventEntryBytes(len(params)), paramBytes: len(params),
		queue: abi.EventQueue(n), queueEnd: abi.EventQueue(n) + abi.EventQueueBytes, flags: make([]int, entries),
	}
	flags := p.base + entries*p.entryBytes
	for i := range entries {
		e := p.entry(i)
		clear(e)
		copy(e, params)
		flag := flags + 4*i
		binary.LittleEndian.PutUint64(e[len(e)-8:], uint64(flag))
		abi.StoreWord(area, flag, uint32(abi.EventFree))
	}
	row.Base, row.Head, row.EntrySize = uint64(p.base), uint64(p.base), uint64(p.entryBytes)
	row.End = uint64(p.base + (entries-1)*p.entryBytes)
	var b [abi.EventRowBytes]byte
	row.Encode(&b)
	copy(p.row, b[:])
	abi.AtomicWord64(page, abi.EventDoorbellWord).Store(0)
	p.kickAt.Store(0) // the first ring kicks
	p.seenWord.Store(0)
	p.droppedTop.Store(0)
	p.state.Store(uint32(abi.EventRegistered))
	return p, nil
}

func (p *Poller) entry(i int) []byte {
	return p.area[p.base+i*p.entryBytes:][:p.entryBytes:p.entryBytes]
}

// Pending reports whether there are rings that Next has not seen: one load.
func (p *Poller) Pending() bool { return p.rings() != 0 }

// rings returns how many rings were not taken.
func (p *Poller) rings() uint32 {
	if p.ending {
		return p.last - p.seen
	}
	return p.doorbell.Load() - p.seen
}

// Next takes the next ring that starts an event: it copies the parameters of the head's entry to
// params, which has as many bytes as those have, and moves the head. ok is false if there is no such
// ring. A ring whose entry is not busy, or still under way, starts nothing and is counted. However
// many rings there are, Next looks at no more than the queue has entries.
func (p *Poller) Next(params []byte) (entry int, ok bool) {
	rings := p.rings()
	if n := uint32(len(p.flags)); rings > n {
		p.drop(rings - n)
		rings = n
	}
	for range rings {
		entry, flag := p.head, p.takes(p.head)
		if flag == 0 {
			p.drop(1)
			continue
		}
		copy(params, p.entry(entry)[:p.paramBytes])
		p.flags[entry] = flag
		p.flying++
		p.counts.Started++
		if p.head++; p.head == len(p.flags) {
			p.head = 0
		}
		binary.LittleEndian.PutUint64(p.row[abi.EventRowHead:], uint64(p.base+p.head*p.entryBytes))
		p.seen++
		p.seenWord.Store(p.seen)
		return entry, true
	}
	return 0, false
}

// drop counts n rings that start nothing.
func (p *Poller) drop(n uint32) {
	p.counts.Dropped += uint64(n)
	p.droppedTop.Store(uint32(p.counts.Dropped))
	p.seen += n
	p.seenWord.Store(p.seen)
}

// takes returns the offset of the entry's flag if an event of the entry may start, else 0.
func (p *Poller) takes(entry int) (flag int) {
	if p.flags[entry] != 0 {
		return 0
	}
	e := p.entry(entry)
	at := binary.LittleEndian.Uint64(e[len(e)-8:])
	if at < uint64(p.queue) || at > uint64(p.queueEnd-4) || at%4 != 0 {
		return 0
	}
	if abi.EventFlag(abi.LoadWord(p.area, int(at))) != abi.EventBusy {
		return 0
	}
	return int(at)
}

// Done marks an entry that Next returned as done. Its event's results must be visible before.
func (p *Poller) Done(entry int) {
	if !p.closed {
		abi.StoreWord(p.area, p.flags[entry], uint32(abi.EventDone))
	}
	p.Drop(entry)
	p.counts.Ended++
}

// Drop forgets an event that did not end as it should: its entry stays busy.
func (p *Poller) Drop(entry int) {
	if p.flags[entry] != 0 {
		p.flags[entry] = 0
		p.flying--
	}
}

// Arm asks for a kick with the next ring, and reports whether there is none yet, so that nobody needs
// to poll.
func (p *Poller) Arm() (idle bool) {
	p.kickAt.Swap(p.seen)
	return p.doorbell.Load() == p.seen
}

// Disarm asks for no kick, however often it is rung: the caller looks at Pending, or at the words that
// it is known by.
func (p *Poller) Disarm() { p.kickAt.Store(p.seen - 1) }

// Flying returns how many events have started and not ended.
func (p *Poller) Flying() int { return p.flying }

// Counts returns what has become of the rings.
func (p *Poller) Counts() Counts { return p.counts }

// State is where a poller has got with a queue, so that another can go on there.
type State struct {
	Seen uint32 // rings that were taken or dropped
	Head uint32 // the entry that the next event uses
	Counts
}

// State returns where the poller has got.
func (p *Poller) State() State { return State{p.seen, uint32(p.head), p.counts} }

// Resume has the poller go on at s, where another has got with the same queue. No event is under way.
func (p *Poller) Resume(s State) {
	p.seen, p.head, p.counts = s.Seen, int(s.Head)%len(p.flags), s.Counts
}

// End shows that the kernel is being unregistered: later rings are stray, and Next does not return
// them.
func (p *Poller) End() {
	p.state.Store(uint32(abi.EventEnding))
	p.last = p.doorbell.Load()
	p.ending = true
}

// Close ends the queue, shows state, and returns the rings that nobody looked at. The area is no
// longer written: another kernel may have the number.
func (p *Poller) Close(state abi.EventState) (stray uint32) {
	p.closed = true
	p.state.Store(uint32(state))
	rung := p.doorbell.Load()
	stray = rung - p.seen
	p.seen = rung
	p.seenWord.Store(rung)
	return stray
}

// Stray returns the rings on number n since its last kernel's queue was closed. No queue of that
// number may be open.
func Stray(area []byte, n int) uint32 {
	page := area[abi.EventPage(n):][:abi.PageSize]
	rung := abi.LoadWord(page, abi.EventDoorbellWord)
	return rung - abi.LoadWord(page, abi.EventSeenWord)
}
