//go:build goexperiment.simd && amd64

package simt

import "simd/archsimd"

// avx2 reports whether this processor has the vectors of 256 bits that a build
// with GOEXPERIMENT=simd uses for full warps; without them it loops over lanes
// as any other build does.
var avx2 = archsimd.X86.AVX2()
