//go:build goexperiment.simd && amd64

package simt

import "simd/archsimd"

// avx2 reports whether this processor has the 256-bit vectors that a build with GOEXPERIMENT=simd
// uses for full warps. Without them it loops over lanes like any other build.
var avx2 = archsimd.X86.AVX2()
