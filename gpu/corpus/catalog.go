package corpus

import "slices"

// catalog lists every kernel, ordered by name.
var catalog = []Kernel{
	approx,
	atomics,
	backprop,
	barriers,
	bfs,
	bitonic,
	blackscholes,
	calls,
	convolution,
	earlyreturn,
	euler,
	fft,
	globals,
	gridbarrier,
	halfprecision,
	histogram,
	hotspot,
	indices,
	inlineptx,
	integers,
	ipsec,
	ipv4,
	ipv6,
	kmeans,
	lennardjones,
	localarray,
	lookback,
	lud,
	mandelbrot,
	matmul,
	md5search,
	memcached,
	nbody,
	nearest,
	needleman,
	nnlayer,
	opcodes,
	particlefilter,
	pathfinder,
	ping,
	radix,
	reduce,
	rounding,
	say,
	scan,
	spmv,
	srad,
	stencil,
	streamcluster,
	throttle,
	transpose,
	triad,
	vecadd,
	warp,
}

// EDGE returns the kernels that stand for workloads of EDGE §V alone: its network kernels first, of
// which a block is an event of one warp, then kernels that run beside them. Its other background
// kernels are bfs, kmeans, matmul and srad. The benchmarks of other papers leave these out.
func EDGE() (events, background []Kernel) {
	return []Kernel{ipv4, ipv6, memcached, ipsec, ping}, []Kernel{convolution, lud, streamcluster, backprop}
}

// WithoutEDGE returns every kernel but those that EDGE returns.
func WithoutEDGE() []Kernel {
	events, background := EDGE()
	return slices.DeleteFunc(All(), func(k Kernel) bool {
		same := func(other Kernel) bool { return other.Name == k.Name }
		return slices.ContainsFunc(events, same) || slices.ContainsFunc(background, same)
	})
}
