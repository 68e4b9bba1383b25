package simt

const (
	lanes = 32
	full  = ^uint32(0) // the mask of all lanes
)

// opFunc carries out one instruction for the lanes of w.mask.
type opFunc func(w *warp, in *inst)

// inst is one compiled instruction. Operands are indices of registers; which
// bank, the operation knows.
type inst struct {
	op         opFunc
	d, a, b, c uint32
	run        uint32 // instructions from here to the next that may change the path; 0: this one may
	cost       uint64 // cycles of those instructions
	imm        uint64 // an address offset, or whatever the operation makes of it
	x          *extra // what few instructions have
}

// extra holds an instruction's rarer parts.
type extra struct {
	line    uint32
	index   int    // of the PTX instruction in its function
	guarded opFunc // the operation under a guard
	guard   uint32 // its predicate
	unless  uint32 // full for @!p
	mem     *access

	votes, votesNot uint32 // bar.red: the predicate, and full for its complement

	target, rpc int32   // branches: where to, and where the ways meet again (-1: nowhere)
	local       bool    // target and rpc are known already
	weight      int32   // a backward branch: how much a round counts towards giving way
	targets     []int32 // of brx.idx
	call        *callSite
	fn          *function // ret: of which
	exchange    *exchange // between lanes
}

// program is a kernel compiled together with all that it can call.
type program struct {
	code          []inst
	n32, n64      int // registers of each bank
	np            int // predicates
	uniforms      []uniform
	perWarp       []special // special registers, set when a warp is made
	perBlock      []special // those that differ from block to block
	entry         int32
	costs         CostModel
	patience      int32                // spinLimit, save in tests
	localBytes    uint32               // a thread's local memory
	sites         int                  // memory operations
	entries       map[uint64]*function // by address
	dynamicShared uint32               // where dynamic shared memory begins, the last part of it
}

// uniform is a register that holds the same value in all lanes for a whole
// launch: a constant, or a value of the parameter buffer.
type uniform struct {
	reg   uint32
	wide  bool // of the 64-bit bank
	bits  uint64
	param bool // take size bytes at offset bits of the parameters
	size  uint8
	sext  bool
	image bool // add where the module's variables are
}
