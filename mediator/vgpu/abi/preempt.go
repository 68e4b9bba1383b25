package abi

import (
	"encoding/binary"
	"fmt"
	"math"
)

// AttributePreempt marks a launch whose function is a kernel in one of the forms that leave the GPU
// on request (see [PreemptForm]), transformed in the guest; its value is a [Preempt]. The launch's
// grid is the original kernel's, and so are its parameters, ParamBytes of them. The device appends
// the [PreemptArgs] as the function's last parameter and runs the function as often as needed until
// the whole grid is done. It needs [FeaturePreempt].
const AttributePreempt AttributeID = 0x1002

// PreemptForm is a form of a kernel that can leave the GPU on request. The values are bits, so |
// joins them to a set.
type PreemptForm uint32

// The forms (docs/results/preemption-on-h100.md; EffiSha §4 and §5 for the third).
const (
	// PreemptSingle is the early exit without a loop: a block checks once as it starts, and runs
	// its one task or notes it as skipped.
	PreemptSingle PreemptForm = 1
	// PreemptCoarse is the early exit, coarsened: a block checks once and runs Group consecutive
	// tasks, or notes them as skipped.
	PreemptCoarse PreemptForm = 2
	// PreemptPersistent is the papers' form: blocks loop over tasks, fetch Group at a time, and
	// check before every Every-th fetch.
	PreemptPersistent PreemptForm = 4

	preemptForms = PreemptSingle | PreemptCoarse | PreemptPersistent
)

var preemptFormNames = []string{"single", "coarse", "persistent"}

// String returns the form's name, or the names of a set of forms joined by "|".
func (f PreemptForm) String() string { return bitNames(uint64(f), preemptFormNames) }

// EarlyExit reports whether blocks note what they skip, to be launched again by number. A
// persistent kernel goes on from a counter instead.
func (f PreemptForm) EarlyExit() bool { return f == PreemptSingle || f == PreemptCoarse }

// Bounds of a preemptible launch.
const (
	// MaxPreemptTasks is the most blocks that the original grid of a preemptible launch may have.
	MaxPreemptTasks = math.MaxInt32
	// MaxPreemptGroup and MaxPreemptEvery bound Group and Every. A kernel that checks once in as
	// much work as both allow is not preemptible in practice; the host finds that out by a
	// deadline, so the bounds need not be narrow.
	MaxPreemptGroup = 1 << 20
	MaxPreemptEvery = 1 << 20
)

// Preempt is the value of [AttributePreempt].
type Preempt struct {
	// Form is one form.
	Form PreemptForm
	// Group is how many consecutive tasks a block runs after one check (1 for PreemptSingle), or
	// how many a persistent block fetches at a time.
	Group uint32
	// Every is how many fetches a persistent block makes for each check; 1 for the other forms.
	Every uint32
}

// Attribute returns the launch attribute.
func (p Preempt) Attribute() Attribute {
	a := Attribute{ID: AttributePreempt}
	a.PutUint32(0, uint32(p.Form))
	a.PutUint32(1, p.Group)
	a.PutUint32(2, p.Every)
	return a
}

// DecodePreempt reads the value of an [AttributePreempt]; errors wrap [StatusMalformed] where
// reserved bytes are set and [StatusInvalidValue] where a number is out of range.
func DecodePreempt(a *Attribute) (Preempt, error) {
	p := Preempt{Form: PreemptForm(a.Uint32(0)), Group: a.Uint32(1), Every: a.Uint32(2)}
	for _, b := range a.Value[12:] {
		if b != 0 {
			return p, errReserved
		}
	}
	switch p.Form {
	case PreemptSingle, PreemptCoarse, PreemptPersistent:
	default:
		return p, fmt.Errorf("preemptible form %#x: %w", uint32(p.Form), StatusInvalidValue)
	}
	switch {
	case p.Group < 1 || p.Group > MaxPreemptGroup || p.Form == PreemptSingle && p.Group != 1:
		return p, fmt.Errorf("%v with groups of %d tasks: %w", p.Form, p.Group, StatusInvalidValue)
	case p.Every < 1 || p.Every > MaxPreemptEvery || p.Form.EarlyExit() && p.Every != 1:
		return p, fmt.Errorf("%v with a check every %d fetches: %w", p.Form, p.Every, StatusInvalidValue)
	}
	return p, nil
}

// PreemptArgsBytes is the size of the parameter that the device appends to a preemptible launch; it
// is aligned to 8.
const PreemptArgsBytes = 96

// Layout of the appended parameter. The bytes behind word are zero.
const (
	preemptControl  = 0  // u64
	preemptList     = 8  // u64
	preemptSkipped  = 16 // u64
	preemptFirst    = 24 // u32
	preemptCount    = 28 // u32
	preemptTasks    = 32 // u32
	preemptGridX    = 36 // u32
	preemptGridY    = 40 // u32
	preemptGridZ    = 44 // u32
	preemptGroup    = 48 // u32
	preemptEvery    = 52 // u32
	preemptCapacity = 56 // u32
	preemptFlags    = 60 // u32
	preemptWord     = 64 // u64
	preemptZero     = 72
)

