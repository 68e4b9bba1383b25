package corpus

import (
	"crypto/cipher"
	"crypto/des"
	"encoding/binary"
	"math/rand/v2"
)

const (
	ipsecPayload = 256                  // bytes a packet (EDGE §V)
	ipsecSlot    = 8 + 8 + ipsecPayload // association and number, initial vector, payload
	ipsecKeys    = 3 * des.BlockSize    // bytes of three keys
	ipsecThreads = ipsecPayload / 8     // a packet: one warp
	ipsecRounds  = 3 * desRounds        // of three passes
)

// ipsec deciphers 3DES-CBC: table lookups and shuffled bits, a warp a packet of 256 bytes.
var ipsec = Kernel{
	Name: "ipsec",
	build: func(size Size, rng *rand.Rand) *Case {
		n, associations := choose(size, 2, 40, 500), choose(size, 2, 8, 32)
		keys := draw(associations, func() []byte { return draw(ipsecKeys, func() byte { return byte(rng.Uint32()) }) })
		var schedules []uint32
		for _, k := range keys {
			schedules = append(schedules, decipherSchedule(k)...)
		}
		packets := draw(n*ipsecSlot, func() byte { return byte(rng.Uint32()) })
		used := make([]int, n)
		for i := range used {
			used[i] = rng.IntN(associations)
			binary.LittleEndian.PutUint32(packets[i*ipsecSlot:], uint32(used[i]))
		}
		plain := append([]byte(nil), packets...)
		for i, association := range used {
			packet := plain[i*ipsecSlot:][:ipsecSlot]
			decipher(packet[16:], packet[8:16], keys[association])
		}
		return &Case{
			Buffers: []Buffer{
				update("packets", packets, plain), input("schedules", schedules),
				input("boxes", desBoxes()).global("boxes"),
			},
			Steps: []Launch{launch("ipsec_decipher", n, ipsecThreads, ptr("packets"), ptr("schedules"))},
		}
	},
}

// decipher is the reference: the standard library's.
func decipher(payload, vector, keys []byte) {
	block, err := des.NewTripleDESCipher(keys)
	if err != nil {
		panic("corpus: " + err.Error()) // three keys always serve
	}
	cipher.NewCBCDecrypter(block, vector).CryptBlocks(payload, payload)
}

// decipherSchedule returns the words of the rounds in the order of deciphering: with the third key
// backwards, with the second forwards, with the first backwards.
func decipherSchedule(keys []byte) []uint32 {
	words := make([]uint32, 0, 2*ipsecRounds)
	for pass := 2; pass >= 0; pass-- {
		rounds := desSchedule(binary.BigEndian.Uint64(keys[8*pass:]))
		for r := range rounds {
			if pass != 1 {
				r = desRounds - 1 - r
			}
			words = append(words, rounds[r][0], rounds[r][1])
		}
	}
	return words
}
