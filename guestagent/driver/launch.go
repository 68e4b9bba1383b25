package driver

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"vgpud/mediator/vgpu/abi"
)

// Dim is the extent of a grid or block; 0 stands for 1.
type Dim struct{ X, Y, Z uint32 }

func (d Dim) array() [3]uint32 { return [3]uint32{max(d.X, 1), max(d.Y, 1), max(d.Z, 1)} }

// Launch is a kernel launch, for [Channel.Enqueue].
type Launch struct {
	Function    *Function
	Grid, Block Dim
	SharedBytes uint32          // dynamic shared memory of a block
	Params      []byte          // the parameter space, as [Function.AppendParams] makes it
	Attributes  []abi.Attribute // none for a plain launch
	// Priority is as CUDA's: lower is more urgent. 0: the channel's, or else the
	// context's. An [abi.AttributePriority] among Attributes is taken in place of it.
	Priority int32
	// Preempt says in which form to launch; nil: the one that its measured cost
	// chooses. It is an error if the kernel has no such form.
	Preempt *Preempt
}

// Launch enqueues a kernel with arguments as [Function.AppendParams] takes them, and
// returns at once unless the channel is full.
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

// launchBytes is up to how many bytes of attributes and parameters a launch needs no
// memory for.
const launchBytes = 1024

// Enqueue is Launch that allocates nothing: p must be done, and is under way from
// then on; l can be used again at once.
func (ch *Channel) Enqueue(ctx context.Context, p *Pending, l *Launch) error {
	if err := ch.launch(ctx, p, l); err != nil {
		if p.Done() { // else it was sent, and whoever ends the channel sees to it
			p.chosen.lost()
			p.chosen = chosen{}
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
		p.chosen = chosen{}
		return &Error{Op: abi.OpLaunch, Status: abi.StatusNotSupported, Detail: why}
	}
	var added [2]abi.Attribute // to those that the launch has
	n := 0
	choice, err := ch.choose(p, l)
	if err != nil {
		return err
	}
	if choice.Form != 0 {
		x.Function = l.Function.forms.handles[bit(choice.Form)]
		added[n] = choice.Attribute()
		n++
	}
	if priority := ch.priority(l); priority != 0 {
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
	if _, err := ch.dev.fill(w, data); err != nil {
		ch.dev.staging.give(w)
		return err
	}
	x.Data = w.Offset
	x.Encode(&e)
	p.window = w
	if err := ch.enqueue(ctx, p, &e, h, nil); err != nil {
		p.window = abi.Window{}
		ch.dev.staging.give(w)
		return err
	}
	return nil
}

// choose chooses the form that a launch goes in, and notes it in p.
func (ch *Channel) choose(p *Pending, l *Launch) (choice abi.Preempt, err error) {
	p.chosen = chosen{}
	switch k := l.Function.forms; {
	case l.Preempt != nil:
		choice, p.chosen, err = l.force()
	case k != nil:
		choice, p.chosen = k.pick(ch, l)
	}
	return choice, err
}

// priority is a launch's, 0 where none is to be said.
func (ch *Channel) priority(l *Launch) int32 {
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
	case ch.urgent != 0:
		return ch.urgent
	}
	return ch.ctx.opts.Priority
}

// appendAttributes appends attributes as the device takes them.
func appendAttributes(b []byte, all []abi.Attribute) []byte {
	for i := range all {
		n := len(b)
		b = append(b, make([]byte, abi.EntrySize)...)
		all[i].Encode((*abi.Entry)(b[n:]))
	}
	return b
}

// AppendParams appends a parameter space that holds args, one for each parameter:
// integers and floats of the parameter's size, a Ptr, a bool, or a []byte for
// anything else. int and uint are 64 bits. Where the device does not tell the
// layout, each argument is aligned by its size, as CUDA does for scalars.
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

// align rounds up to the alignment of something of that size: the largest power of
// two, up to 8, that divides it.
func align(at, size int) int {
	a := 1
	for a < 8 && size%(2*a) == 0 && size != 0 {
		a *= 2
	}
	return (at + a - 1) &^ (a - 1)
}

// encode appends an argument's bytes, or returns nil for a type that has none.
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
