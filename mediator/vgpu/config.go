package vgpu

import (
	"cmp"
	"fmt"
	"math/bits"
	"time"

	"vgpud/mediator/vgpu/abi"
)

// Config configures a virtual GPU. The zero value of each field means its default.
type Config struct {
	// SharedBytes is the size of BAR2: a power of two from [abi.MinSharedBytes] to
	// [abi.MaxSharedBytes], by default [abi.DefaultSharedBytes].
	SharedBytes int64
	// Contexts and Channels bound what the guest can have at once, up to [abi.MaxContexts] and
	// [abi.MaxChannels]; by default 16 and 64.
	Contexts int
	Channels int
	// Vectors is the number of MSI vectors, a power of two up to 32; by default 32.
	Vectors int
	// MaxRingEntries bounds a ring, up to [abi.MaxRingEntries]; by default 16384.
	MaxRingEntries int
	// MemoryBytes is the GPU memory that the guest may use, shown in a register. The executor
	// enforces it.
	MemoryBytes uint64
	// PollWindow is how long the executor polls before it sleeps, shown in a register.
	PollWindow time.Duration
	// Leaving returns within what time a kernel should leave the GPU when told to, 0 if it is not told
	// to for other guests, and within what time the hardware takes it off by itself, 0 if it does
	// not; nil: both are always 0. It is called at each read of a register, from any goroutine.
	Leaving func() (latency, suspension time.Duration)
	// Features is what the executor supports; by default nothing optional.
	Features abi.Features
	// UUID identifies this virtual GPU to the guest's programs, as CUDA's device UUID; zero: it is
	// not told.
	UUID [abi.UUIDBytes]byte
}

const (
	defaultContexts       = 16
	defaultChannels       = 64
	defaultVectors        = 32
	defaultMaxRingEntries = 1 << 14
)

// RingsBytes returns how many bytes of BAR2 after the header are for rings. The configuration must
// have its defaults filled in, as [Device.Config] returns it.
func (c Config) RingsBytes() int { return abi.RingsBytes(c.SharedBytes, c.Channels, c.MaxRingEntries) }

// withDefaults returns the configuration with defaults filled in, or an error if it is invalid.
func (c Config) withDefaults() (Config, error) {
	c.SharedBytes = cmp.Or(c.SharedBytes, abi.DefaultSharedBytes)
	c.Contexts = cmp.Or(c.Contexts, defaultContexts)
	c.Channels = cmp.Or(c.Channels, defaultChannels)
	c.Vectors = cmp.Or(c.Vectors, defaultVectors)
	c.MaxRingEntries = cmp.Or(c.MaxRingEntries, defaultMaxRingEntries)
	switch {
	case c.SharedBytes < abi.MinSharedBytes || c.SharedBytes > abi.MaxSharedBytes || bits.OnesCount64(uint64(c.SharedBytes)) != 1:
		return c, fmt.Errorf("shared memory of %d bytes: must be a power of two from %d to %d", c.SharedBytes, int64(abi.MinSharedBytes), int64(abi.MaxSharedBytes))
	case c.Contexts < 1 || c.Contexts > abi.MaxContexts:
		return c, fmt.Errorf("%d contexts: must be from 1 to %d", c.Contexts, abi.MaxContexts)
	case c.Channels < 1 || c.Channels > abi.MaxChannels:
		return c, fmt.Errorf("%d channels: must be from 1 to %d", c.Channels, abi.MaxChannels)
	case c.Vectors < 1 || c.Vectors > 32 || bits.OnesCount(uint(c.Vectors)) != 1:
		return c, fmt.Errorf("%d vectors: must be a power of two from 1 to 32", c.Vectors)
	case c.MaxRingEntries < abi.MinRingEntries || c.MaxRingEntries > abi.MaxRingEntries || bits.OnesCount(uint(c.MaxRingEntries)) != 1:
		return c, fmt.Errorf("rings of %d entries: must be a power of two from %d to %d", c.MaxRingEntries, abi.MinRingEntries, abi.MaxRingEntries)
	case c.PollWindow < 0 || c.PollWindow > time.Second:
		return c, fmt.Errorf("polling window of %v: must be from 0 to 1s", c.PollWindow)
	}
	return c, nil
}