// Flags of [PreemptArgs].
const (
	// PreemptWhole says that the hardware's grid is the original grid in its shape, so that a
	// block's index is its task's (the first launch of PreemptSingle). Otherwise the hardware's
	// grid is Count blocks in one dimension.
	PreemptWhole uint32 = 1 << 0
)

// PreemptArgs are the parameters that the device adds to a preemptible kernel's own, for one
// launch. A unit is the work of an early-exit block: unit u is the tasks from u·Group to min(Tasks,
// (u+1)·Group)-1, and task t is the original grid's block (t mod X, t/X mod Y, t/(X·Y)).
//
// The unit of a block is, with PreemptWhole, the task of its own index; otherwise entry blockIdx.x
// of the list, if there is one, or First + blockIdx.x.
type PreemptArgs struct {
	Control uint64 // GPU address of the control block, a multiple of 128
	List    uint64 // GPU address of the units to run, u32 each; 0: consecutive units from First
	Skipped uint64 // GPU address of the list (u32) or bitmap that records skipped units; early exit only

	First uint32 // the first unit, if List is 0
	Count uint32 // units to run, which is the hardware's blocks; early exit only
	Tasks uint32 // blocks of the original grid
	Grid  [3]uint32
	Group uint32 // tasks of a unit, or of a fetch
	Every uint32 // fetches for each check
	// Capacity is how many units the list at Skipped holds. 0 means that Skipped is a bitmap: bit u
	// mod 32 of word u/32 is set for each skipped unit u.
	Capacity uint32
	Flags    uint32
	// Word is the address of a word in host memory with the meaning of ControlEvict, for kernels
	// made to read that, like the papers'; 0 for all others.
	Word uint64
}

// Encode writes the arguments to b, which has at least PreemptArgsBytes bytes.
func (a *PreemptArgs) Encode(b []byte) {
	b = b[:PreemptArgsBytes:PreemptArgsBytes]
	le := binary.LittleEndian
	le.PutUint64(b[preemptControl:], a.Control)
	le.PutUint64(b[preemptList:], a.List)
	le.PutUint64(b[preemptSkipped:], a.Skipped)
	le.PutUint32(b[preemptFirst:], a.First)
	le.PutUint32(b[preemptCount:], a.Count)
	le.PutUint32(b[preemptTasks:], a.Tasks)
	le.PutUint32(b[preemptGridX:], a.Grid[0])
	le.PutUint32(b[preemptGridY:], a.Grid[1])
	le.PutUint32(b[preemptGridZ:], a.Grid[2])
	le.PutUint32(b[preemptGroup:], a.Group)
	le.PutUint32(b[preemptEvery:], a.Every)
	le.PutUint32(b[preemptCapacity:], a.Capacity)
	le.PutUint32(b[preemptFlags:], a.Flags)
	le.PutUint64(b[preemptWord:], a.Word)
	clear(b[preemptZero:])
}

// PreemptArgsFields lists the fields of the appended parameter in order.
var PreemptArgsFields = []Field{
	{"control", preemptControl, 8}, {"list", preemptList, 8}, {"skipped", preemptSkipped, 8},
	{"first", preemptFirst, 4}, {"count", preemptCount, 4}, {"tasks", preemptTasks, 4},
	{"grid_x", preemptGridX, 4}, {"grid_y", preemptGridY, 4}, {"grid_z", preemptGridZ, 4},
	{"group", preemptGroup, 4}, {"every", preemptEvery, 4}, {"capacity", preemptCapacity, 4}, {"flags", preemptFlags, 4},
	{"word", preemptWord, 8},
}

// The control block of a preemptible launch: memory of the context on the GPU, of u32 words each on
// a line of 128 bytes of its own. A word that many blocks read costs more than the kernel if it
// shares a line with a written one (docs/results/preemption-on-h100.md).
const (
	// ControlEvict, written by the host: blocks on SMs with a lower number leave.
	ControlEvict = 0x000
	// ControlNext is the next task to fetch; persistent kernels add to it.
	ControlNext = 0x080
	// ControlSkipped counts the units that early-exit blocks have noted as skipped, in the list or
	// the bitmap.
	ControlSkipped = 0x180
	// ControlInside is how many persistent blocks run.
	ControlInside = 0x200
	// ControlBytes is the size of the block, ControlAlign its alignment.
	ControlBytes = 0x280
	ControlAlign = 128
)

// Values of [ControlEvict].
const (
	EvictNone uint32 = 0
	EvictAll  uint32 = math.MaxUint32
)

// ControlWords lists the words of the control block.
var ControlWords = []Word{
	{"EVICT", ControlEvict, "host"},
	{"NEXT", ControlNext, "kernel"},
	{"SKIPPED", ControlSkipped, "kernel"},
	{"INSIDE", ControlInside, "kernel"},
}
