package preemption

import (
	"errors"
	"fmt"
	"math"

	"vgpud/mediator/vgpu/abi"
)

// Bounds.
const (
	// MaxList is the most units that a list of units to run has.
	MaxList = 65_536
	// MaxSkippedList is the most units of a launch that records what it skips in a list. A launch of
	// more has a bitmap, for which no block waits until an atomic operation has answered, and of
	// which less is read back.
	MaxSkippedList = 1_024
	// MaxUnits is the most units that an early exit can have: a bitmap of 1 MiB.
	MaxUnits = 8_388_608
	// MaxStalls is how many times in a row a launch may be evicted before it got anything done.
	// After that it asks to stay ([Plan.Stay]), so that evictions can't keep it from ever ending.
	MaxStalls = 16
	// MaxUnasked is how many times blocks may leave without having been asked before the launch
	// ends with [ErrUnasked]: its kernel, or another of the guest's, sets the evict word itself. It
	// is not 1 because a word that was written while a launch ended may affect the next.
	MaxUnasked = 64
)

// Errors. All end the launch: what it did so far stays done.
var (
	// ErrInvalid: no launch can have the configuration.
	ErrInvalid = errors.New("invalid preemptible launch")
	// ErrTooManyUnits: the grid is too large for this form and group. Launch the original kernel,
	// or choose another form.
	ErrTooManyUnits = errors.New("too many units for a preemptible launch")
	// ErrReadback: what the kernel left in its control block or list is impossible.
	ErrReadback = errors.New("the kernel's record of its progress is damaged")
	// ErrUnasked: blocks left too often without having been asked to.
	ErrUnasked = errors.New("the kernel keeps leaving unasked")
)

// Config describes a launch.
type Config struct {
	// Form is the kernel's form.
	Form abi.PreemptForm
	// Grid is the original grid, in blocks.
	Grid [3]uint32
	// Group is how many tasks a unit has (coarse) or how many are fetched at a time (persistent); 1
	// for single.
	Group uint32
	// Every is how many fetches a persistent block makes for each check of the evict word; 1 for
	// other forms.
	Every uint32
	// Resident is how many of a persistent kernel's blocks the GPU holds at a time. Other forms
	// don't use it.
	Resident uint32
}

// tasks checks the configuration and returns how many tasks it has.
func (c *Config) tasks() (uint32, error) {
	g := c.Grid
	if g[0] == 0 || g[1] == 0 || g[2] == 0 {
		return 0, fmt.Errorf("a grid of %d×%d×%d blocks: %w", g[0], g[1], g[2], ErrInvalid)
	}
	// Two factors never overflow 64 bits, and a third can't once they are bounded.
	tasks := uint64(g[0]) * uint64(g[1])
	if tasks <= abi.MaxPreemptTasks {
		tasks *= uint64(g[2])
	}
	if tasks > abi.MaxPreemptTasks {
		return 0, fmt.Errorf("a grid of %d×%d×%d blocks, at most %d in all: %w", g[0], g[1], g[2], abi.MaxPreemptTasks, ErrTooManyUnits)
	}
	single := c.Form == abi.PreemptSingle
	switch {
	case !single && c.Form != abi.PreemptCoarse && c.Form != abi.PreemptPersistent:
		return 0, fmt.Errorf("form %v: %w", c.Form, ErrInvalid)
	case c.Group == 0 || c.Group > abi.MaxPreemptGroup || single && c.Group != 1:
		return 0, fmt.Errorf("%v with groups of %d tasks: %w", c.Form, c.Group, ErrInvalid)
	case c.Every == 0 || c.Every > abi.MaxPreemptEvery || c.Form.EarlyExit() && c.Every != 1:
		return 0, fmt.Errorf("%v with a look every %d fetches: %w", c.Form, c.Every, ErrInvalid)
	case c.Form == abi.PreemptPersistent && c.Resident == 0:
		return 0, fmt.Errorf("persistent with no block resident: %w", ErrInvalid)
	}
	return uint32(tasks), nil
}

// Launch is one launch of a preemptible kernel, from its start to the end of its last task. It is
// not safe for concurrent use.
type Launch struct {
	c     Config
	tasks uint32
	units uint32 // early exit

	left     *units // early exit, once something was skipped: the units that have not run
	piece    piece  // early exit: the units of the launch under way
	list     []uint32
	finished uint32 // tasks
	blocks   uint64 // persistent: of all launches since the last readback

	begun, under bool // First was called; a launch is under way
	stalls       int  // launches in a row that got nothing done
	unasked      int  // launches that left something undone without having been asked
	launches     int
	err          error
}

// New returns a launch. Its errors wrap [ErrInvalid] or [ErrTooManyUnits].
func New(c Config) (*Launch, error) {
	l := new(Launch)
	if err := l.Reset(c); err != nil {
		return nil, err
	}
	return l, nil
}

// Reset makes l a new launch, and reuses its memory. Its errors are New's, and leave l unusable.
func (l *Launch) Reset(c Config) error {
	tasks, err := c.tasks()
	if err != nil {
		return err
	}
	*l = Launch{c: c, tasks: tasks, list: l.list[:0]}
	if c.Form.EarlyExit() {
		l.units = ceil(tasks, c.Group)
		if l.units > MaxUnits {
			return fmt.Errorf("%d units of %d blocks, at most %d: %w", l.units, c.Group, MaxUnits, ErrTooManyUnits)
		}
		return nil
	}
	// Every block may fetch once when nothing is left; the counter must not overflow.
	if l.overrun(uint64(l.hardwareBlocks())) {
		return fmt.Errorf("%d blocks that fetch %d of %d tasks at a time: %w", l.hardwareBlocks(), c.Group, tasks, ErrTooManyUnits)
	}
	return nil
}

// overrun reports whether so many persistent blocks could make the counter of tasks overflow.
func (l *Launch) overrun(blocks uint64) bool {
	return uint64(l.tasks)+(blocks+1)*uint64(l.c.Group) > math.MaxUint32
}

// hardwareBlocks returns how many persistent blocks a launch has: what the GPU holds, or fewer if
// there are fewer fetches.
func (l *Launch) hardwareBlocks() uint32 {
	return min(l.c.Resident, max(1, ceil(l.tasks-l.finished, l.c.Group)))
}

// Tasks returns how many blocks the original grid has.
func (l *Launch) Tasks() uint32 { return l.tasks }

// Remaining returns how many tasks had not run at the last readback.
func (l *Launch) Remaining() uint32 { return l.tasks - l.finished }

// Launches returns how many plans were made.
func (l *Launch) Launches() int { return l.launches }

// Unasked returns how many launches left something undone without having been asked.
func (l *Launch) Unasked() int { return l.unasked }

// ListBytes returns how much GPU memory the lists of units to run need.
func (l *Launch) ListBytes() uint64 { return 4 * uint64(min(l.units, MaxList)) }

// SkippedBytes returns how much GPU memory the record of skipped units needs: for a list, or for a
// bitmap and the lists of later launches.
func (l *Launch) SkippedBytes() uint64 {
	return max(4*uint64(min(l.units, MaxSkippedList)), l.bitmapBytes())
}

// bitmapBytes returns the size of the bitmap, 0 if a list is enough.
func (l *Launch) bitmapBytes() uint64 {
	if l.units <= MaxSkippedList {
		return 0
	}
	return 4 * uint64(ceil(l.units, 32))
}

// ceil returns a/b rounded up.
func ceil(a, b uint32) uint32 { return uint32((uint64(a) + uint64(b) - 1) / uint64(b)) }
