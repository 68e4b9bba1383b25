package corpus

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
)

// share is how many of a table's prefixes have a length, in thousandths.
type share struct{ length, perMille int }

// The lengths of the prefixes in RouteViews' table of IPv4 and of IPv6 (AS6447), rounded: the
// proportions that the daily reports at bgp.potaroo.net/as6447 and bgp.potaroo.net/v6/as6447 have
// had in 2022 to 2024, with lengths below half a thousandth left out. They were set down from
// memory, not taken from one day's file; the mean of the second is 43.2, which is what the report
// of 23 October 2024 gives (43.24).
var (
	ipv4Lengths = []share{
		{24, 598}, {23, 100}, {22, 115}, {21, 54}, {20, 47}, {19, 27}, {18, 15}, {17, 9}, {16, 14}, {15, 2}, {14, 1},
		{13, 1}, {25, 4}, {26, 4}, {27, 3}, {28, 3}, {29, 3},
	}
	ipv6Lengths = []share{
		{48, 450}, {47, 33}, {46, 40}, {45, 18}, {44, 110}, {43, 8}, {42, 25}, {41, 5}, {40, 96}, {39, 5}, {38, 10},
		{37, 5}, {36, 48}, {35, 7}, {34, 10}, {33, 18}, {32, 100}, {31, 2}, {30, 3}, {29, 5}, {28, 1}, {24, 1},
	}
)

// drawLength draws a length in the proportions of shares.
func drawLength(rng *rand.Rand, shares []share) int {
	sum := 0
	for _, s := range shares {
		sum += s.perMille
	}
	at := rng.IntN(sum)
	for _, s := range shares {
		if at -= s.perMille; at < 0 {
			return s.length
		}
	}
	panic("corpus: shares do not add up")
}

// prefix is the first length bits of an address, at the top of bits.
type prefix struct {
	bits   uint64
	length int
}

// cut returns the prefix of the given length of an address that starts at bits' top.
func cut(bits uint64, length int) prefix {
	return prefix{bits &^ (^uint64(0) >> length), length}
}

// routeTable maps prefixes to ports.
type routeTable map[prefix]uint32

// longest returns the port of the longest prefix of an address that is at most most bits long.
func (t routeTable) longest(bits uint64, most int) (port uint32, ok bool) {
	for length := most; length > 0; length-- {
		if port, ok = t[cut(bits, length)]; ok {
			return port, true
		}
	}
	return 0, false
}

// drawRoutes returns n prefixes with lengths as shares has them. Prefixes lie near each other, as
// allocations do: within one of n/16 + 1 regions, all addresses of which have the first near bits in
// common, and every other one within a prefix that is there already if that is shorter. (58 % of
// RouteViews' IPv6 table is within another entry.)
func drawRoutes(rng *rand.Rand, n int, shares []share, near, ports int, address func() uint64) (routeTable, []prefix) {
	regions := draw(n/16+1, address)
	table, list := routeTable{}, make([]prefix, 0, n)
	for len(list) < n {
		region, length := cut(regions[rng.IntN(len(regions))], near), drawLength(rng, shares)
		if len(list) > 0 && len(list)%2 == 0 {
			if p := list[rng.IntN(len(list))]; p.length < length {
				region = p
			}
		}
		p := cut(region.bits|rng.Uint64()>>region.length, length)
		if _, known := table[p]; known {
			continue
		}
		table[p] = rng.Uint32N(uint32(ports))
		list = append(list, p)
	}
	return table, list
}

// drawDestination returns an address within one of the prefixes, and one in ten times any.
func drawDestination(rng *rand.Rand, list []prefix, address func() uint64) uint64 {
	if rng.IntN(10) == 0 {
		return address()
	}
	p := list[rng.IntN(len(list))]
	return p.bits | rng.Uint64()>>p.length
}

// sorted returns the table's prefixes, shorter ones first, then by their bits.
func (t routeTable) sorted() []prefix {
	return slices.SortedFunc(maps.Keys(t), func(a, b prefix) int {
		return cmp.Or(cmp.Compare(a.length, b.length), cmp.Compare(a.bits, b.bits))
	})
}
