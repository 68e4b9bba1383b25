package simt

const (
	lanes = 32
	full  = ^uint32(0) // the mask of all lanes
)

// opFunc executes one instruction for the lanes of w.mask.
type opFunc func(w *warp, in *inst)

// inst is one compiled instruction. Operands are register indices; the operation determines the
// bank.
type inst struct {
	op         opFunc
	d, a, b, c uint32
	run        uint32 // instructions from here to the next that may change the path; 0 if this one may
	cost       uint64 // cycles of those instructions
	imm        uint64 // an address offset, or another constant of the operation
	x          *extra // fields that few instructions have
}

// extra holds the fields that few instructions have.
type extra struct {
	line    uint32
	index   int    // of the PTX instruction in its function
	guarded opFunc // the operation under a guard
	guard   uint32 // its predicate
	unless  uint32 // full for @!p
	mem     *access

	votes, votesNot uint32 // bar.red: the predicate, and full for its complement

	target, rpc int32   // of branches: the target and the reconvergence point (-1: none)
	local       bool    // target and rpc are program counters already
	weight      int32   // of a backward branch: how much an iteration counts towards yielding
	targets     []int32 // of brx.idx
	call        *callSite
	fn          *function // of ret
	exchange    *exchange // of an exchange between lanes
	note        *Op       // what a trace says of the PTX instruction; nil for a part of one, or if not asked for
}

// program is a kernel compiled with all functions that it can call.
type program struct {
	code          []inst
	n32, n64      int // registers of each bank
	np            int // predicates
	uniforms      []uniform
	perWarp       []special // special registers that are set when a warp is created
	perBlock      []special // special registers that differ between blocks
	entry         int32
	costs         CostModel
	yieldAfter    int32                // spinLimit, except in tests
	localBytes    uint32               // local memory of a thread
	sites         int                  // number of memory operations
	entries       map[uint64]*function // by address
	dynamicShared uint32               // start of dynamic shared memory, the last part
}

// uniform is a register with the same value in all lanes for a whole launch: a constant, or a value
// from the parameter buffer.
type uniform struct {
	reg   uint32
	wide  bool // of the 64-bit bank
	bits  uint64
	param bool // the value is size bytes at offset bits of the parameters
	size  uint8
	sext  bool
	image bool // add the address of the module's variables
}
