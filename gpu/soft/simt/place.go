package simt

// Place says where in the context's memory the module's variables lie, ImageBytes
// bytes from base on, and returns what that memory must hold before the first
// launch: initial values, with the addresses of variables and functions filled
// in. The caller copies it there, and maps the range into each Memory that
// launches of the module use, with MapImage.
func (m *Module) Place(base uint64) []byte {
	m.vars.base = base
	return make([]byte, m.vars.size)
}

// MapImage maps the module's placed variables, backed by data, into mem: the
// constants among them read-only. UnmapImage takes them back.
func (m *Module) MapImage(mem *Memory, data []byte) error {
	c := m.vars.constBytes
	if c > 0 {
		if err := mem.insert(span{lo: m.vars.base, data: data[:c:c], readOnly: true}); err != nil {
			return err
		}
	}
	if c < m.vars.size {
		return mem.Map(m.vars.base+c, data[c:])
	}
	return nil
}

// UnmapImage undoes MapImage.
func (m *Module) UnmapImage(mem *Memory) error {
	c := m.vars.constBytes
	if c > 0 {
		if err := mem.Unmap(m.vars.base); err != nil {
			return err
		}
	}
	if c < m.vars.size {
		return mem.Unmap(m.vars.base + c)
	}
	return nil
}
