package ptx

// Init is a variable's initialiser. It is kept as text, which may be hundreds of kilobytes on one line: [Var.Values]
// decodes it when it is wanted. Parse has checked its form.
type Init struct {
	Pos Pos
	Raw string // without the equals sign and the semicolon, as written
}

// Value is one scalar of an initialiser: a number, or an address where Name is set.
type Value struct {
	Index   int64   // which element of the variable it initialises, rows flattened
	Imm     ImmType // of a number
	Bits    uint64  // the number, or the offset added to the address
	Name    string  // the variable or function whose address it is; "" for a number
	Generic bool    // generic(name): the address in the generic space rather than in its own
	Mask    uint64  // which byte of the address is meant, as in 0xFF00(name): the mask; 0: all of it
}
