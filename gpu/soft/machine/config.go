package machine

import (
	"fmt"
	"time"
)

// Mode is how the dispatcher chooses what executes.
type Mode uint8

// The modes; the package comment describes them.
const (
	Exclusive Mode = iota
	Slices
	CoRun
)

var modeNames = [...]string{"exclusive", "slices", "co-run"}

// String returns the mode's name in the configuration.
func (m Mode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return fmt.Sprintf("Mode(%d)", uint8(m))
}

// ParseMode is the inverse of String. An empty string is Exclusive.
func ParseMode(s string) (Mode, error) {
	for i, name := range modeNames {
		if s == name {
			return Mode(i), nil
		}
	}
	if s == "" {
		return Exclusive, nil
	}
	return 0, fmt.Errorf("dispatcher mode %q: want one of %q", s, modeNames)
}

// Resources are the resources of an SM, or those that a thread block occupies.
type Resources struct {
	Blocks    int
	Threads   int
	Registers int
	Shared    uint64 // bytes
}

// times returns how often need fits into r. A zero field of need is not a limit.
func (r Resources) times(need Resources) int {
	n := r.Blocks
	if need.Blocks > 0 {
		n = min(n, r.Blocks/need.Blocks)
	}
	if need.Threads > 0 {
		n = min(n, r.Threads/need.Threads)
	}
	if need.Registers > 0 {
		n = min(n, r.Registers/need.Registers)
	}
	if need.Shared > 0 {
		n = min(n, int(min(r.Shared/need.Shared, uint64(n))))
	}
	return n
}

// add returns r plus n times need.
func (r Resources) add(need Resources, n int) Resources {
	return Resources{
		Blocks:    r.Blocks + n*need.Blocks,
		Threads:   r.Threads + n*need.Threads,
		Registers: r.Registers + n*need.Registers,
		Shared:    r.Shared + uint64(n)*need.Shared, // wraps and comes back for a negative n
	}
}

// Config describes a machine. A zero field stands for the default stated with it; a negative time
// means none.
type Config struct {
	Mode Mode
	SMs  int       // 8
	SM   Resources // 32 blocks, 2,048 threads, 65,536 registers, 100 KiB shared
	// Slice is how long a group runs under [Slices] if others wait, 2,048 µs. [Group.SetSlice]
	// changes it for one group.
	Slice time.Duration
	// SliceSwitch is the cost of a switch from one slice to the next, 84 µs. ReadySwitch is the
	// cost of a switch to a group that had no work before, 135 µs. Both were measured on an H100.
	SliceSwitch, ReadySwitch time.Duration
	// ExclusiveSwitch is the cost of a switch between groups under [Exclusive], 1 µs: GPUs that
	// take turns by command switch contexts in next to no time (LoGA §2.2).
	ExclusiveSwitch time.Duration
	// Overhead is the GPU's cost of a launch, 2 µs, which is added to each.
	Overhead time.Duration
	// EngineLag and HostLag are the delays with which the engine's status and the channels' entries
	// change.
	EngineLag, HostLag time.Duration
	// Channels limits the channels of all groups together, 2,048. Groups limits the groups, 4,095.
	Channels, Groups int
	// Live means that an event that Step notices late happens late: a launch whose end is noticed
	// late has run until then, since that is what the registers showed. The difference is counted
	// as overrun.
	Live bool
}

// WithDefaults returns c with zero fields filled in.
func (c Config) WithDefaults() Config {
	setDefault(&c.SMs, 8)
	setDefault(&c.SM, Resources{Blocks: 32, Threads: 2048, Registers: 65536, Shared: 100 << 10})
	setDefault(&c.Slice, 2048*time.Microsecond)
	setDefault(&c.SliceSwitch, 84*time.Microsecond)
	setDefault(&c.ReadySwitch, 135*time.Microsecond)
	setDefault(&c.ExclusiveSwitch, time.Microsecond)
	setDefault(&c.Overhead, 2*time.Microsecond)
	setDefault(&c.Channels, 2048)
	setDefault(&c.Groups, 4095)
	for _, d := range []*time.Duration{&c.SliceSwitch, &c.ReadySwitch, &c.ExclusiveSwitch, &c.Overhead, &c.EngineLag, &c.HostLag} {
		*d = max(*d, 0)
	}
	return c
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate returns an error if c, with defaults filled in, is invalid.
func (c Config) Validate() error {
	c = c.WithDefaults()
	switch {
	case c.Mode > CoRun:
		return fmt.Errorf("machine: unknown mode %d", c.Mode)
	case c.SMs < 1 || c.SMs > 1024:
		return fmt.Errorf("machine: %d SMs: want 1 to 1024", c.SMs)
	case c.SM.Blocks < 1 || c.SM.Threads < 1 || c.SM.Registers < 1:
		return fmt.Errorf("machine: an SM of %+v runs nothing", c.SM)
	case c.Slice < time.Microsecond:
		return fmt.Errorf("machine: slice of %v: want at least 1µs", c.Slice)
	case c.Channels < 1 || c.Channels > 2048:
		return fmt.Errorf("machine: %d channels: want 1 to 2048", c.Channels)
	case c.Groups < 1 || c.Groups > 4095:
		return fmt.Errorf("machine: %d groups: want 1 to 4095", c.Groups)
	}
	return nil
}

// Occupancy returns the number of blocks that an SM holds at a time, or 0 if one does not fit.
func (c Config) Occupancy(need Resources) int {
	need.Blocks = 1
	return c.SM.times(need)
}

// Waves returns the number of rounds that the blocks take with the machine to themselves, if all
// take equally long. It returns 0 if a block does not fit an SM.
func (c Config) Waves(blocks uint64, need Resources) uint64 {
	n := uint64(c.Occupancy(need)) * uint64(c.SMs)
	if n == 0 {
		return 0
	}
	return (blocks + n - 1) / n
}
