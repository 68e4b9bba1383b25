package corpus

import "math/rand/v2"

// ping answers UDP packets by exchanging their sources and destinations (EDGE §II.B), one warp for
// 32 packets.
var ping = Kernel{
	Name: "ping",
	build: func(size Size, rng *rand.Rand) *Case {
		n, rounds := choose(size, 2_000, 25_000, 60_000), choose(size, 1, 3, 7) // an even number would change nothing
		before := make([]byte, n*packetSlot)
		answered := make([]uint32, n)
		for i := range n {
			slot := before[i*packetSlot:][:packetSlot]
			ipv4Packet(rng, slot, 64, rng.Uint32())
			switch rng.IntN(20) {
			case 0:
				slot[networkAt+9] = 6 // TCP
			case 1:
				slot[ethernetAt+13] = 6 // ARP
			default:
				answered[i] = 1
			}
		}
		after := append([]byte(nil), before...)
		for i := range n {
			if slot := after[i*packetSlot:]; answered[i] == 1 {
				exchange(slot[ethernetAt:][:6], slot[ethernetAt+6:][:6])
				exchange(slot[networkAt+12:][:4], slot[networkAt+16:][:4])
				exchange(slot[ipv4UDPAt:][:2], slot[ipv4UDPAt+2:][:2])
			}
		}
		c := &Case{Buffers: []Buffer{update("packets", before, after), output("answered", answered)}}
		for range rounds {
			c.Steps = append(c.Steps, launch("udp_ping", blocksFor(n, warpSize), warpSize, ptr("packets"), ptr("answered"), i32(n)))
		}
		return c
	},
}

// exchange exchanges the contents of two slices of one length.
func exchange(a, b []byte) {
	for i := range a {
		a[i], b[i] = b[i], a[i]
	}
}
