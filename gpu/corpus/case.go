package corpus

import (
	"encoding/binary"
	"math"
)

// Case is one run of a kernel: the buffers, the launches and the expected results.
type Case struct {
	Kernel string // Kernel.Name
	Size   Size
	Seed   uint64

	// Buffers are the GPU memory that the launches use.
	Buffers []Buffer
	// Steps are the launches. Each starts when the one before has ended.
	Steps []Launch
	// Printed are the lines that the launches print, sorted, since the order of blocks is
	// undefined. Most kernels print nothing.
	Printed []string
}

// Mode is how the launches use a buffer.
type Mode int

// The modes of a buffer.
const (
	In      Mode = iota // set to Init before; unchanged after
	Out                 // undefined before; Want after
	InOut               // set to Init before; Want after
	Scratch             // undefined before and after
)

// Buffer is a piece of GPU memory: an allocation, or a variable of the module.
type Buffer struct {
	Name string
	Mode Mode
	Elem Elem // the type of its elements
	Size int  // in bytes

	// Init is the contents before the first step; nil unless In or InOut.
	Init []byte
	// Want is the contents after the last step; nil unless Out or InOut.
	Want []byte
	// Within is the tolerance of results. Zero means bit for bit.
	Within Tolerance
	// Global, if set, is the name of the module's variable that is this buffer. Otherwise the
	// buffer is allocated.
	Global string
}

// Launch is one launch of one entry point.
type Launch struct {
	Entry       string
	Grid, Block [3]uint32 // blocks, and threads per block
	SharedBytes uint32    // dynamic shared memory per block
	Args        []Arg     // in the order of the entry's parameters
}

// Threads returns the number of threads of the launch.
func (l *Launch) Threads() uint64 {
	n := uint64(1)
	for i := range l.Grid {
		n *= uint64(l.Grid[i]) * uint64(l.Block[i])
	}
	return n
}

// Arg is the value of one parameter: an address in a buffer, or plain bytes.
type Arg struct {
	Buffer string // if set, the value is this buffer's address plus Offset
	Offset uint64 // in bytes
	Bytes  []byte // otherwise the value in little-endian order
}

// Buffer returns the buffer called name, or nil.
func (c *Case) Buffer(name string) *Buffer {
	for i := range c.Buffers {
		if c.Buffers[i].Name == name {
			return &c.Buffers[i]
		}
	}
	return nil
}

// Restore returns the buffers whose Init must be written again before the steps can be run a second
// time.
func (c *Case) Restore() []*Buffer {
	var changed []*Buffer
	for i := range c.Buffers {
		if c.Buffers[i].Mode == InOut {
			changed = append(changed, &c.Buffers[i])
		}
	}
	return changed
}

// Elem is the type of a buffer's elements.
type Elem int

// The element types.
const (
	U8 Elem = iota
	U16
	U32
	I32
	U64
	I64
	F16
	F32
	F64
)

// Bytes returns the element's size.
func (e Elem) Bytes() int {
	switch e {
	case U8:
		return 1
	case U16, F16:
		return 2
	case U32, I32, F32:
		return 4
	}
	return 8
}

// element is a Go type of a buffer's elements.
type element interface {
	uint8 | uint16 | uint32 | int32 | uint64 | int64 | float16 | float32 | float64
}

func elemOf[T element]() Elem {
	switch any(*new(T)).(type) {
	case uint8:
		return U8
	case uint16:
		return U16
	case float16:
		return F16
	case uint32:
		return U32
	case int32:
		return I32
	case float32:
		return F32
	case uint64:
		return U64
	case int64:
		return I64
	}
	return F64
}

// encode returns v in the GPU's format.
func encode[T element](v []T) []byte {
	elem := elemOf[T]()
	b := make([]byte, 0, len(v)*elem.Bytes())
	// encoding/binary is only fast for slices of Go's basic types.
	if halves, ok := any(v).([]float16); ok {
		for _, h := range halves {
			b = binary.LittleEndian.AppendUint16(b, uint16(h))
		}
		return b
	}
	b, err := binary.Append(b, binary.LittleEndian, v)
	if err != nil {
		panic("corpus: encoding a buffer: " + err.Error()) // all element types have a fixed size
	}
	return b
}

// input returns a buffer that the launches only read.
func input[T element](name string, v []T) Buffer {
	b := encode(v)
	return Buffer{Name: name, Mode: In, Elem: elemOf[T](), Size: len(b), Init: b}
}

// output returns a buffer that the launches fill.
func output[T element](name string, want []T) Buffer {
	b := encode(want)
	return Buffer{Name: name, Mode: Out, Elem: elemOf[T](), Size: len(b), Want: b}
}

// update returns a buffer that the launches read and change.
func update[T element](name string, init, want []T) Buffer {
	b := encode(init)
	return Buffer{Name: name, Mode: InOut, Elem: elemOf[T](), Size: len(b), Init: b, Want: encode(want)}
}

// scratch returns a buffer of n elements for intermediate results.
func scratch[T element](name string, n int) Buffer {
	elem := elemOf[T]()
	return Buffer{Name: name, Mode: Scratch, Elem: elem, Size: n * elem.Bytes()}
}

// within returns b with tolerance t.
func (b Buffer) within(t Tolerance) Buffer { b.Within = t; return b }

// global returns b as the module's variable with the given name.
func (b Buffer) global(symbol string) Buffer { b.Global = symbol; return b }

// launch returns a one-dimensional launch.
func launch(entry string, blocks, threads int, args ...Arg) Launch {
	return Launch{Entry: entry, Grid: [3]uint32{uint32(blocks), 1, 1}, Block: [3]uint32{uint32(threads), 1, 1}, Args: args}
}

// launch2 returns a two-dimensional launch.
func launch2(entry string, gridX, gridY, blockX, blockY int, args ...Arg) Launch {
	return Launch{Entry: entry, Grid: [3]uint32{uint32(gridX), uint32(gridY), 1}, Block: [3]uint32{uint32(blockX), uint32(blockY), 1}, Args: args}
}

// shared returns l with dynamic shared memory.
func (l Launch) shared(bytes int) Launch { l.SharedBytes = uint32(bytes); return l }

func ptr(buffer string) Arg { return Arg{Buffer: buffer} }

// ptrAt returns a pointer into a buffer.
func ptrAt(buffer string, offset int) Arg { return Arg{Buffer: buffer, Offset: uint64(offset)} }

func u32(v uint32) Arg { return Arg{Bytes: binary.LittleEndian.AppendUint32(nil, v)} }

func i32(v int) Arg { return u32(uint32(int32(v))) }

func u64(v uint64) Arg { return Arg{Bytes: binary.LittleEndian.AppendUint64(nil, v)} }

func f32(v float32) Arg { return u32(math.Float32bits(v)) }

func f64(v float64) Arg { return u64(math.Float64bits(v)) }

// choose returns the value for size.
func choose[T any](size Size, trivial, small, large T) T {
	return [...]T{Trivial: trivial, Small: small, Large: large}[size]
}

// blocksFor returns the number of blocks that n elements need.
func blocksFor(n, threads int) int { return (n + threads - 1) / threads }
