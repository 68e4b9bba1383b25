package corpus

import (
	"crypto/md5"
	"math"
	"math/rand/v2"
)

// md5search searches for the key of an MD5 digest: long unrolled integer arithmetic, a 16-byte
// vector as a parameter.
var md5search = Kernel{
	Name: "md5",
	build: func(size Size, rng *rand.Rand) *Case {
		const threads, keysPerThread = 64, 4
		keys := choose(size, 180, 5_000, 70_000)
		secret := rng.Uint32N(uint32(keys))
		digest := md5.Sum(md5Key(secret))
		return &Case{
			Buffers: []Buffer{
				update("found", []uint32{math.MaxUint32}, []uint32{secret}),
				input("sines", md5Sines()).global("sines"),
			},
			Steps: []Launch{launch("md5_search", blocksFor(keys, threads*keysPerThread), threads,
				Arg{Bytes: digest[:]}, u32(uint32(keys)), ptr("found"))},
		}
	},
}

// md5Key returns key number k: eight lower-case letters, the least significant first.
func md5Key(k uint32) []byte {
	key := make([]byte, 8)
	for i := range key {
		key[i] = 'a' + byte(k%26)
		k /= 26
	}
	return key
}

// md5Sines returns MD5's additive constants, floor(2³²·|sin(i+1)|).
func md5Sines() []uint32 {
	v := make([]uint32, 64)
	for i := range v {
		v[i] = uint32(math.Floor(0x1p32 * math.Abs(math.Sin(float64(i+1)))))
	}
	return v
}
