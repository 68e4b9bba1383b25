package simt

import (
	"vgpud/gpu/soft/arith"
	"vgpud/ptx"
)

// opcodes holds the handler of every instruction that this GPU executes.
var opcodes map[string]handler

func init() {
	opcodes = map[string]handler{
		"add": arithmetic("add", 2), "sub": arithmetic("sub", 2), "mul": arithmetic("mul", 2), "div": arithmetic("div", 2),
		"rem": arithmetic("rem", 2), "min": arithmetic("min", 2), "max": arithmetic("max", 2), "mad": arithmetic("mad", 3),
		"fma": arithmetic("fma", 3), "sad": arithmetic("sad", 3), "mul24": arithmetic("mul24", 2), "mad24": arithmetic("mad24", 3),
		"neg": unary("neg"), "abs": unary("abs"),
		"addc": extended("add"), "subc": extended("sub"), "madc": extended("mad"),

		"and": logic(opAnd32, opAnd64, func(a, b uint16) uint16 { return a & b }, func(a, b uint32) uint32 { return a & b }),
		"or":  logic(opOr32, opOr64, func(a, b uint16) uint16 { return a | b }, func(a, b uint32) uint32 { return a | b }),
		"xor": logic(opXor32, opXor64, func(a, b uint16) uint16 { return a ^ b }, func(a, b uint32) uint32 { return a ^ b }),
		"not": notOp,
		"cnot": plain(1, simpleCost, byType{
			ptx.B16: lift1(arith.Cnot[uint32]), ptx.B32: lift1(arith.Cnot[uint32]), ptx.B64: lift1(arith.Cnot[uint64]),
		}),
		"shl": shift(byType{ptx.B16: shortShift(arith.Shl[uint16]), ptx.B32: opShl32, ptx.B64: opShl64}),
		"shr": shift(byType{
			ptx.B16: shortShift(arith.Shr[uint16]), ptx.U16: shortShift(arith.Shr[uint16]),
			ptx.S16: lift2(func(a, n uint32) uint32 { return uint32(uint16(int16(a) >> n)) }),
			ptx.B32: opShrU32, ptx.U32: opShrU32, ptx.S32: opShrS32, ptx.B64: opShrU64, ptx.U64: opShrU64, ptx.S64: opShrS64,
		}),
		"shf": funnel, "prmt": prmt, "lop3": lop3, "bfe": bfe, "bfi": bfi, "bfind": bfind, "fns": fns, "szext": szext, "bmsk": bmsk,
		"popc": count(opPopc32, lift1(arith.Popc64)), "clz": count(opClz32, lift1(arith.Clz64)),
		"brev": plain(1, simpleCost, byType{ptx.B32: lift1(arith.Brev32), ptx.B64: lift1(arith.Brev64)}),
		"dp4a": dot(false), "dp2a": dot(true),

		"rcp": specialFunc("rcp"), "sqrt": specialFunc("sqrt"), "rsqrt": specialFunc("rsqrt"), "sin": specialFunc("sin"),
		"cos": specialFunc("cos"), "lg2": specialFunc("lg2"), "ex2": specialFunc("ex2"), "tanh": specialFunc("tanh"),
		"copysign": copysign, "testp": testp,

		"setp": setp, "set": set, "selp": selp, "slct": slct,
		"mov": mov, "cvt": convert, "cvta": cvta, "isspacep": isspacep,
		"ld": load, "ldu": load, "st": store, "atom": atomic, "red": atomic,

		"shfl": shfl, "vote": vote, "match": match, "redux": redux, "elect": elect, "activemask": activemask,
		"bar": bar, "barrier": bar, "nanosleep": nanosleep,
		"membar": nothing, "fence": nothing, "prefetch": nothing, "prefetchu": nothing, "discard": nothing, "applypriority": nothing,
		"griddepcontrol": nothing, "setmaxnreg": nothing, "createpolicy": createPolicy, "pmevent": nothing, "brkpt": nothing,

		"bra": compileBra, "brx": compileBrx, "ret": compileRet, "exit": compileRet, "trap": compileTrap, "call": call,

		"cp": asyncCopy, "mbarrier": mbarrierOp,

		"vadd": video("vadd"), "vsub": video("vsub"), "vabsdiff": video("vabsdiff"), "vmin": video("vmin"), "vmax": video("vmax"),
		"vshl": video("vshl"), "vshr": video("vshr"), "vset": video("vset"), "vmad": videoMad,
		"vadd2": videoPacked("vadd", 2), "vsub2": videoPacked("vsub", 2), "vavrg2": videoPacked("vavrg", 2), "vabsdiff2": videoPacked("vabsdiff", 2),
		"vmin2": videoPacked("vmin", 2), "vmax2": videoPacked("vmax", 2), "vset2": videoPacked("vset", 2),
		"vadd4": videoPacked("vadd", 4), "vsub4": videoPacked("vsub", 4), "vavrg4": videoPacked("vavrg", 4), "vabsdiff4": videoPacked("vabsdiff", 4),
		"vmin4": videoPacked("vmin", 4), "vmax4": videoPacked("vmax", 4), "vset4": videoPacked("vset", 4),

		"tex": tex(false), "tld4": tex(true), "txq": txq, "suq": txq, "istypep": istypep,
		"suld": suld, "sust": sust, "sured": sured,
		"wmma": wmma, "mma": mma, "ldmatrix": matrixRows(false), "stmatrix": matrixRows(true), "movmatrix": movmatrix,
		"wgmma": refuse("matrix instructions"), "tcgen05": refuse("matrix instructions"), "mapa": refuse("clusters"), "getctarank": refuse("clusters"),
	}
}
