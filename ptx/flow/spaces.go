package flow

import (
	"strings"

	"vgpud/ptx"
)

// spaces is the number of state spaces that are distinguished.
const spaces = 4

// spaceNumber returns a space's number; others count as global.
func spaceNumber(s ptx.Space) int32 {
	switch s {
	case ptx.SharedSpace:
		return 0
	case ptx.LocalSpace:
		return 1
	case ptx.ParamSpace:
		return 2
	}
	return 3
}

// access is what an opcode does to memory.
type access uint8

const (
	noAccess access = 0
	reads    access = 1
	writes   access = 2
	both     access = reads | writes
)

// accesses holds the opcodes that read or write memory. An unknown opcode is assumed to do both.
var accesses = map[string]access{
	"ld": reads, "ldu": reads, "ldmatrix": reads, "suld": reads, "tex": reads, "tld4": reads,
	"st": writes, "stmatrix": writes, "sust": writes, "discard": writes,
	"atom": both, "red": both, "sured": both, "wmma": both, "cp": both,
}

// spaces appends the state spaces that an instruction reads, or writes.
func (g *Graph) spaces(in *ptx.Instr, write bool, list []int32) []int32 {
	does, known := accesses[in.Opcode]
	if !known {
		if pure[in.Opcode] || divergentOpcodes[in.Opcode] || noResult[in.Opcode] || in.Opcode == "bar" || in.Opcode == "barrier" {
			return list
		}
		does = both // a call, or an unknown opcode
	}
	if write && does&writes == 0 || !write && does&reads == 0 {
		return list
	}
	base := int32(len(g.Code.Regs)) + 1
	switch in.Opcode {
	case "tex", "tld4", "suld", "sust", "sured":
		return append(list, base+spaceNumber(ptx.GlobalSpace))
	case "ldmatrix", "stmatrix":
		return append(list, base+spaceNumber(ptx.SharedSpace))
	}
	if known && in.Opcode != "cp" {
		for _, m := range in.Modifiers {
			if i := strings.Index(m, "::"); i >= 0 {
				m = m[:i] // shared::cta, param::func
			}
			s, ok := ptx.ParseSpace(m)
			if !ok {
				continue
			}
			if s == ptx.ConstSpace || s == ptx.ParamSpace && !write && len(in.Operands) > 1 && ownParameter(&in.Operands[1]) {
				return list
			}
			return append(list, base+spaceNumber(s))
		}
		list = append(list, base+spaceNumber(ptx.SharedSpace), base+spaceNumber(ptx.LocalSpace))
		return append(list, base+spaceNumber(ptx.GlobalSpace))
	}
	for i := range int32(spaces) {
		list = append(list, base+i)
	}
	return list
}

// ownParameter reports whether an address is that of one of the function's own parameters.
func ownParameter(o *ptx.Operand) bool {
	return o.Sym != nil && o.Sym.Kind == ptx.SymParam && !o.Sym.Return
}
