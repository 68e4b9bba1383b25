package corpus

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
)

// The table of memcached: 16k entries in sets of 16, of which 8k SETs fill half (EDGE §V).
const (
	memcachedSets  = 1024
	memcachedWays  = 16
	memcachedFill  = 8192
	memcachedEntry = 8  // words: key, hash, used, value, time of the last GET
	memcachedSlot  = 96 // bytes a packet
	memcachedText  = 52 // where the text begins in a slot
	memcachedPort  = 11211
)

// memcached answers memcached's GETs over UDP: 16-byte keys, 2-byte values, no shared memory, one
// warp for 32 requests.
var memcached = Kernel{
	Name: "memcached",
	build: func(size Size, rng *rand.Rand) *Case {
		n, now := choose(size, 256, 6_000, 75_000), rng.Uint32()|1
		table := make([]uint32, memcachedSets*memcachedWays*memcachedEntry)
		values := map[[16]byte]uint16{}
		var keys [][16]byte
		for len(keys) < memcachedFill {
			key, value := memcachedKey(rng), uint16(rng.Uint32())
			if _, known := values[key]; !known && memcachedSet(table, key, value) {
				values[key], keys = value, append(keys, key)
			}
		}
		after := append([]uint32(nil), table...)
		requests, lengths := make([]byte, n*memcachedSlot), make([]uint32, n)
		answers := draw(n*memcachedSlot, func() uint8 { return 0xee })
		filler := append([]byte(nil), answers...)
		for i := range n {
			key := keys[rng.IntN(len(keys))]
			if rng.IntN(8) == 0 {
				key = memcachedKey(rng)
			}
			request := requests[i*memcachedSlot:][:memcachedSlot]
			memcachedRequest(rng, request, key)
			if rng.IntN(32) == 0 { // malformed, in one of four ways
				request[[]int{networkAt, networkAt + 9, memcachedText, ipv4UDPAt + 3}[rng.IntN(4)]] ^= 0x41
				continue
			}
			value, found := values[key]
			if found {
				after[memcachedFind(table, key)*memcachedEntry+7] = now
			}
			lengths[i] = uint32(memcachedAnswer(answers[i*memcachedSlot:], request, key, value, found))
		}
		return &Case{
			Buffers: []Buffer{
				input("requests", requests), update("table", table, after), update("answers", filler, answers), output("lengths", lengths),
			},
			Steps: []Launch{launch("memcached_get", blocksFor(n, warpSize), warpSize,
				ptr("requests"), ptr("table"), ptr("answers"), ptr("lengths"), u32(now), i32(n))},
		}
	},
}

// memcachedKey draws a key of small letters and digits.
func memcachedKey(rng *rand.Rand) (key [16]byte) {
	for i := range key {
		key[i] = "abcdefghijklmnopqrstuvwxyz0123456789"[rng.IntN(36)]
	}
	return key
}

// memcachedSet stores an entry. It returns false if the key's set is full.
func memcachedSet(table []uint32, key [16]byte, value uint16) bool {
	hash := lookup3(key[:], 0)
	for way := range memcachedWays {
		e := table[(int(hash%memcachedSets)*memcachedWays+way)*memcachedEntry:][:memcachedEntry]
		if e[5] == 0 {
			for k := range 4 {
				e[k] = binary.LittleEndian.Uint32(key[4*k:])
			}
			e[4], e[5], e[6] = hash, 1, uint32(value)
			return true
		}
	}
	return false
}

// memcachedFind returns the number of a key's entry, or -1.
func memcachedFind(table []uint32, key [16]byte) int {
	first := int(lookup3(key[:], 0)%memcachedSets) * memcachedWays
	for i := first; i < first+memcachedWays; i++ {
		e := table[i*memcachedEntry:]
		if e[5] != 0 && bytes.Equal(encode(e[:4]), key[:]) {
			return i
		}
	}
	return -1
}

// memcachedRequest fills a slot with a GET.
func memcachedRequest(rng *rand.Rand, slot []byte, key [16]byte) {
	text := "get " + string(key[:]) + "\r\n"
	length := memcachedText + len(text)
	ethernet(rng, slot, 0x0800)
	putIPv4(slot[networkAt:], uint16(rng.Uint32()), 60, protocolUDP, length-networkAt, rng.Uint32(), rng.Uint32())
	udp := slot[ipv4UDPAt:]
	binary.BigEndian.PutUint16(udp, uint16(1024+rng.IntN(60000)))
	binary.BigEndian.PutUint16(udp[2:], memcachedPort)
	binary.BigEndian.PutUint16(udp[4:], uint16(length-ipv4UDPAt))
	// The frame's header: a number, then datagram 0 of 1.
	binary.BigEndian.PutUint64(udp[8:], uint64(rng.Uint32N(1<<16))<<48|1<<16)
	copy(slot[memcachedText:], text)
}

// memcachedAnswer writes the answer to a request into slot and returns the packet's length.
func memcachedAnswer(slot, request []byte, key [16]byte, value uint16, found bool) int {
	text := []byte("END\r\n")
	if found {
		text = binary.LittleEndian.AppendUint16(append(append([]byte("VALUE "), key[:]...), " 0 2\r\n"...), value)
		text = append(text, "\r\nEND\r\n"...)
	}
	copy(slot[ethernetAt:], request[ethernetAt+6:][:6])
	copy(slot[ethernetAt+6:], request[ethernetAt:][:6])
	copy(slot[ethernetAt+12:], request[ethernetAt+12:][:2])
	end := memcachedText + len(text)
	in := request[networkAt:]
	putIPv4(slot[networkAt:], binary.BigEndian.Uint16(in[4:]), 64, protocolUDP, end-networkAt,
		binary.BigEndian.Uint32(in[16:]), binary.BigEndian.Uint32(in[12:]))
	copy(slot[ipv4UDPAt:], in[22:24])
	copy(slot[ipv4UDPAt+2:], in[20:22])
	binary.BigEndian.PutUint32(slot[ipv4UDPAt+4:], uint32(end-ipv4UDPAt)<<16)
	copy(slot[ipv4UDPAt+8:memcachedText], in[28:36])
	copy(slot[memcachedText:], text)
	return end - ethernetAt
}

// lookup3 is Bob Jenkins' hash lookup3 (2006), hashlittle, of up to 12·n+12 bytes.
func lookup3(key []byte, initial uint32) uint32 {
	a := 0xdeadbeef + uint32(len(key)) + initial
	b, c := a, a
	add := func(part []byte) {
		var w [12]byte
		copy(w[:], part)
		a += binary.LittleEndian.Uint32(w[0:])
		b += binary.LittleEndian.Uint32(w[4:])
		c += binary.LittleEndian.Uint32(w[8:])
	}
	for ; len(key) > 12; key = key[12:] {
		add(key[:12])
		for _, turns := range [2][3]int{{4, 6, 8}, {16, 19, 4}} {
			a = (a - c) ^ bits.RotateLeft32(c, turns[0])
			c += b
			b = (b - a) ^ bits.RotateLeft32(a, turns[1])
			a += c
			c = (c - b) ^ bits.RotateLeft32(b, turns[2])
			b += a
		}
	}
	if len(key) == 0 {
		return c
	}
	add(key)
	for _, turns := range [2][3]int{{14, 11, 25}, {16, 4, 14}} {
		c = (c ^ b) - bits.RotateLeft32(b, turns[0])
		a = (a ^ c) - bits.RotateLeft32(c, turns[1])
		b = (b ^ a) - bits.RotateLeft32(a, turns[2])
	}
	return (c ^ b) - bits.RotateLeft32(b, 24)
}
