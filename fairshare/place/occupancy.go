package place

// occupancy is what is free on each SM of a GPU, as algorithm 2 tracks it. The zero value is that
// of an idle GPU.
type occupancy struct {
	sms  []sm
	next int // the SM that gets the next block
	// warps and blocks are the sums of what is free.
	warps, blocks uint64
	// known are the latest shapes with how many of their blocks there is room for. They are valid
	// until something is taken or given.
	known  [8]room
	knows  int // how many of them are set
	oldest int // the one that is replaced next
}

// room is how many blocks of a shape fit.
type room struct {
	shape
	blocks uint64
}

// sm is what is free on one SM.
type sm struct {
	warps, blocks, registers uint32
	shared                   uint64
}

// share is how many blocks a task has on each SM.
type share []uint16

// shape is what one block takes of an SM.
type shape struct {
	warps, registers uint32
	shared           uint64
}

// shapeOf returns what a block takes of an idle SM at most.
func shapeOf(s *Spec, r *Request) (h shape) {
	h.warps = uint32(min(r.warpsOfBlock(), uint64(max(s.WarpsPerSM, 0))))
	if s.SharedPerSM > 0 {
		h.shared = min(r.Shared, s.SharedPerSM)
	}
	if s.RegistersPerSM > 0 {
		h.registers = uint32(min(uint64(r.Registers)*r.warpsOfBlock()*warpSize, uint64(s.RegistersPerSM)))
	}
	return h
}

// room returns how many blocks of a shape an SM has room for.
func (m *sm) room(h shape) uint32 {
	n := m.blocks
	if h.warps > 0 {
		n = min(n, m.warps/h.warps)
	}
	if h.registers > 0 {
		n = min(n, m.registers/h.registers)
	}
	if h.shared > 0 {
		n = min(n, uint32(min(m.shared/h.shared, 1<<16)))
	}
	return n
}

// init makes the SMs of an idle GPU, once.
func (o *occupancy) init(s *Spec) {
	if o.sms != nil {
		return
	}
	o.sms = make([]sm, max(s.SMs, 1))
	for i := range o.sms {
		o.sms[i] = sm{
			warps: uint32(max(s.WarpsPerSM, 1)), blocks: uint32(max(s.BlocksPerSM, 1)),
			registers: uint32(max(s.RegistersPerSM, 0)), shared: s.SharedPerSM,
		}
		o.warps += uint64(o.sms[i].warps)
		o.blocks += uint64(o.sms[i].blocks)
	}
}

// fits reports whether blocks of a shape find room.
func (o *occupancy) fits(s *Spec, h shape, blocks uint64) bool {
	o.init(s)
	return blocks <= o.blocks && blocks*uint64(h.warps) <= o.warps && blocks <= o.room(h)
}

// room returns how many blocks of a shape there is room for.
func (o *occupancy) room(h shape) (blocks uint64) {
	for i := range o.known[:o.knows] {
		if o.known[i].shape == h {
			return o.known[i].blocks
		}
	}
	for i := range o.sms {
		blocks += uint64(o.sms[i].room(h))
	}
	if o.knows < len(o.known) {
		o.oldest = o.knows
		o.knows++
	}
	o.known[o.oldest] = room{h, blocks}
	o.oldest = (o.oldest + 1) % len(o.known)
	return blocks
}

// take deals the blocks of a request round robin and returns where they are. Those that find no
// room are dealt nowhere.
func (o *occupancy) take(s *Spec, r *Request) share {
	o.init(s)
	h, left := shapeOf(s, r), s.resident(r)
	got := make(share, len(o.sms))
	for left > 0 {
		dealt := false
		for range o.sms {
			i := o.next
			if left == 0 {
				break
			}
			o.next = (o.next + 1) % len(o.sms)
			if o.sms[i].room(h) == 0 {
				continue
			}
			o.add(i, h, 1, -1)
			got[i]++
			left--
			dealt = true
		}
		if !dealt {
			break
		}
	}
	return got
}

// give returns what take took.
func (o *occupancy) give(s *Spec, r *Request, got share) {
	h := shapeOf(s, r)
	for i, n := range got {
		o.add(i, h, int64(n), 1)
	}
}

// add changes what is free on SM i by n blocks of a shape, by sign.
func (o *occupancy) add(i int, h shape, n int64, sign int64) {
	m := &o.sms[i]
	o.knows = 0
	d := n * sign
	m.blocks = uint32(int64(m.blocks) + d)
	m.warps = uint32(int64(m.warps) + d*int64(h.warps))
	m.registers = uint32(int64(m.registers) + d*int64(h.registers))
	m.shared = uint64(int64(m.shared) + d*int64(h.shared))
	o.blocks = uint64(int64(o.blocks) + d)
	o.warps = uint64(int64(o.warps) + d*int64(h.warps))
}
