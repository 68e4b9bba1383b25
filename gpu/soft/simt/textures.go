package simt

import (
	"fmt"
	"slices"

	"vgpud/gpu"
	"vgpud/gpu/soft/texture"
)

// textureTable holds a context's textures and surfaces by handle. A handle is an index, and in its
// upper half a count that tells it from earlier handles of the same index.
type textureTable struct {
	entries []textureEntry
	free    []uint32
}

type textureEntry struct {
	texture *texture.Texture // nil if the entry is free
	use     uint32
}

// MaxTextures is the maximum number of textures and surfaces of a context.
const MaxTextures = 1 << 16

// AddTexture makes a texture or surface known to kernels, and returns the handle by which they name
// it. It may be called between two steps of the grids that use the memory.
func (m *Memory) AddTexture(t texture.Texture) (uint64, error) {
	if err := t.Check(); err != nil {
		return 0, err
	}
	tab := &m.textures
	var i uint32
	if n := len(tab.free); n > 0 {
		i, tab.free = tab.free[n-1], tab.free[:n-1]
	} else if len(tab.entries) < MaxTextures {
		i = uint32(len(tab.entries))
		tab.entries = append(tab.entries, textureEntry{})
	} else {
		return 0, fmt.Errorf("texture beside %d: %w", len(tab.entries), gpu.ErrOutOfMemory)
	}
	e := &tab.entries[i]
	e.texture = &t
	e.use++
	return uint64(e.use)<<32 | uint64(i), nil
}

// DropTexture ends a texture or surface.
func (m *Memory) DropTexture(handle uint64) error {
	e := m.textures.entry(handle)
	if e == nil {
		return fmt.Errorf("texture %#x: %w", handle, gpu.ErrNotFound)
	}
	e.texture = nil
	m.textures.free = append(m.textures.free, uint32(handle))
	return nil
}

// entry returns the entry with a handle, or nil.
func (t *textureTable) entry(handle uint64) *textureEntry {
	i := uint64(uint32(handle))
	if i >= uint64(len(t.entries)) {
		return nil
	}
	if e := &t.entries[i]; e.texture != nil && uint64(e.use) == handle>>32 {
		return e
	}
	return nil
}

// Texture returns the texture or surface with a handle, or nil. The caller must not change it.
func (m *Memory) Texture(handle uint64) *texture.Texture {
	if e := m.textures.entry(handle); e != nil {
		return e.texture
	}
	return nil
}

// texture returns a texture or surface and its memory for a lane, or raises its fault.
func (w *warp) texture(in *inst, site uint32, lane int, handle uint64, write bool) (*texture.Texture, []byte, bool) {
	t := w.grid.launch.Memory.Texture(handle)
	if t == nil {
		w.textureFault(in, gpu.FaultAddress, lane, handle, write)
		return nil, nil, false
	}
	c := &w.grid.mappings[site]
	if t.Base-c.lo >= uint64(len(c.data)) && !w.findMapping(c, t.Base) {
		w.textureFault(in, gpu.FaultAddress, lane, handle, write)
		return nil, nil, false
	}
	data := c.data[t.Base-c.lo:]
	if n := t.Bytes(); n > uint64(len(data)) || write && c.ro {
		w.textureFault(in, gpu.FaultAddress, lane, handle, write)
		return nil, nil, false
	}
	return t, data, true
}

// textureFault raises a lane's fault at a texture or surface, whose handle is the fault's address.
func (w *warp) textureFault(in *inst, kind gpu.FaultKind, lane int, handle uint64, write bool) {
	if w.fault != nil {
		return
	}
	w.raise(kind, in, lane)
	w.fault.Address, w.fault.Space, w.fault.Write = handle, "texture", write
	if t := w.grid.launch.Memory.Texture(handle); t != nil {
		w.fault.Size = uint32(t.Texel.Bytes())
		if t.Surface {
			w.fault.Space = "surface"
		}
	}
}

// Samplers are encoded in the value of a sampler variable: two bits for the address mode of each
// dimension, then the filter, whether coordinates are never normalized, and a mark.
const (
	samplerFilter       = 1 << 6
	samplerUnnormalized = 1 << 7
	samplerMark         = 0x5a4d << 48
)

// withSampler returns t read in the way that a sampler's value describes, or false if it is none.
func withSampler(t *texture.Texture, v uint64) (texture.Texture, bool) {
	if v&^uint64(0xff) != samplerMark {
		return texture.Texture{}, false
	}
	s := *t
	for d := range s.Address {
		s.Address[d] = gpu.AddressMode(v >> (2 * d) & 3)
	}
	s.Filter = gpu.FilterPoint
	if v&samplerFilter != 0 {
		s.Filter = gpu.FilterLinear
	}
	s.Normalized = s.Normalized && v&samplerUnnormalized == 0
	return s, true
}

