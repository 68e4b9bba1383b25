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

// Enqueue is Launch that allocates nothing: p must be done, and is under way from
// then on; l can be used again at once.
func (ch *Channel) Enqueue(ctx context.Context, p *Pending, l *Launch) error {
	x := abi.Launch{
		Function:    l.Function.handle,
		Grid:        l.Grid.array(),
		Block:       l.Block.array(),
		SharedBytes: l.SharedBytes,
		ParamBytes:  uint32(len(l.Params)),
	}
	h := abi.Header{Op: abi.OpLaunch, Aux: uint16(len(l.Attributes))}
	var e abi.Entry
	data := l.Params
	if len(l.Attributes) > 0 {
		data = l.data()
	}
	if len(data) == 0 || ch.inline(len(data)) {
		x.Encode(&e)
		if err := ch.enqueue(ctx, p, &e, h, data); err != nil {
			return fmt.Errorf("launch %s: %w", l.Function.name, err)
		}
		return nil
	}
	w, err := ch.window(ctx, uint64(len(data)))
	if err != nil {
		return fmt.Errorf("launch %s: %w", l.Function.name, err)
	}
	if _, err := ch.dev.fill(w, data); err != nil {
		ch.dev.staging.give(w)
		return fmt.Errorf("launch %s: %w", l.Function.name, err)
	}
	x.Data = w.Offset
	x.Encode(&e)
	p.window = w
	if err := ch.enqueue(ctx, p, &e, h, nil); err != nil {
		p.window = abi.Window{}
		ch.dev.staging.give(w)
		return fmt.Errorf("launch %s: %w", l.Function.name, err)
	}
	return nil
}

// data is the launch's attributes and parameters as the device takes them.
func (l *Launch) data() []byte {
	b := make([]byte, len(l.Attributes)*abi.EntrySize, len(l.Attributes)*abi.EntrySize+len(l.Params))
	for i := range l.Attributes {
		l.Attributes[i].Encode((*abi.Entry)(b[i*abi.EntrySize:]))
	}
	return append(b, l.Params...)
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
