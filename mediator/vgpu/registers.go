package vgpu

import (
	"encoding/binary"
	"math"

	"vgpud/mediator/vgpu/abi"
)

// registers is the device as a state machine, with no lock, no shared memory and no clock. Accesses
// and the backend's answers change it. The resulting work is in actions and dirty, which Device
// empties after every call.
type registers struct {
	cfg        Config
	version    abi.Version
	features   abi.Features
	err        abi.ErrorCode
	errOffset  uint32
	stateVec   uint32
	lost       bool   // the GPU was last reported as gone
	generation uint32 // resets since the device was made
	contexts   []contextSlot
	channels   []channelSlot
	count      counts

	actions []action
	dirty   dirty
}

// counts holds the counters of Stats that the state machine keeps.
type counts struct {
	reads, writes, badAccesses, refused uint64
	doorbells, strayDoorbells           uint64
	resets                              uint64
}

// contextSlot is one slot of the context table. Its generation only grows, over resets too.
type contextSlot struct {
	state      abi.ContextState
	err        abi.ErrorCode
	flags, tag uint32
	channels   uint32
	generation uint32
	request    abi.TaskRequestWords // the row of the task table as written
	task       taskRow
}

// channelSlot is one slot of the channel table.
type channelSlot struct {
	state      abi.ChannelState
	err        abi.ErrorCode
	written    [abi.ChannelSlotSize / 4]uint32 // the writable registers as written
	open       Channel                         // as taken at create; its rings are reserved while the state is not free
	doorbells  uint32
	generation uint32
}

// action is one call to make to the backend.
type action struct {
	kind    actionKind
	context Context
	channel Channel
	event   int // an event kernel
}

type actionKind uint8

const (
	createContext actionKind = iota
	resetContext
	destroyContext
	openChannel
	closeChannel
	kick
	kickEvents
	resetAll
)

// dirty holds the words of BAR2 that no longer show the state.
type dirty struct {
	contexts uint64
	channels [abi.MaxChannels / 64]uint64
	pages    [abi.MaxChannels / 64]uint64 // channel pages to reset to their state at create
	event    bool                         // a change that this access of the guest did not cause
}

func newRegisters(cfg Config) *registers {
	return &registers{
		cfg:      cfg,
		contexts: make([]contextSlot, cfg.Contexts),
		channels: make([]channelSlot, cfg.Channels),
	}
}

// reset returns everything but the generations to the state at power-on.
func (r *registers) reset() {
	r.version, r.features, r.err, r.errOffset, r.stateVec, r.lost = 0, 0, 0, 0, 0, false
	r.generation++
	r.count.resets++
	for i := range r.contexts {
		r.contexts[i] = contextSlot{generation: r.contexts[i].generation}
		r.dirty.contexts |= 1 << i
	}
	for i := range r.channels {
		r.channels[i] = channelSlot{generation: r.channels[i].generation}
		r.dirty.channels[i/64] |= 1 << (i % 64)
	}
}

// read answers a read of BAR0. An unsupported access reads as ones.
func (r *registers) read(offset uint64, p []byte) {
	r.count.reads++
	if !aligned(offset, len(p)) {
		r.count.badAccesses++
		for i := range p {
			p[i] = 0xff
		}
		return
	}
	for ; len(p) > 0; p, offset = p[4:], offset+4 {
		binary.LittleEndian.PutUint32(p, r.load(uint32(offset)))
	}
}

// write carries out a write to BAR0.
func (r *registers) write(offset uint64, p []byte) {
	r.count.writes++
	if !aligned(offset, len(p)) {
		r.count.badAccesses++
		return
	}
	for ; len(p) > 0; p, offset = p[4:], offset+4 {
		r.store(uint32(offset), binary.LittleEndian.Uint32(p))
	}
}

// aligned reports whether the device supports an access.
func aligned(offset uint64, n int) bool {
	return (n == 4 || n == 8) && offset%uint64(n) == 0 && offset < abi.BAR0Size
}

