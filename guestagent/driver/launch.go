package driver

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"vgpud/mediator/vgpu/abi"
)

// Dim is the extent of a grid or block; 0 means 1.
type Dim struct{ X, Y, Z uint32 }

func (d Dim) array() [3]uint32 { return [3]uint32{max(d.X, 1), max(d.Y, 1), max(d.Z, 1)} }

// Launch is a kernel launch, for [Channel.Enqueue].
type Launch struct {
	Function    *Function
	Grid, Block Dim
	SharedBytes uint32          // dynamic shared memory of a block
	Params      []byte          // the parameter space, as [Function.AppendParams] makes it
	Attributes  []abi.Attribute // may be empty
	// Priority follows CUDA: lower is more urgent. 0 means the channel's priority, or else the
	// context's. An [abi.AttributePriority] among Attributes takes precedence.
	Priority int32
	// Preempt selects the form to launch; nil selects it by measured cost. A form that the kernel
	// does not have is an error.
	Preempt *Preempt
}

// Launch enqueues a kernel with arguments as [Function.AppendParams] takes them. It returns at once
// unless the channel is full.
func (ch *Channel) Launch(ctx context.Context, f *Function, grid, block Dim, sharedBytes uint32, args ...any) (*Pending, error) {
	params, err := f.AppendParams(nil, args...)
	if err != nil {
		return nil, err
	}
	p := new(Pending)
	l := Launch{Function: f, Grid: grid, Block: block, SharedBytes: sharedBytes, Params: params}
	if err := ch.Enqueue(ctx, p, &l); err != nil {
		return nil, err
	}
	return p, nil
}

// launchBytes is the size of attributes and parameters up to which a launch allocates no memory.
const launchBytes = 1024

// Enqueue is Launch without allocations. p must be done, and stands for this launch from then on; l
// can be used again at once.
func (ch *Channel) Enqueue(ctx context.Context, p *Pending, l *Launch) error {
	if err := ch.launch(ctx, p, l); err != nil {
		if p.Done() { // else it was sent, and the end of the channel will discard it
			p.form.discard()
			p.form = launchForm{}
		}
		return fmt.Errorf("launch %s: %w", l.Function.name, err)
	}
	return nil
}

func (ch *Channel) launch(ctx context.Context, p *Pending, l *Launch) error {
	x := abi.Launch{
		Function:    l.Function.handle,
		Grid:        l.Grid.array(),
		Block:       l.Block.array(),
		SharedBytes: l.SharedBytes,
		ParamBytes:  uint32(len(l.Params)),
	}
	if why := l.Function.refused; why != "" {
		p.form = launchForm{}
		return &Error{Op: abi.OpLaunch, Status: abi.StatusNotSupported, Detail: why}
	}
	var added [2]abi.Attribute // beside those of the launch
	n := 0
	choice, err := ch.chooseForm(ctx, p, l)
	if err != nil {
		return err
	}
	if choice.Form != 0 {
		x.Function = l.Function.forms.handles[bit(choice.Form)]
		added[n] = choice.Attribute()
		n++
	}
	if priority := ch.launchPriority(l); priority != 0 {
		added[n].ID = abi.AttributePriority
		added[n].PutUint32(0, uint32(priority))
		n++
	}
	h := abi.Header{Op: abi.OpLaunch, Aux: uint16(len(l.Attributes) + n)}
	var e abi.Entry
	var room [launchBytes]byte
	data := l.Params
	if h.Aux > 0 {
		data = appendAttributes(room[:0], l.Attributes)
		data = appendAttributes(data, added[:n])
		data = append(data, l.Params...)
	}
	if len(data) == 0 || ch.inline(len(data)) {
		x.Encode(&e)
		return ch.enqueue(ctx, p, &e, h, data)
	}
	w, err := ch.window(ctx, uint64(len(data)))
	if err != nil {
		return err
	}
	// Not copyShared, which would move room to the heap.
	if err := ch.dev.touch(func() { copy(ch.dev.bytes(w), data) }); err != nil {
		ch.dev.staging.release(w)
		return err
	}
	x.Data = w.Offset
	x.Encode(&e)
	return ch.enqueueWindow(ctx, p, &e, h, w)
}

