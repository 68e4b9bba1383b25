package nvreg

import (
	"fmt"
	"strings"
)

// ContextStatus is NV_RUNLIST_ENGINE_STATUS0_CTX_STATUS: whether a context is on the engine, and
// how far its switch is.
type ContextStatus uint8

// The states of an engine's context. 2 to 4 are not defined.
const (
	ContextInvalid ContextStatus = 0 // none on the engine
	ContextValid   ContextStatus = 1 // the group TSGID is
	ContextSave    ContextStatus = 5 // TSGID is being saved
	ContextLoad    ContextStatus = 6 // NextTSGID is being loaded
	ContextSwitch  ContextStatus = 7 // TSGID is to go, its save not begun, NextTSGID to come
)

// String returns the manual's word.
func (c ContextStatus) String() string {
	switch c {
	case ContextInvalid:
		return "invalid"
	case ContextValid:
		return "valid"
	case ContextSave:
		return "save"
	case ContextLoad:
		return "load"
	case ContextSwitch:
		return "switch"
	}
	return fmt.Sprintf("context status %d", uint8(c))
}

// EngineStatus is the contents of NV_RUNLIST_ENGINE_STATUS0. Two readings differ exactly if the
// contents do, so a polling loop compares before it decodes.
type EngineStatus uint32

// EngineState is a decoded EngineStatus.
type EngineState struct {
	TSGID     uint16        // 11:0, the channel group on the engine
	Context   ContextStatus // 15:13
	NextTSGID uint16        // 27:16, the group to come, while Context is ContextLoad or ContextSwitch
	Reload    bool          // 29, ENG_RELOAD
	Faulted   bool          // 30
	Busy      bool          // 31, ENGINE: executing, or switching
}

// Gone reports whether the value is not a register's contents: the GPU fell off the bus.
func (v EngineStatus) Gone() bool { return refused(uint32(v)) }

// Decode decodes the register.
func (v EngineStatus) Decode() EngineState {
	return EngineState{
		TSGID:     uint16(v & 0xfff),
		Context:   ContextStatus(v >> 13 & 7),
		NextTSGID: uint16(v >> 16 & 0xfff),
		Reload:    v&(1<<29) != 0,
		Faulted:   v&(1<<30) != 0,
		Busy:      v&(1<<31) != 0,
	}
}

// Encode returns the register's contents.
func (s EngineState) Encode() EngineStatus {
	return EngineStatus(s.TSGID&0xfff) | EngineStatus(s.Context&7)<<13 | EngineStatus(s.NextTSGID&0xfff)<<16 |
		bit(s.Reload, 29) | bit(s.Faulted, 30) | bit(s.Busy, 31)
}

func bit(b bool, n uint) EngineStatus {
	if b {
		return 1 << n
	}
	return 0
}

// EngineChannel is the contents of NV_RUNLIST_ENGINE_STATUS_CHANNEL.
type EngineChannel uint32

// EncodeEngineChannel returns the register's contents while channel id is on the engine. If valid
// is not set, no channel is.
func EncodeEngineChannel(id uint32, valid bool) EngineChannel {
	if !valid {
		return 0
	}
	return EngineChannel(id&0xfff | 1<<15)
}

// ID returns the channel on the engine, bits 11:0, and reports whether there is one, bit 15.
func (v EngineChannel) ID() (id uint32, valid bool) { return uint32(v & 0xfff), v&(1<<15) != 0 }

// ChannelEntry is the contents of NV_CHRAM_CHANNEL: one channel's entry in the table that LoGA §4.1
// calls the channels table.
type ChannelEntry uint32

// Bits of a channel's entry.
const (
	ChannelEnable       ChannelEntry = 1 << 1  // in use
	ChannelNext         ChannelEntry = 1 << 2  // chosen to come next
	ChannelBusy         ChannelEntry = 1 << 3  // any of the states below that mean work
	ChannelPBDMAFaulted ChannelEntry = 1 << 4  // its fetcher met an error
	ChannelEngFaulted   ChannelEntry = 1 << 5  // its engine met an error
	ChannelOnPBDMA      ChannelEntry = 1 << 6  // its commands are being fetched
	ChannelOnEng        ChannelEntry = 1 << 7  // its context is on the engine
	ChannelPending      ChannelEntry = 1 << 8  // it has work that is not being fetched yet
	ChannelCtxReload    ChannelEntry = 1 << 9  // its context is to be loaded again
	ChannelPBDMABusy    ChannelEntry = 1 << 10 // its fetcher has work
	ChannelEngBusy      ChannelEntry = 1 << 11 // its engine has work of it
	ChannelAcquireFail  ChannelEntry = 1 << 12 // it waits for a semaphore
)

// Working reports whether the channel executes or has work waiting. LoGA §4.1 tells idle from busy
// by it.
func (v ChannelEntry) Working() bool {
	return v&(ChannelBusy|ChannelPending|ChannelPBDMABusy|ChannelEngBusy) != 0
}

var channelBits = [...]struct {
	bit  ChannelEntry
	name string
}{
	{ChannelEnable, "enable"}, {ChannelNext, "next"}, {ChannelBusy, "busy"},
	{ChannelPBDMAFaulted, "pbdma-faulted"}, {ChannelEngFaulted, "eng-faulted"}, {ChannelOnPBDMA, "on-pbdma"},
	{ChannelOnEng, "on-eng"}, {ChannelPending, "pending"}, {ChannelCtxReload, "ctx-reload"},
	{ChannelPBDMABusy, "pbdma-busy"}, {ChannelEngBusy, "eng-busy"}, {ChannelAcquireFail, "acquire-fail"},
}

// String lists the bits that are set.
func (v ChannelEntry) String() string {
	var names []string
	for _, b := range channelBits {
		if v&b.bit != 0 {
			names = append(names, b.name)
			v &^= b.bit
		}
	}
	if v != 0 || len(names) == 0 {
		names = append(names, fmt.Sprintf("%#x", uint32(v)))
	}
	return strings.Join(names, "|")
}
