package corpus

import (
	"encoding/binary"
	"math/rand/v2"
)

// The network kernels' packets lie in slots. An Ethernet header begins two bytes into a slot, so
// that what follows it is aligned.
const (
	ethernetAt = 2
	networkAt  = 16 // of the IP header
	ipv4UDPAt  = 36
	packetSlot = 64 // bytes a slot, for forwarding and ping
	warpSize   = 32 // packets a block of one warp: an event of EDGE §V
)

const protocolUDP = 17

// internetSum is the Internet checksum (RFC 1071) of b, whose length is even.
func internetSum(b []byte) uint16 {
	sum := uint32(0)
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// ethernet fills in the slot's Ethernet header, with random addresses.
func ethernet(rng *rand.Rand, slot []byte, kind uint16) {
	for i := range 12 {
		slot[ethernetAt+i] = byte(rng.Uint32())
	}
	binary.BigEndian.PutUint16(slot[ethernetAt+12:], kind)
}

// putIPv4 fills in an IPv4 header of 20 bytes with its checksum.
func putIPv4(ip []byte, id uint16, hops, protocol uint8, length int, from, to uint32) {
	ip[0], ip[1] = 0x45, 0
	binary.BigEndian.PutUint16(ip[2:], uint16(length))
	binary.BigEndian.PutUint16(ip[4:], id)
	binary.BigEndian.PutUint16(ip[6:], 0)
	ip[8], ip[9] = hops, protocol
	ip[10], ip[11] = 0, 0
	binary.BigEndian.PutUint32(ip[12:], from)
	binary.BigEndian.PutUint32(ip[16:], to)
	binary.BigEndian.PutUint16(ip[10:], internetSum(ip[:20]))
}

// ipv4Packet fills a slot with a UDP packet of IPv4, the payload of which is random.
func ipv4Packet(rng *rand.Rand, slot []byte, hops uint8, to uint32) {
	ethernet(rng, slot, 0x0800)
	for i := networkAt; i < len(slot); i++ {
		slot[i] = byte(rng.Uint32())
	}
	putIPv4(slot[networkAt:], uint16(rng.Uint32()), hops, protocolUDP, len(slot)-networkAt, rng.Uint32(), to)
	binary.BigEndian.PutUint16(slot[ipv4UDPAt+4:], uint16(len(slot)-ipv4UDPAt))
}