// chooseForm chooses the form of a launch and records it in p.
func (ch *Channel) chooseForm(ctx context.Context, p *Pending, l *Launch) (choice abi.Preempt, err error) {
	p.form = launchForm{}
	switch k := l.Function.forms; {
	case l.Preempt != nil:
		choice, p.form, err = l.force()
	case k != nil:
		choice, p.form = k.pick(ctx, l)
	}
	return choice, err
}

// launchPriority returns the priority to send with a launch, or 0 to send none.
func (ch *Channel) launchPriority(l *Launch) int32 {
	if ch.dev.info.Features&abi.FeatureLaunchAttributes == 0 {
		return 0
	}
	for i := range l.Attributes {
		if l.Attributes[i].ID == abi.AttributePriority {
			return 0
		}
	}
	switch {
	case l.Priority != 0:
		return l.Priority
	case ch.priority != 0:
		return ch.priority
	}
	return ch.ctx.opts.Priority
}

// appendAttributes appends attributes in the device's encoding.
func appendAttributes(b []byte, all []abi.Attribute) []byte {
	for i := range all {
		n := len(b)
		b = append(b, make([]byte, abi.EntrySize)...)
		all[i].Encode((*abi.Entry)(b[n:]))
	}
	return b
}

// AppendParams appends a parameter space that holds args, one for each parameter: integers and
// floats of the parameter's size, a Ptr, a bool, or a []byte for anything else. int and uint have
// 64 bits. If the device does not report the layout, each argument is aligned to its size, as CUDA
// does for scalars.
func (f *Function) AppendParams(dst []byte, args ...any) ([]byte, error) {
	if len(args) != f.count {
		return dst, fmt.Errorf("launch %s: %d arguments for %d parameters", f.name, len(args), f.count)
	}
	start := len(dst)
	for i, arg := range args {
		var scalar [8]byte
		value := encode(scalar[:0], arg)
		if value == nil {
			return dst, fmt.Errorf("launch %s: argument %d: a %T cannot be a parameter", f.name, i, arg)
		}
		at := align(len(dst)-start, len(value))
		if f.params != nil {
			p := f.params[i]
			if p.Size != len(value) {
				return dst, fmt.Errorf("launch %s: argument %d: a %T of %d bytes for a parameter of %d", f.name, i, arg, len(value), p.Size)
			}
			at = p.Offset
		}
		for len(dst)-start < at {
			dst = append(dst, 0)
		}
		dst = append(dst, value...)
	}
	if n := len(dst) - start; n > f.paramBytes {
		return dst, fmt.Errorf("launch %s: arguments take %d bytes, the parameters %d", f.name, n, f.paramBytes)
	}
	for len(dst)-start < f.paramBytes {
		dst = append(dst, 0)
	}
	return dst, nil
}

// align rounds at up to the alignment of a value of that size: the largest power of two, at most 8,
// that divides the size.
func align(at, size int) int {
	a := 1
	for a < 8 && size%(2*a) == 0 && size != 0 {
		a *= 2
	}
	return (at + a - 1) &^ (a - 1)
}

// encode appends an argument's bytes, or returns nil if its type has none.
func encode(b []byte, arg any) []byte {
	le := binary.LittleEndian
	switch v := arg.(type) {
	case Ptr:
		return le.AppendUint64(b, uint64(v))
	case uint64:
		return le.AppendUint64(b, v)
	case int64:
		return le.AppendUint64(b, uint64(v))
	case uint:
		return le.AppendUint64(b, uint64(v))
	case int:
		return le.AppendUint64(b, uint64(v))
	case uint32:
		return le.AppendUint32(b, v)
	case int32:
		return le.AppendUint32(b, uint32(v))
	case uint16:
		return le.AppendUint16(b, v)
	case int16:
		return le.AppendUint16(b, uint16(v))
	case uint8:
		return append(b, v)
	case int8:
		return append(b, uint8(v))
	case bool:
		if v {
			return append(b, 1)
		}
		return append(b, 0)
	case float32:
		return le.AppendUint32(b, math.Float32bits(v))
	case float64:
		return le.AppendUint64(b, math.Float64bits(v))
	case []byte:
		return append(b, v...)
	}
	return nil
}