// load returns the value of one register.
func (r *registers) load(off uint32) uint32 {
	switch {
	case off >= abi.ContextTable && off < abi.ContextTable+uint32(len(r.contexts))*abi.ContextSlotSize:
		off -= abi.ContextTable
		return r.loadContext(&r.contexts[off/abi.ContextSlotSize], off%abi.ContextSlotSize)
	case off >= abi.ChannelTable && off < abi.ChannelTable+uint32(len(r.channels))*abi.ChannelSlotSize:
		off -= abi.ChannelTable
		return r.loadChannel(&r.channels[off/abi.ChannelSlotSize], off%abi.ChannelSlotSize)
	}
	if off >= abi.TaskTable && off < abi.TaskTable+uint32(len(r.contexts))*abi.TaskRowSize && r.cfg.Features&abi.FeatureFloating != 0 {
		off -= abi.TaskTable
		return r.loadTask(&r.contexts[off/abi.TaskRowSize], off%abi.TaskRowSize)
	}
	return r.loadIdentity(off)
}

func (r *registers) loadIdentity(off uint32) uint32 {
	switch off {
	case abi.RegMagic:
		return abi.Magic
	case abi.RegVersion:
		return uint32(abi.Newest)
	case abi.RegOldestVersion:
		return uint32(abi.Oldest)
	case abi.RegSelectVersion:
		return uint32(r.version)
	case abi.RegFeaturesLo:
		return uint32(r.cfg.Features)
	case abi.RegFeaturesHi:
		return uint32(r.cfg.Features >> 32)
	case abi.RegAcceptFeaturesLo:
		return uint32(r.features)
	case abi.RegAcceptFeaturesHi:
		return uint32(r.features >> 32)
	case abi.RegStatus:
		return uint32(r.status())
	case abi.RegError:
		return uint32(r.err)
	case abi.RegErrorOffset:
		return r.errOffset
	case abi.RegGeneration:
		return r.generation
	case abi.RegContexts:
		return uint32(len(r.contexts))
	case abi.RegChannels:
		return uint32(len(r.channels))
	case abi.RegMinRingEntries:
		return abi.MinRingEntries
	case abi.RegMaxRingEntries:
		return uint32(r.cfg.MaxRingEntries)
	case abi.RegEntryBytes:
		return abi.EntrySize
	case abi.RegSharedBytesLo:
		return uint32(r.cfg.SharedBytes)
	case abi.RegSharedBytesHi:
		return uint32(r.cfg.SharedBytes >> 32)
	case abi.RegHeaderBytes:
		return uint32(abi.HeaderBytes(len(r.channels)))
	case abi.RegVectors:
		return uint32(r.cfg.Vectors)
	case abi.RegStateVector:
		return r.stateVec
	case abi.RegMemoryBytesLo:
		return uint32(r.cfg.MemoryBytes)
	case abi.RegMemoryBytesHi:
		return uint32(r.cfg.MemoryBytes >> 32)
	case abi.RegPollWindowNanos:
		return uint32(r.cfg.PollWindow)
	case abi.RegEventDoorbells:
		if r.cfg.Features&abi.FeatureEventDoorbells != 0 {
			return abi.MaxEventKernels
		}
	case abi.RegRingsBytes:
		return uint32(r.cfg.RingsBytes())
	case abi.RegUUID, abi.RegUUID + 4, abi.RegUUID + 8, abi.RegUUID + 12:
		return binary.LittleEndian.Uint32(r.cfg.UUID[off-abi.RegUUID:])
	case abi.RegLatencyNanos:
		latency, _ := r.leaving()
		return latency
	case abi.RegSuspensionNanos:
		_, suspension := r.leaving()
		return suspension
	}
	return 0
}

// leaving returns what kernels that leave the GPU should know, in ns.
func (r *registers) leaving() (latency, suspension uint32) {
	if r.cfg.Leaving == nil {
		return 0, 0
	}
	l, s := r.cfg.Leaving()
	return uint32(min(max(l, 0), math.MaxUint32)), uint32(min(max(s, 0), math.MaxUint32))
}

func (r *registers) status() abi.DeviceStatus {
	s := abi.DeviceReady
	if r.version != 0 {
		s |= abi.DeviceNegotiated
	}
	if r.lost {
		s |= abi.DeviceLost
	}
	return s
}

func (r *registers) loadContext(c *contextSlot, reg uint32) uint32 {
	switch reg {
	case abi.ContextStatus:
		return uint32(c.state)
	case abi.ContextError:
		return uint32(c.err)
	case abi.ContextFlags:
		return c.flags
	case abi.ContextTag:
		return c.tag
	case abi.ContextChannels:
		return c.channels
	case abi.ContextGeneration:
		return c.generation
	}
	return 0
}

