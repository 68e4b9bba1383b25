package dispatch

import (
	"time"

	"vgpud/mediator/vgpu/abi"
	"vgpud/mediator/vgpu/abi/eventqueue"
)

// ControlBytes is the size of a dispatcher's control block: host memory that the GPU reaches, apart
// from what the guest sees.
const ControlBytes = 4096

// Offsets of a control block's words of 32 bits. The host writes the first, and the others while the
// dispatcher is not there.
const (
	stopWord     = 0
	residentWord = 128
	startedWord  = 132
	endedWord    = 136
	droppedWord  = 140
	seenWord     = 144
	headWord     = 148
	cameWords    = 160 // 64 bits
	leftWords    = 168
	latencyWords = 256
)

// latencies is how many of the newest latencies a control block keeps.
const latencies = 256

// Control is a dispatcher's control block.
type Control struct{ mem []byte }

// NewControl returns the control block in mem, [ControlBytes] long. It panics if mem is shorter.
func NewControl(mem []byte) Control { return Control{mem[:ControlBytes:ControlBytes]} }

// Stop tells the dispatcher to leave the GPU before it takes another event, or no longer does.
func (c Control) Stop(on bool) { c.store(stopWord, on) }

// Stopped reports whether the dispatcher is told to leave.
func (c Control) Stopped() bool { return abi.LoadWord(c.mem, stopWord) != 0 }

// Resident reports whether the dispatcher polls. It is false from before the dispatcher asks for
// kicks, and true again if it finds that it has to stay.
func (c Control) Resident() bool { return abi.LoadWord(c.mem, residentWord) != 0 }

// Launching prepares the block for a launch of the dispatcher, which takes over at s.
func (c Control) Launching(s eventqueue.State) {
	abi.StoreWord(c.mem, startedWord, uint32(s.Started))
	abi.StoreWord(c.mem, endedWord, uint32(s.Ended))
	abi.StoreWord(c.mem, droppedWord, uint32(s.Dropped))
	abi.StoreWord(c.mem, seenWord, s.Seen)
	abi.StoreWord(c.mem, headWord, s.Head)
	c.SetResident(true)
}

// SetResident shows that the dispatcher polls, or does not: it has been launched, or has ended.
func (c Control) SetResident(on bool) { c.store(residentWord, on) }

func (c Control) store(word int, on bool) {
	v := uint32(0)
	if on {
		v = 1
	}
	abi.AtomicWord(c.mem, word).Store(v)
}

// Counts are a dispatcher's counts modulo 2^32, since the kernel was registered.
type Counts struct{ Started, Ended, Dropped uint32 }

// Counts returns the dispatcher's counts.
func (c Control) Counts() Counts {
	return Counts{abi.LoadWord(c.mem, startedWord), abi.LoadWord(c.mem, endedWord), abi.LoadWord(c.mem, droppedWord)}
}

// State returns where the dispatcher has got, after was: what it had when it was launched. A guest's
// kernel may have overwritten it.
func (c Control) State(was eventqueue.State) eventqueue.State {
	n := c.Counts()
	was.Started += uint64(n.Started - uint32(was.Started))
	was.Ended += uint64(n.Ended - uint32(was.Ended))
	was.Dropped += uint64(n.Dropped - uint32(was.Dropped))
	was.Seen, was.Head = abi.LoadWord(c.mem, seenWord), abi.LoadWord(c.mem, headWord)
	return was
}

// Times returns when the dispatcher came and when it left, on the GPU's clock. It has left.
func (c Control) Times() (came, left time.Duration) { return c.time(cameWords), c.time(leftWords) }

// Came returns when the dispatcher came, or, for a moment after it did, when its predecessor did.
func (c Control) Came() time.Duration { return c.time(cameWords) }

func (c Control) time(word int) time.Duration {
	return time.Duration(uint64(abi.LoadWord(c.mem, word)) | uint64(abi.LoadWord(c.mem, word+4))<<32)
}

// Latencies appends to list the times from when the dispatcher found a ring to its event's end, of
// those events after the first since that the block still has. Ended is the count of all.
func (c Control) Latencies(list []time.Duration, since, ended uint32) []time.Duration {
	if ended-since > latencies {
		since = ended - latencies
	}
	for ; since != ended; since++ {
		ns := abi.LoadWord(c.mem, latencyWords+4*int(since%latencies))
		list = append(list, time.Duration(ns))
	}
	return list
}
