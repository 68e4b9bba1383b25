package simt

import (
	"vgpud/gpu/soft/arith"
	"vgpud/ptx"
)

// mods holds an instruction's modifiers while its handler consumes those that it knows. Remaining
// ones are not supported.
type mods struct {
	list []string
	used uint64
}

// has consumes the modifier called name, and reports whether it was present.
func (m *mods) has(name string) bool {
	for i, s := range m.list {
		if s == name && m.used>>i&1 == 0 {
			m.used |= 1 << i
			return true
		}
	}
	return false
}

// any consumes and returns the first modifier that is among names, or "".
func (m *mods) any(names ...string) string {
	for i, s := range m.list {
		if m.used>>i&1 != 0 {
			continue
		}
		for _, n := range names {
			if s == n {
				m.used |= 1 << i
				return s
			}
		}
	}
	return ""
}

// skip consumes all modifiers of names, which have no effect here.
func (m *mods) skip(names ...string) {
	for m.any(names...) != "" {
	}
}

// typ consumes and returns the next type in order, or NoType.
func (m *mods) typ() ptx.Type {
	for i, s := range m.list {
		if m.used>>i&1 != 0 {
			continue
		}
		if t, ok := ptx.ParseType(s); ok {
			m.used |= 1 << i
			return t
		}
	}
	return ptx.NoType
}

// unknown returns a modifier that has not been consumed.
func (m *mods) unknown() (string, bool) {
	for i, s := range m.list {
		if m.used>>i&1 == 0 {
			return s, true
		}
	}
	return "", false
}

// mode consumes the modifiers that change a float's rounding.
func (m *mods) mode() arith.Mode {
	var o arith.Mode
	switch m.any("rn", "rz", "rm", "rp", "rna") {
	case "rz":
		o.Round = arith.RZ
	case "rm":
		o.Round = arith.RM
	case "rp":
		o.Round = arith.RP
	case "rna":
		o.Round = arith.RNA
	}
	o.FTZ = m.has("ftz")
	o.Sat = m.has("sat")
	o.Relu = m.has("relu")
	return o
}

// compares maps the names of comparisons. The unsigned ones share the code of the others, which use
// the type.
var compares = map[string]arith.Cmp{
	"eq": arith.CmpEq, "ne": arith.CmpNe, "lt": arith.CmpLt, "le": arith.CmpLe, "gt": arith.CmpGt, "ge": arith.CmpGe,
	"lo": arith.CmpLt, "ls": arith.CmpLe, "hi": arith.CmpGt, "hs": arith.CmpGe,
	"equ": arith.CmpEqu, "neu": arith.CmpNeu, "ltu": arith.CmpLtu, "leu": arith.CmpLeu, "gtu": arith.CmpGtu, "geu": arith.CmpGeu,
	"num": arith.CmpNum, "nan": arith.CmpNan,
}

// compare consumes a comparison.
func (m *mods) compare() (arith.Cmp, bool) {
	for i, s := range m.list {
		if c, ok := compares[s]; ok && m.used>>i&1 == 0 {
			m.used |= 1 << i
			return c, true
		}
	}
	return 0, false
}
