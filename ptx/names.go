package ptx

import "iter"

// regNames tells registers from other names during parsing. Nearly always the first letter does:
// compilers give registers, and only registers, a percent sign. Exceptions in inline assembly
// (registers called r0 or p, variables called %buf) are recorded here by scope, so there are few
// entries and mostly none.
type regNames struct {
	isReg  map[string]bool // names that the percent sign would misclassify, or that hide such a name
	ranges map[string]int  // .reg r<N> without a percent sign: the largest N declared in any open scope
	undo   []renaming
	scopes []int // length of undo at the start of each open scope
}

type renaming struct {
	name         string
	isReg, known bool
	count        int // of a range: its previous value
	ranged       bool
}

// open begins a scope.
func (n *regNames) open() { n.scopes = append(n.scopes, len(n.undo)) }

// close ends the innermost scope and removes its names.
func (n *regNames) close() {
	start := n.scopes[len(n.scopes)-1]
	n.scopes = n.scopes[:len(n.scopes)-1]
	for i := len(n.undo) - 1; i >= start; i-- {
		switch u := n.undo[i]; {
		case u.ranged && u.count == 0:
			delete(n.ranges, u.name)
		case u.ranged:
			n.ranges[u.name] = u.count
		case u.known:
			n.isReg[u.name] = u.isReg
		default:
			delete(n.isReg, u.name)
		}
	}
	n.undo = n.undo[:start]
}

// declare records a declaration.
func (n *regNames) declare(v *Var) {
	reg := v.Space == RegSpace || v.Space == SregSpace
	if v.Count > 0 {
		if reg && v.Name[0] != '%' {
			if n.ranges == nil {
				n.ranges = map[string]int{}
			}
			old := n.ranges[v.Name]
			n.undo = append(n.undo, renaming{name: v.Name, ranged: true, count: old})
			n.ranges[v.Name] = max(old, v.Count)
		}
		return
	}
	old, known := n.isReg[v.Name]
	if !known && reg == (v.Name[0] == '%') {
		return
	}
	if n.isReg == nil {
		n.isReg = map[string]bool{}
	}
	n.undo = append(n.undo, renaming{name: v.Name, isReg: old, known: known})
	n.isReg[v.Name] = reg
}

// reg reports whether name is a register here.
func (n *regNames) reg(name string) bool {
	if len(n.isReg) > 0 {
		if is, ok := n.isReg[name]; ok {
			return is
		}
	}
	if name[0] == '%' {
		return true
	}
	if len(n.ranges) > 0 {
		for base, number := range rangeSplits(name) {
			if number < n.ranges[base] {
				return true
			}
		}
	}
	return false
}

// rangeSplits splits a register's name into the name of a range and the number of a register in it,
// in every possible way, the shortest name first: %r12 is number 12 of %r<…> or number 2 of %r1<…>.
// A number with leading zeros is in no range.
func rangeSplits(name string) iter.Seq2[string, int] {
	return func(yield func(string, int) bool) {
		const mostDigits = 9 // a Count is below 10⁹
		i := len(name)
		for i > 1 && len(name)-i < mostDigits && class[name[i-1]]&isDigit != 0 {
			i--
		}
		for ; i < len(name); i++ {
			if name[i] == '0' && i+1 < len(name) {
				continue
			}
			number := 0
			for _, c := range []byte(name[i:]) {
				number = number*10 + int(c-'0')
			}
			if !yield(name[:i], number) {
				return
			}
		}
	}
}
