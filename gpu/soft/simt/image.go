package simt

// image is the layout of a module's variables in global and constant space:
// one range of memory, constants first.
type image struct {
	base       uint64 // where Place put it
	size       uint64
	constBytes uint64 // at the start, read-only to kernels
	offsets    map[string]placed
}

type placed struct{ offset, size uint64 }

// ImageBytes is how much global memory the module's variables take, 0 if it has
// none. The memory must be aligned to 256 bytes.
func (m *Module) ImageBytes() uint64 { return m.vars.size }

// Global finds a variable of the module: its offset in the image and its size
// in bytes.
func (m *Module) Global(name string) (offset, size uint64, ok bool) {
	p, ok := m.vars.offsets[name]
	return p.offset, p.size, ok
}
