package corpus

import (
	"encoding/binary"
	"math/rand/v2"
)

const (
	noRoute   = 0xffff // the port for a packet that is dropped
	trieNode4 = 1 << 31
	root4     = 1 << 16 // words of the trie's root
)

// ipv4 forwards packets: longest prefix match in a trie, one warp for 32 packets (EDGE §V).
var ipv4 = Kernel{
	Name: "ipv4",
	build: func(size Size, rng *rand.Rand) *Case {
		n, rounds := choose(size, 1_000, 10_000, 50_000), choose(size, 1, 2, 6)
		address := func() uint64 { return rng.Uint64() &^ (1<<32 - 1) }
		routes, list := drawRoutes(rng, choose(size, 1_000, 4_000, 20_000), ipv4Lengths, 16, 64, address)
		before := make([]byte, n*packetSlot)
		for i := range n {
			slot := before[i*packetSlot:][:packetSlot]
			ipv4Packet(rng, slot, uint8(1+rng.IntN(64)), uint32(drawDestination(rng, list, address)>>32))
			switch rng.IntN(50) {
			case 0: // options
				slot[networkAt] = 0x46
			case 1: // a wrong checksum
				slot[networkAt+10] ^= 0x10
			}
		}
		after := append([]byte(nil), before...)
		c := &Case{}
		for range rounds {
			for i := range n {
				slot := after[i*packetSlot:]
				binary.LittleEndian.PutUint16(slot, forward4(slot[networkAt:][:20], routes))
			}
			c.Steps = append(c.Steps, launch("ipv4_forward", blocksFor(n, warpSize), warpSize, ptr("packets"), ptr("table"), i32(n)))
		}
		c.Buffers = []Buffer{update("packets", before, after), input("table", trie4(routes))}
		return c
	},
}

// forward4 forwards the packet of a header and returns its port.
func forward4(header []byte, routes routeTable) uint16 {
	if header[0] != 0x45 || internetSum(header) != 0 || header[8] <= 1 {
		return noRoute
	}
	port, ok := routes.longest(uint64(binary.BigEndian.Uint32(header[16:]))<<32, 32)
	if !ok {
		return noRoute
	}
	header[8]--
	header[10], header[11] = 0, 0
	binary.BigEndian.PutUint16(header[10:], internetSum(header))
	return uint16(port)
}

// trie4 returns the table as the kernel reads it.
func trie4(routes routeTable) []uint32 {
	trie := make([]uint32, root4)
	for i := range trie {
		trie[i] = noRoute
	}
	// node returns where the node below a word begins.
	node := func(at int) int {
		if trie[at]&trieNode4 == 0 {
			above := trie[at]
			trie[at] = trieNode4 | uint32((len(trie)-root4)/256)
			for range 256 {
				trie = append(trie, above)
			}
		}
		return root4 + int(trie[at]&^trieNode4)*256
	}
	// Shorter prefixes come first, so that longer ones overwrite theirs.
	for _, p := range routes.sorted() {
		bits := uint32(p.bits >> 32)
		at, rest := int(bits>>16), 16-p.length
		for _, next := range []uint32{bits >> 8 & 0xff, bits & 0xff} {
			if rest < 0 {
				at, rest = node(at)+int(next), rest+8
			}
		}
		for i := range 1 << rest {
			trie[at+i] = routes[p]
		}
	}
	return trie
}