func (r *registers) loadChannel(c *channelSlot, reg uint32) uint32 {
	switch reg {
	case abi.ChannelStatus:
		return uint32(c.state)
	case abi.ChannelError:
		return uint32(c.err)
	case abi.ChannelDoorbells:
		return c.doorbells
	case abi.ChannelControl:
		return 0
	}
	return c.written[reg/4]
}

// store writes one register.
func (r *registers) store(off, v uint32) {
	if off >= abi.DoorbellTable && off < abi.DoorbellTable+abi.MaxChannels*abi.DoorbellSize {
		r.doorbell(int(off-abi.DoorbellTable) / abi.DoorbellSize)
		return
	}
	if off >= abi.EventDoorbellTable && off < abi.EventDoorbellTable+abi.MaxEventDoorbells*abi.DoorbellSize {
		if r.cfg.Features&abi.FeatureEventDoorbells != 0 {
			r.actions = append(r.actions, action{kind: kickEvents, event: int(off-abi.EventDoorbellTable) / abi.DoorbellSize})
		}
		return
	}
	if off == abi.RegError {
		r.err, r.errOffset = 0, 0
		return
	}
	var err abi.ErrorCode
	switch {
	case off >= abi.ContextTable && off < abi.ContextTable+abi.MaxContexts*abi.ContextSlotSize:
		err = r.storeContext(int(off-abi.ContextTable)/abi.ContextSlotSize, off%abi.ContextSlotSize, v)
	case off >= abi.ChannelTable && off < abi.ChannelTable+abi.MaxChannels*abi.ChannelSlotSize:
		err = r.storeChannel(int(off-abi.ChannelTable)/abi.ChannelSlotSize, off%abi.ChannelSlotSize, v)
	case off >= abi.TaskTable && off < abi.TaskTable+abi.MaxContexts*abi.TaskRowSize && r.cfg.Features&abi.FeatureFloating != 0:
		err = r.storeTask(int(off-abi.TaskTable)/abi.TaskRowSize, off%abi.TaskRowSize, v)
	default:
		err = r.storeIdentity(off, v)
	}
	if err != abi.ErrorNone {
		r.count.refused++
		r.err, r.errOffset = err, off
	}
}

func (r *registers) storeIdentity(off, v uint32) abi.ErrorCode {
	switch off {
	case abi.RegSelectVersion:
		return r.selectVersion(abi.Version(v))
	case abi.RegAcceptFeaturesLo:
		return r.acceptFeatures(r.features&^0xffffffff | abi.Features(v))
	case abi.RegAcceptFeaturesHi:
		return r.acceptFeatures(r.features&0xffffffff | abi.Features(v)<<32)
	case abi.RegStateVector:
		if v != abi.NoVector && v >= uint32(r.cfg.Vectors) {
			return abi.ErrorBadVector
		}
		r.stateVec = v
	case abi.RegReset:
		if v != abi.ResetMagic {
			return abi.ErrorBadReset
		}
		r.reset()
		r.actions = append(r.actions, action{kind: resetAll})
	}
	return abi.ErrorNone
}

func (r *registers) selectVersion(v abi.Version) abi.ErrorCode {
	if v < abi.Oldest || v > abi.Newest {
		return abi.ErrorBadVersion
	}
	if v != r.version && r.inUse() > 0 {
		return abi.ErrorBadState
	}
	r.version = v
	return abi.ErrorNone
}

func (r *registers) acceptFeatures(f abi.Features) abi.ErrorCode {
	if f&^r.cfg.Features != 0 || f != r.features && r.inUse() > 0 {
		return abi.ErrorBadFeatures
	}
	r.features = f
	return abi.ErrorNone
}

// inUse returns how many context slots are not free.
func (r *registers) inUse() int {
	n := 0
	for i := range r.contexts {
		if r.contexts[i].state != abi.ContextFree {
			n++
		}
	}
	return n
}

// doorbell counts a kick and passes it on if the channel is open.
func (r *registers) doorbell(slot int) {
	if slot >= len(r.channels) {
		r.count.strayDoorbells++
		return
	}
	c := &r.channels[slot]
	if c.state != abi.ChannelReady && c.state != abi.ChannelOpening {
		r.count.strayDoorbells++
		return
	}
	r.count.doorbells++
	c.doorbells++
	r.actions = append(r.actions, action{kind: kick, channel: Channel{ChannelRef: c.open.ChannelRef}})
}
