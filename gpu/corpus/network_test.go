package corpus

import (
	"crypto/des"
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"testing"
)

func TestLookup3(t *testing.T) {
	// The vectors of the hash's author.
	for _, v := range []struct {
		key     string
		initial uint32
		want    uint32
	}{
		{"", 0, 0xdeadbeef}, {"", 0xdeadbeef, 0xbd5b7dde},
		{"Four score and seven years ago", 0, 0x17770551}, {"Four score and seven years ago", 1, 0xcd628161},
	} {
		if got := lookup3([]byte(v.key), v.initial); got != v.want {
			t.Errorf("lookup3(%q, %#x) = %#x, want %#x", v.key, v.initial, got, v.want)
		}
	}
}

// TestDESAsTheKernelComputesIt enciphers by the case's tables, one bit of the initial permutation at
// a time, and compares with the standard library.
func TestDESAsTheKernelComputesIt(t *testing.T) {
	rng, boxes := rand.New(rand.NewPCG(1, 2)), desBoxes()
	for range 20 {
		key, block := rng.Uint64(), rng.Uint64()
		var first []int // FIPS 46-3's initial permutation
		for _, from := range []int{58, 60, 62, 64, 57, 59, 61, 63} {
			for k := range 8 {
				first = append(first, from-8*k)
			}
		}
		state := permuted(block, 64, first)
		left, right := uint32(state>>32), uint32(state)
		for _, words := range desSchedule(key) {
			odd, even, sum := bits.RotateLeft32(right, 29)^words[0], bits.RotateLeft32(right, 1)^words[1], uint32(0)
			for k := range 4 {
				sum ^= boxes[(6-2*k)*64+int(odd>>(8*k)&63)] ^ boxes[(7-2*k)*64+int(even>>(8*k)&63)]
			}
			left, right = right, left^sum
		}
		state = uint64(right)<<32 | uint64(left)
		got := uint64(0)
		for i, from := range first {
			got |= state >> (63 - i) & 1 << (64 - from)
		}
		cipher, err := des.NewCipher(binary.BigEndian.AppendUint64(nil, key))
		if err != nil {
			t.Fatal(err)
		}
		want := make([]byte, 8)
		cipher.Encrypt(want, binary.BigEndian.AppendUint64(nil, block))
		if binary.BigEndian.Uint64(want) != got {
			t.Fatalf("key %x, block %x: got %x, want %x", key, block, got, want)
		}
	}
}

func TestRouteLengths(t *testing.T) {
	for name, table := range map[string]struct {
		shares []share
		mean   float64
	}{"IPv4": {ipv4Lengths, 23.0}, "IPv6": {ipv6Lengths, 43.2}} {
		sum, weighted := 0, 0
		for _, s := range table.shares {
			sum += s.perMille
			weighted += s.perMille * s.length
		}
		near(t, name+"'s shares", float64(sum), 1000, 0)
		near(t, name+"'s mean length", float64(weighted)/float64(sum), table.mean, 0.3)
	}
}

// TestForwardingFindsTheLongestPrefix checks that nested prefixes are in the cases and that the
// longer one wins, not only that kernel and table agree.
func TestForwardingFindsTheLongestPrefix(t *testing.T) {
	routes := routeTable{cut(10<<56, 8): 1, cut(10<<56|1<<48, 16): 2, cut(10<<56|1<<48|2<<40, 24): 3, cut(10<<56|1<<48|2<<40|128<<32, 25): 4}
	trie := trie4(routes)
	for to, want := range map[uint32]uint32{0x0a000001: 1, 0x0a010001: 2, 0x0a010201: 3, 0x0a010281: 4, 0x0b000000: noRoute} {
		entry := trie[to>>16]
		for _, next := range []uint32{to >> 8 & 0xff, to & 0xff} {
			if entry&trieNode4 != 0 {
				entry = trie[root4+int(entry&^trieNode4)*256+int(next)]
			}
		}
		if entry != want {
			t.Errorf("%#x leaves by %d, want %d", to, entry, want)
		}
	}
	for name, shares := range map[string][]share{"IPv4": ipv4Lengths, "IPv6": ipv6Lengths} {
		rng := rand.New(rand.NewPCG(3, 4))
		bits := 16
		if name == "IPv6" {
			bits = 28
		}
		routes, list := drawRoutes(rng, 4000, shares, bits, 64, rng.Uint64)
		nested := 0
		for _, p := range list {
			if _, ok := routes.longest(p.bits, p.length-1); ok {
				nested++
			}
		}
		if nested*4 < len(list) {
			t.Errorf("%s: only %d of %d prefixes lie within others", name, nested, len(list))
		}
	}
}

func TestMemcachedIsWarm(t *testing.T) {
	c := memcached.Case(Trivial, 1)
	table, used := initial[uint32](c, "table"), 0
	for i := 0; i < len(table); i += memcachedEntry {
		used += int(table[i+5])
	}
	if used != 8192 || len(table)/memcachedEntry != 16384 {
		t.Errorf("%d of %d entries are used, want 8,192 of 16,384", used, len(table)/memcachedEntry)
	}
	hits, misses, malformed := 0, 0, 0
	for _, n := range wanted[uint32](c, "lengths") {
		switch n {
		case 0:
			malformed++
		case memcachedText - ethernetAt + 5:
			misses++
		default:
			hits++
		}
	}
	if hits < 5*misses || misses == 0 || malformed == 0 {
		t.Errorf("%d hits, %d misses, %d malformed", hits, misses, malformed)
	}
}

func TestLUDMultipliesBack(t *testing.T) {
	c := lud.Case(Trivial, 1)
	a, lu := initial[float32](c, "a"), wanted[float32](c, "a")
	n := 48
	for row := range n {
		for column := range n {
			sum := 0.0
			for k := range min(row, column) + 1 {
				l := float64(lu[row*n+k])
				if k == row {
					l = 1
				}
				sum += l * float64(lu[k*n+column])
			}
			near(t, "product", sum, float64(a[row*n+column]), 1e-3)
		}
	}
}
