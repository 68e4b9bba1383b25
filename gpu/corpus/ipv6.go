package corpus

import (
	"encoding/binary"
	"math/rand/v2"
)

const (
	longest6  = 48 // bits of a prefix
	entryOf6  = 4  // words of an entry: the prefix's first 32 bits, its next 16 and how many follow it, the port, nothing
	address6  = 0x2000_0000_0000_0000
	prefixes6 = 0x1fff_ffff_ffff_ffff // unicast addresses are in 2000::/3 so far
)

// ipv6 forwards packets: longest prefix match by hash tables and halving, one warp for 32 packets
// (EDGE §V).
var ipv6 = Kernel{
	Name: "ipv6",
	build: func(size Size, rng *rand.Rand) *Case {
		n, rounds := choose(size, 500, 8_000, 40_000), choose(size, 1, 1, 3)
		address := func() uint64 { return address6 | rng.Uint64()&prefixes6 }
		routes, list := drawRoutes(rng, choose(size, 500, 4_000, 20_000), ipv6Lengths, 28, 64, address)
		before := make([]byte, n*packetSlot)
		for i := range n {
			slot := before[i*packetSlot:][:packetSlot]
			ethernet(rng, slot, 0x86dd)
			ip := slot[networkAt:]
			for k := range ip {
				ip[k] = byte(rng.Uint32())
			}
			ip[0] = 0x60
			binary.BigEndian.PutUint16(ip[4:], uint16(len(ip)-40))
			ip[6], ip[7] = protocolUDP, uint8(1+rng.IntN(64))
			binary.BigEndian.PutUint64(ip[24:], drawDestination(rng, list, address))
			if rng.IntN(50) == 0 {
				ip[0] = 0x40
			}
		}
		after := append([]byte(nil), before...)
		table := hashes6(routes)
		c := &Case{}
		for range rounds {
			for i := range n {
				slot := after[i*packetSlot:]
				binary.LittleEndian.PutUint16(slot, forward6(slot[networkAt:], routes))
			}
			c.Steps = append(c.Steps, launch("ipv6_forward", blocksFor(n, warpSize), warpSize,
				ptr("packets"), ptr("table"), u32(uint32(len(table)/entryOf6-1)), i32(n)))
		}
		c.Buffers = []Buffer{update("packets", before, after), input("table", table)}
		return c
	},
}

// forward6 forwards the packet of a header and returns its port.
func forward6(header []byte, routes routeTable) uint16 {
	if header[0]>>4 != 6 || header[7] <= 1 {
		return noRoute
	}
	port, ok := routes.longest(binary.BigEndian.Uint64(header[24:]), longest6)
	if !ok {
		return noRoute
	}
	header[7]--
	return uint16(port)
}

// hashes6 returns the table as the kernel reads it: every prefix, and on the way of halving to it
// the beginnings that lead there, each with the port of the longest prefix up to there.
func hashes6(routes routeTable) []uint32 {
	entries := routeTable{}
	for p := range routes {
		length := 24
		for _, step := range [...]int{12, 6, 3, 2, 1, 0} {
			if length > 0 && length <= p.length {
				best := uint32(noRoute)
				if port, ok := routes.longest(p.bits, length); ok {
					best = port
				}
				entries[cut(p.bits, length)] = best
			}
			switch {
			case length < p.length:
				length += step
			case length > p.length:
				length -= step
			}
		}
	}
	slots := 1
	for slots < 2*len(entries) {
		slots *= 2
	}
	// In a fixed order, so that equal cases have equal tables.
	table := make([]uint32, slots*entryOf6)
	for _, p := range entries.sorted() {
		high, rest := uint32(p.bits>>32), uint32(p.bits)|uint32(64-p.length)
		at := (high ^ rest*0x85ebca6b) * 0x9e3779b1
		at ^= at >> 15
		for table[(int(at)&(slots-1))*entryOf6+1] != 0 {
			at++
		}
		copy(table[(int(at)&(slots-1))*entryOf6:], []uint32{high, rest, entries[p]})
	}
	return table
}
