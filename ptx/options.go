package ptx

// Newest is the newest PTX ISA version whose directives and operand forms this package supports.
var Newest = Version{9, 0}

// Options bound what Parse accepts, since the text comes from a guest. Zero fields mean the
// defaults named beside them. The tree of ordinary code takes about ten times the memory of its
// text; the worst case within the default bounds takes about a gigabyte and a half.
type Options struct {
	MaxBytes      int // length of the source: 64 MiB
	MaxDepth      int // nesting of blocks, operands, expressions and initialisers: 64
	MaxStatements int // instructions, labels, declarations and directives: 4 million
	MaxOperands   int // operands in all, those within others included: 12 million
	MaxElements   int // operands of one instruction, or of one vector or list in it: 1,024
	MaxErrors     int // errors collected before giving up: 10
	MaxWarnings   int // warnings kept: 10
}

// withDefaults replaces zeros by defaults.
func (o Options) withDefaults() Options {
	set := func(field *int, value int) {
		if *field <= 0 {
			*field = value
		}
	}
	set(&o.MaxBytes, 64<<20)
	set(&o.MaxDepth, 64)
	set(&o.MaxStatements, 4<<20)
	set(&o.MaxOperands, 12<<20)
	set(&o.MaxElements, 1024)
	set(&o.MaxErrors, 10)
	set(&o.MaxWarnings, 10)
	return o
}
