package main

import (
	"math"

	"vgpud/gpu/soft/machine/blocks"
	"vgpud/mediator/vgpu/abi"
)

func single() abi.Preempt { return abi.Preempt{Form: abi.PreemptSingle, Group: 1, Every: 1} }
func coarse(group uint32) abi.Preempt {
	return abi.Preempt{Form: abi.PreemptCoarse, Group: group, Every: 1}
}
func fetched(group, every uint32) abi.Preempt {
	return abi.Preempt{Form: abi.PreemptPersistent, Group: group, Every: every}
}

// done marks the latency of kernels that finished before all their blocks checked again. Such a
// latency measures the end of the kernel, not an eviction.
var done = math.NaN()

// h100Runs are measurements on an H100 of the transformation's forms and of the papers' ways to
// check the evict word. They are medians of 7 runs and 12 evictions; where the word is not the
// usual one, of 1 to 3 runs and 3 to 5 evictions.
var h100Runs = []onGPU{
	{"vecadd", 1166.1, 1 << 20, once, []lineOnGPU{
		{single(), blocks.OwnLine, 7.86, 524.1},
		{coarse(8), blocks.OwnLine, -2.18, 77.4},
		{coarse(32), blocks.OwnLine, -2.27, 39.3},
		{fetched(1, 1), blocks.OwnLine, 26.61, 9.4},
		{fetched(4, 1), blocks.OwnLine, 0.82, 15.0},
		{fetched(16, 1), blocks.OwnLine, -0.53, 24.7},
		{single(), blocks.AllThreads, 145.98, 2061.2},
		{fetched(1, 1), blocks.AllThreads, 170.73, 13.5},
		{fetched(1, 64), blocks.AllThreads, 21.76, 84.1},
		{fetched(1, 1), blocks.ProxyOne, 27.84, 7.9},
		{fetched(1, 64), blocks.ProxyOne, 68.33, 82.6},
		{fetched(1, 1), blocks.Proxy, 172.24, 11.5},
		{fetched(1, 64), blocks.Proxy, 22.24, 77.7},
		{single(), blocks.HostMemory, 97436.99, 909159.7},
		{fetched(1, 1), blocks.HostMemory, 92428.75, 1042.7},
		{fetched(1, 64), blocks.HostMemory, 1362.09, 1039.1},
	}},
	{"stencil", 1717.6, 1 << 20, once, []lineOnGPU{
		{single(), blocks.OwnLine, 10.73, 371.8},
		{coarse(8), blocks.OwnLine, -8.76, 63.1},
		{coarse(32), blocks.OwnLine, -1.7, 55.8},
		{fetched(1, 1), blocks.OwnLine, 26.92, 10.4},
		{fetched(4, 1), blocks.OwnLine, -10.54, 13.6},
		{fetched(16, 1), blocks.OwnLine, -2.95, 31.0},
		{single(), blocks.AllThreads, 76.86, 1734.3},
		{fetched(1, 1), blocks.AllThreads, 95.46, 13.1},
		{fetched(1, 64), blocks.AllThreads, 20.16, 125.3},
		{fetched(1, 1), blocks.ProxyOne, 27.44, 8.8},
		{fetched(1, 64), blocks.ProxyOne, 18.56, 125.6},
		{fetched(1, 1), blocks.Proxy, 96.5, 10.9},
		{fetched(1, 64), blocks.Proxy, 20.87, 129.9},
		{single(), blocks.HostMemory, 62771.38, 513171.8},
		{fetched(1, 1), blocks.HostMemory, 62976.81, 1071.9},
		{fetched(1, 64), blocks.HostMemory, 921.77, 1017.5},
	}},
	{"matmul", 16769.4, 1 << 16, ofProduct, []lineOnGPU{
		{single(), blocks.OwnLine, -0.32, 251.3},
		{coarse(8), blocks.OwnLine, 3.29, 1694.8},
		{coarse(32), blocks.OwnLine, 9.83, 6461.2},
		{fetched(1, 1), blocks.OwnLine, -0.84, 241.7},
		{fetched(4, 1), blocks.OwnLine, 2.13, 1027.8},
		{fetched(16, 1), blocks.OwnLine, 8.94, 3107.2},
		{single(), blocks.AllThreads, 0.07, 243.1},
		{fetched(1, 1), blocks.AllThreads, -0.73, 254.0},
		{fetched(1, 64), blocks.AllThreads, -0.75, done},
		{fetched(1, 1), blocks.ProxyOne, -0.8, 200.6},
		{fetched(1, 64), blocks.ProxyOne, -0.76, done},
		{fetched(1, 1), blocks.Proxy, -0.73, 259.4},
		{fetched(1, 64), blocks.Proxy, -0.71, done},
		{single(), blocks.HostMemory, 304.02, 47822.0},
		{fetched(1, 1), blocks.HostMemory, 303.38, 1108.2},
		{fetched(1, 64), blocks.HostMemory, 8.06, done},
		{single(), blocks.HostMemoryAll, 3128.6, 445695.3},
	}},
	{"nbody", 5233.1, 8192, ofBodies, []lineOnGPU{
		{single(), blocks.OwnLine, 0.52, 1217.6},
		{coarse(8), blocks.OwnLine, 13.78, done},
		{coarse(32), blocks.OwnLine, 63.09, done},
		{fetched(1, 1), blocks.OwnLine, -1.13, 1095.3},
		{fetched(4, 1), blocks.OwnLine, 5.66, done},
		{fetched(16, 1), blocks.OwnLine, 321.11, done},
		{single(), blocks.AllThreads, -0.1, 1083.9},
		{fetched(1, 1), blocks.AllThreads, 1.2, 1108.1},
		{fetched(1, 64), blocks.AllThreads, 1.09, done},
		{fetched(1, 1), blocks.ProxyOne, -1.04, 1092.0},
		{fetched(1, 64), blocks.ProxyOne, -0.84, done},
		{fetched(1, 1), blocks.Proxy, 1.21, 1090.5},
		{fetched(1, 64), blocks.Proxy, 1.81, done},
		{single(), blocks.HostMemory, 78.96, 3183.4},
		{fetched(1, 1), blocks.HostMemory, 101.82, 2143.5},
		{fetched(1, 64), blocks.HostMemory, 37.45, done},
	}},
}
