package abi

// payloadCodec encodes or decodes a payload: a form lists its fields once, in its method fields,
// for both directions. fields reports whether the values are valid.
type payloadCodec struct {
	e     *Entry
	write bool
}

func codeU16[T ~uint16](c payloadCodec, i int, v *T) {
	if c.write {
		c.e.putU16(i, uint16(*v))
	} else {
		*v = T(c.e.u16(i))
	}
}

func codeU32[T ~uint32](c payloadCodec, i int, v *T) {
	if c.write {
		c.e.putU32(i, uint32(*v))
	} else {
		*v = T(c.e.u32(i))
	}
}

func codeU64[T ~uint64](c payloadCodec, i int, v *T) {
	if c.write {
		c.e.putU64(i, uint64(*v))
	} else {
		*v = T(c.e.u64(i))
	}
}

// rest zeroes the entry from offset i on, because slots of a ring are reused, or reports whether it
// is zero.
func (c payloadCodec) rest(i int) bool {
	if c.write {
		clear(c.e[i:])
		return true
	}
	return c.e.zeroFrom(i)
}

// reserved returns the error of a payload that is not ok.
func reserved(ok bool) error {
	if ok {
		return nil
	}
	return errReserved
}
