package nvreg

import (
	"errors"
	"fmt"
)

// Registers of a runlist, from its RunlistBase.
const (
	RunlistChannelConfig       = 0x004 // NV_RUNLIST_CHANNEL_CONFIG
	RunlistEngineStatus0       = 0x200 // NV_RUNLIST_ENGINE_STATUS0(engine), + 64*engine
	RunlistEngineStatusChannel = 0x208 // NV_RUNLIST_ENGINE_STATUS_CHANNEL(engine, 0), + 64*engine

	engineStride = 64
)

// Errors of [FindGraphics]. The text tells what was read.
var (
	// ErrNoDevice means that nothing answers, or not with a register's contents.
	ErrNoDevice = errors.New("the GPU's registers can't be read")
	// ErrTooOld means a chip from before Ampere, whose registers are elsewhere.
	ErrTooOld = errors.New("GPU is older than Ampere")
	// ErrNoGraphics means that the device table has no graphics engine with a runlist.
	ErrNoGraphics = errors.New("no graphics engine in the device table")
)

// ChannelConfig is the contents of NV_RUNLIST_CHANNEL_CONFIG.
type ChannelConfig struct {
	Log2Channels uint8  // 3:0
	Base         uint32 // 31:4, where in BAR0 the channel entries (CHRAM) are, bytes
}

// DecodeChannelConfig decodes the register.
func DecodeChannelConfig(v uint32) ChannelConfig {
	return ChannelConfig{Log2Channels: uint8(v & 0xf), Base: v &^ 0xf}
}

// Encode returns the register's contents.
func (c ChannelConfig) Encode() uint32 { return uint32(c.Log2Channels&0xf) | c.Base&^0xf }

// Runlist tells where to read the state of one engine and of the channels that feed it.
type Runlist struct {
	Base     uint32 // offset of the runlist's registers
	Engine   uint8  // the engine's number on this runlist
	Entries  uint32 // offset of the channel entries
	Channels uint32 // number of entries
}

// FindGraphics finds the runlist of the graphics engine, which also executes compute work.
func FindGraphics(s Space) (Runlist, error) {
	boot := s.Load(PMCBoot0)
	if refused(boot) || boot == 0 {
		return Runlist{}, fmt.Errorf("%w: NV_PMC_BOOT_0 is %#x", ErrNoDevice, boot)
	}
	if a := DecodeBoot0(boot).Architecture; a < Ampere {
		return Runlist{}, fmt.Errorf("%w: NV_PMC_BOOT_0 is %#x, architecture %#x", ErrTooOld, boot, uint8(a))
	}
	devices, err := Devices(s)
	if err != nil {
		return Runlist{}, fmt.Errorf("%w: %w", ErrNoDevice, err)
	}
	for _, d := range devices {
		if d.Type != DeviceGraphics || !d.IsEngine || d.RunlistBase == 0 {
			continue
		}
		v := s.Load(d.RunlistBase + RunlistChannelConfig)
		if refused(v) {
			return Runlist{}, fmt.Errorf("%w: NV_RUNLIST_CHANNEL_CONFIG at %#x is %#x",
				ErrNoDevice, d.RunlistBase+RunlistChannelConfig, v)
		}
		c := DecodeChannelConfig(v)
		return Runlist{Base: d.RunlistBase, Engine: d.Engine, Entries: c.Base, Channels: 1 << c.Log2Channels}, nil
	}
	return Runlist{}, fmt.Errorf("%w: %d devices", ErrNoGraphics, len(devices))
}

// StatusOffset returns the offset of the engine's NV_RUNLIST_ENGINE_STATUS0, which a sampler polls.
func (r Runlist) StatusOffset() uint32 {
	return r.Base + RunlistEngineStatus0 + engineStride*uint32(r.Engine)
}

// ChannelOffset returns the offset of the engine's NV_RUNLIST_ENGINE_STATUS_CHANNEL.
func (r Runlist) ChannelOffset() uint32 {
	return r.Base + RunlistEngineStatusChannel + engineStride*uint32(r.Engine)
}

// EntryOffset returns the offset of NV_CHRAM_CHANNEL, the entry of channel id.
func (r Runlist) EntryOffset(id uint32) uint32 { return r.Entries + 4*id }

// Status reads the engine's status.
func (r Runlist) Status(s Space) EngineStatus { return EngineStatus(s.Load(r.StatusOffset())) }

// Channel reads which channel of the group is on the engine.
func (r Runlist) Channel(s Space) EngineChannel { return EngineChannel(s.Load(r.ChannelOffset())) }

// Entry reads the entry of channel id. A channel that the runlist doesn't have is not in use.
func (r Runlist) Entry(s Space, id uint32) ChannelEntry {
	if id >= r.Channels {
		return 0
	}
	return ChannelEntry(s.Load(r.EntryOffset(id)))
}