// sampler encodes the initial value of a sampler variable: { field = value, … }.
func sampler(fields map[string]string) (uint64, bool) {
	v := uint64(samplerMark)
	modes := map[string]gpu.AddressMode{
		"wrap": gpu.AddressWrap, "mirror": gpu.AddressMirror, "clamp_ogl": gpu.AddressClamp,
		"clamp_to_edge": gpu.AddressClamp, "clamp_to_border": gpu.AddressBorder,
	}
	for d, name := range []string{"addr_mode_0", "addr_mode_1", "addr_mode_2"} {
		m, ok := modes[fields[name]]
		if _, given := fields[name]; given && !ok {
			return 0, false
		}
		v |= uint64(m) << (2 * d)
	}
	switch fields["filter_mode"] {
	case "", "nearest":
	case "linear":
		v |= samplerFilter
	default:
		return 0, false
	}
	if f := fields["force_unnormalized_coords"]; f != "" && f != "0" {
		v |= samplerUnnormalized
	}
	return v, true
}

// Numbers that txq and suq answer with (PTX ISA, opaque types).
const (
	orderR    = 0x10b0
	orderRG   = 0x10b2
	orderRGBA = 0x10b5
)

var dataTypes = map[gpu.ChannelFormat]uint32{
	gpu.FormatInt8: 0x10d7, gpu.FormatInt16: 0x10d8, gpu.FormatInt32: 0x10d9,
	gpu.FormatUint8: 0x10da, gpu.FormatUint16: 0x10db, gpu.FormatUint32: 0x10dc,
	gpu.FormatHalf: 0x10dd, gpu.FormatFloat: 0x10de,
}

// normalizedTypes are the data types of textures whose integers are read as floats.
var normalizedTypes = map[gpu.ChannelFormat]uint32{
	gpu.FormatInt8: 0x10d0, gpu.FormatInt16: 0x10d1, gpu.FormatUint8: 0x10d2, gpu.FormatUint16: 0x10d3,
}

// textureQueries are the attributes that txq and suq read.
var textureQueries = map[string]func(t *texture.Texture) uint32{
	"width": func(t *texture.Texture) uint32 { return t.Size[0] },
	"height": func(t *texture.Texture) uint32 {
		if t.Dims < 2 {
			return 0
		}
		return t.Size[1]
	},
	"depth": func(t *texture.Texture) uint32 {
		if t.Dims < 3 {
			return 0
		}
		return t.Size[2]
	},
	"array_size": func(t *texture.Texture) uint32 {
		if t.Cube {
			return t.Layers / 6
		}
		return t.Layers
	},
	"num_mipmap_levels": func(*texture.Texture) uint32 { return 1 },
	"num_samples":       func(*texture.Texture) uint32 { return 1 },
	"memory_layout":     func(t *texture.Texture) uint32 { return bit(t.Linear) },
	"channel_data_type": func(t *texture.Texture) uint32 {
		if v := normalizedTypes[t.Texel.Format]; v != 0 && !t.AsInteger && !t.Surface {
			return v
		}
		return dataTypes[t.Texel.Format]
	},
	"channel_order": func(t *texture.Texture) uint32 {
		switch t.Texel.Channels {
		case 1:
			return orderR
		case 2:
			return orderRG
		}
		return orderRGBA
	},
	"normalized_coords":         func(t *texture.Texture) uint32 { return bit(t.Normalized) },
	"force_unnormalized_coords": func(*texture.Texture) uint32 { return 0 },
	"filter_mode":               func(t *texture.Texture) uint32 { return uint32(t.Filter) },
	"addr_mode_0":               func(t *texture.Texture) uint32 { return addressEnum(t.Address[0]) },
	"addr_mode_1":               func(t *texture.Texture) uint32 { return addressEnum(t.Address[1]) },
	"addr_mode_2":               func(t *texture.Texture) uint32 { return addressEnum(t.Address[2]) },
}

// addressEnum returns PTX's number of an address mode: wrap, mirror, clamp_ogl, clamp_to_edge,
// clamp_to_border.
func addressEnum(m gpu.AddressMode) uint32 {
	return uint32(slices.Index([]gpu.AddressMode{gpu.AddressWrap, gpu.AddressMirror, 0xff, gpu.AddressClamp, gpu.AddressBorder}, m))
}
