package preemption

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// units is a set of unit indices.
type units struct {
	words []uint64 // bit u mod 64 of word u/64
	count uint32
	from  int    // no word below it has a bit
	n     uint32 // indices are below it
}

// allUnits returns the set of the units below n.
func allUnits(n uint32) *units {
	s := &units{words: make([]uint64, (n+63)/64), n: n}
	s.fill(0, n)
	s.count = n
	return s
}

// masked calls f for each word that has units of [lo, hi), with the mask of their bits.
func masked(lo, hi uint32, f func(word int, mask uint64)) {
	for lo < hi {
		end := min(hi, lo&^63+64)
		mask := ^uint64(0) << (lo & 63)
		if end&63 != 0 {
			mask &= 1<<(end&63) - 1
		}
		f(int(lo/64), mask)
		lo = end
	}
}

// fill sets [lo, hi) without counting.
func (s *units) fill(lo, hi uint32) {
	masked(lo, hi, func(w int, mask uint64) { s.words[w] |= mask })
}

// clear removes [lo, hi).
func (s *units) clear(lo, hi uint32) {
	masked(lo, hi, func(w int, mask uint64) {
		s.count -= uint32(bits.OnesCount64(s.words[w] & mask))
		s.words[w] &^= mask
	})
}

func (s *units) has(u uint32) bool { return s.words[u/64]>>(u&63)&1 != 0 }

// lowest returns the lowest unit of a set that is not empty.
func (s *units) lowest() uint32 {
	for s.words[s.from] == 0 {
		s.from++
	}
	return uint32(s.from)*64 + uint32(bits.TrailingZeros64(s.words[s.from]))
}

// run returns how many consecutive units from lo on are in the set.
func (s *units) run(lo uint32) uint32 {
	u := lo
	for u < s.n {
		// The units that are not in the set, from u's bit on.
		absent := ^s.words[u/64] >> (u & 63)
		if absent != 0 {
			u += uint32(bits.TrailingZeros64(absent))
			break
		}
		u += 64 - u&63
	}
	return min(u, s.n) - lo
}

// appendTo appends up to most units from lo on, in order.
func (s *units) appendTo(list []uint32, lo uint32, most int) []uint32 {
	for w := int(lo / 64); w < len(s.words); w++ {
		word := s.words[w]
		if w == int(lo/64) {
			word &= ^uint64(0) << (lo & 63)
		}
		for ; word != 0; word &= word - 1 {
			if len(list) == most {
				return list
			}
			list = append(list, uint32(w)*64+uint32(bits.TrailingZeros64(word)))
		}
	}
	return list
}

// keepList removes all units of [lo, hi) but those of a list of little-endian u32, each of which
// must be in the set and occur once.
func (s *units) keepList(list []byte, lo, hi uint32) error {
	for i := 0; i < len(list); i += 4 {
		u := binary.LittleEndian.Uint32(list[i:])
		if u < lo || u >= hi || !s.has(u) {
			return fmt.Errorf("skipped unit %d was not to run, or is recorded twice: %w", u, ErrReadback)
		}
		s.words[u/64] &^= 1 << (u & 63) // so that a second occurrence is noticed
		s.count--
	}
	s.clear(lo, hi)
	for i := 0; i < len(list); i += 4 {
		u := binary.LittleEndian.Uint32(list[i:])
		s.words[u/64] |= 1 << (u & 63)
	}
	s.count += uint32(len(list) / 4)
	s.from = min(s.from, int(lo/64))
	return nil
}

// keepBitmap removes all units of [lo, hi) but those of a bitmap of little-endian u32. The bitmap
// must have n bits, all of them in the set and in [lo, hi).
func (s *units) keepBitmap(bitmap []byte, lo, hi, n uint32) error {
	at := func(w int) uint64 {
		word := uint64(binary.LittleEndian.Uint32(bitmap[8*w:]))
		if 8*w+4 < len(bitmap) {
			word |= uint64(binary.LittleEndian.Uint32(bitmap[8*w+4:])) << 32
		}
		return word
	}
	stray, seen, within := false, uint32(0), uint32(0)
	for w := range s.words {
		seen += uint32(bits.OnesCount64(at(w)))
	}
	masked(lo, hi, func(w int, mask uint64) {
		noted := at(w) & mask
		stray = stray || noted&^s.words[w] != 0
		within += uint32(bits.OnesCount64(noted))
	})
	if stray || seen != n || within != n {
		return fmt.Errorf("a bitmap of %d skipped units, %d of those that were to run, where %d were counted: %w", seen, within, n, ErrReadback)
	}
	s.clear(lo, hi)
	masked(lo, hi, func(w int, mask uint64) { s.words[w] |= at(w) & mask })
	s.count += n
	s.from = min(s.from, int(lo/64))
	return nil
}

// tasks returns how many tasks the set has, if all tasks are grouped by group: all units but the
// last are full.
func (s *units) tasks(all, group uint32) uint32 {
	if s.count == 0 {
		return 0
	}
	n := uint64(s.count) * uint64(group)
	if last := s.n - 1; s.has(last) {
		n -= uint64(s.n)*uint64(group) - uint64(all)
	}
	return uint32(n)
}
