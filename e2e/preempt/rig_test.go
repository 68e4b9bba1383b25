package preempt

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"

	"vgpud/gpu"
	"vgpud/gpu/corpus"
	"vgpud/gpu/soft/simt"
	"vgpud/guestagent/preempt"
	"vgpud/mediator/vgpu/abi"
	"vgpud/ptx"
)

// rig is a context of the soft GPU with a module and one case's buffers.
type rig struct {
	module *simt.Module
	c      *corpus.Case
	mem    *simt.Memory
	brk    uint64

	regions []*region
	byName  map[string]*region
	printed bytes.Buffer
	heap    [2]uint64 // address and size of the heap of device-side malloc; zero without one

	// reference is the result of the original kernels, after settle.
	reference [][]byte
	settled   bool
	only      abi.PreemptForm // if set, the only form to use
	wordCheck preempt.Check   // how the module's forms check the evict word
	group     uint32          // if set, the group of forms with groups
	work      []uint64        // warp instructions of the originals, by step
}

// region is memory that a case's kernels may change: a buffer, or the module's variables.
type region struct {
	name  string
	at    uint64
	data  []byte
	init  []byte // may be shorter than data; the rest is zero
	loose bool   // its contents depend on the order of the blocks
}

func newRig(ctx context.Context, m *ptx.Module, c *corpus.Case) (*rig, error) {
	module, err := simt.Load(ctx, m, simt.Options{})
	if err != nil {
		return nil, err
	}
	for _, k := range module.Kernels() {
		if why := k.Refused(); why != "" {
			return nil, simt.RefusedError(k.Name(), why)
		}
	}
	r := &rig{module: module, c: c, mem: new(simt.Memory), brk: 0x1000_0000, byName: map[string]*region{}}
	if n := module.ImageBytes(); n > 0 {
		image := &region{name: "the module's variables", at: r.reserve(n), data: make([]byte, n)}
		image.init = module.Place(image.at)
		if err := module.MapImage(r.mem, image.data); err != nil {
			return nil, err
		}
		r.regions = append(r.regions, image)
	}
	for i := range c.Buffers {
		b := &c.Buffers[i]
		reg := &region{name: b.Name, init: b.Init}
		if b.Global != "" {
			offset, size, ok := module.Global(b.Global)
			if !ok || size != uint64(b.Size) {
				return nil, fmt.Errorf("variable %s has %d bytes, want %d", b.Global, size, b.Size)
			}
			reg.at = r.regions[0].at + offset
			if reg.data, ok = r.mem.Bytes(reg.at, size); !ok {
				return nil, fmt.Errorf("variable %s is not mapped", b.Global)
			}
		} else if reg.at, reg.data, err = r.alloc(uint64(b.Size)); err != nil {
			return nil, err
		}
		r.regions = append(r.regions, reg)
		r.byName[b.Name] = reg
	}
	return r, nil
}

// reserve reserves addresses, followed by some that are not mapped.
func (r *rig) reserve(n uint64) uint64 {
	at := r.brk
	r.brk = (r.brk + n + 511) &^ 255
	return at
}

// alloc maps n bytes.
func (r *rig) alloc(n uint64) (uint64, []byte, error) {
	at, data := r.reserve(n), make([]byte, n)
	return at, data, r.mem.Map(at, data)
}

// reset initializes memory for the case.
func (r *rig) reset() {
	for _, reg := range r.regions {
		clear(reg.data[copy(reg.data, reg.init):])
	}
	r.printed.Reset()
	if r.heap[1] > 0 {
		r.mem.SetHeap(r.heap[0], r.heap[1])
	}
}

// launch returns the launch of a step's kernel, which may have one more parameter.
func (r *rig) launch(entry string, s *corpus.Launch) (simt.Launch, error) {
	k := r.module.Kernel(entry)
	if k == nil {
		return simt.Launch{}, fmt.Errorf("no kernel %s", entry)
	}
	a := k.Attributes()
	buf := make([]byte, a.ParamBytes)
	for j, arg := range s.Args {
		p := buf[a.Params[j].Offset:][:a.Params[j].Size]
		if arg.Buffer != "" {
			binary.LittleEndian.PutUint64(p, r.byName[arg.Buffer].at+arg.Offset)
		} else {
			copy(p, arg.Bytes)
		}
	}
	return simt.Launch{
		Kernel: k, Grid: dim(s.Grid), Block: dim(s.Block), SharedBytes: uint64(s.SharedBytes),
		Params: buf, Memory: r.mem, Print: &r.printed,
	}, nil
}

// setArgs writes the appended parameter.
func setArgs(l *simt.Launch, a abi.PreemptArgs) error {
	params := l.Kernel.Attributes().Params
	last := params[len(params)-1]
	if last.Size != abi.PreemptArgsBytes {
		return fmt.Errorf("the last parameter of %s has %d bytes, want %d", l.Kernel.Name(), last.Size, abi.PreemptArgsBytes)
	}
	a.Encode(l.Params[last.Offset:])
	return nil
}

func dim(d [3]uint32) gpu.Dim3 { return gpu.Dim3{X: d[0], Y: d[1], Z: d[2]} }

// snapshot copies the results of the case's launches.
func (r *rig) snapshot() [][]byte {
	var all [][]byte
	for _, reg := range r.regions {
		all = append(all, bytes.Clone(reg.data))
	}
	return all
}

// check compares memory and output with the case's reference, and with the results of the original.
func (r *rig) check() error {
	err := r.c.CheckAll(func(b *corpus.Buffer) ([]byte, error) { return r.byName[b.Name].data, nil })
	if err != nil {
		return err
	}
	if err := r.c.CheckPrinted(r.printed.String()); err != nil {
		return err
	}
	if !r.settled {
		return nil
	}
	for i, reg := range r.regions {
		if reg.loose || bytes.Equal(reg.data, r.reference[i]) {
			continue
		}
		for at := range reg.data {
			if reg.data[at] != r.reference[i][at] {
				return fmt.Errorf("byte %d of %d of %s is %#02x, the original leaves %#02x", at, len(reg.data), reg.name, reg.data[at], r.reference[i][at])
			}
		}
	}
	return nil
}
