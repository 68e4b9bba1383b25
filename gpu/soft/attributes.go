package soft

import "vgpud/gpu"

// The soft GPU's memory, as far as CUDA describes one: the clock is the GPU's, and a word is moved
// in a cycle.
const (
	memoryBusBits = 64
	maxPitch      = 1<<31 - 1
)

// Sizes of textures and surfaces, those that CUDA documents for compute capability 8.0. The soft
// GPU has no limits of its own.
var textureSizes = map[gpu.Attribute]int32{
	gpu.MaxTexture1DWidth: 131072, gpu.MaxTexture2DWidth: 131072, gpu.MaxTexture2DHeight: 65536,
	gpu.MaxTexture3DWidth: 16384, gpu.MaxTexture3DHeight: 16384, gpu.MaxTexture3DDepth: 16384,
	gpu.MaxTexture2DLayeredWidth: 32768, gpu.MaxTexture2DLayeredHeight: 32768, gpu.MaxTexture2DLayeredLayers: 2048,
	gpu.MaxTexture1DLayeredWidth: 32768, gpu.MaxTexture1DLayeredLayers: 2048,
	gpu.CanTexture2DGather: 1, gpu.MaxTexture2DGatherWidth: 32768, gpu.MaxTexture2DGatherHeight: 32768,
	gpu.MaxTexture3DWidthAlternate: 8192, gpu.MaxTexture3DHeightAlternate: 8192, gpu.MaxTexture3DDepthAlternate: 32768,
	gpu.MaxTextureCubemapWidth: 32768, gpu.MaxTextureCubemapLayeredWidth: 32768, gpu.MaxTextureCubemapLayeredLayers: 2046,
	gpu.MaxTexture1DLinearWidth: 1 << 28, gpu.MaxTexture2DLinearWidth: 131072, gpu.MaxTexture2DLinearHeight: 65000,
	gpu.MaxTexture2DLinearPitch: 2097120, gpu.MaxTexture2DMipmappedWidth: 32768, gpu.MaxTexture2DMipmappedHeight: 32768,
	gpu.MaxTexture1DMipmappedWidth: 32768,
	gpu.MaxSurface1DWidth:          32768, gpu.MaxSurface2DWidth: 131072, gpu.MaxSurface2DHeight: 65536,
	gpu.MaxSurface3DWidth: 16384, gpu.MaxSurface3DHeight: 16384, gpu.MaxSurface3DDepth: 16384,
	gpu.MaxSurface1DLayeredWidth: 32768, gpu.MaxSurface1DLayeredLayers: 2048,
	gpu.MaxSurface2DLayeredWidth: 32768, gpu.MaxSurface2DLayeredHeight: 32768, gpu.MaxSurface2DLayeredLayers: 2048,
	gpu.MaxSurfaceCubemapWidth: 32768, gpu.MaxSurfaceCubemapLayeredWidth: 32768, gpu.MaxSurfaceCubemapLayeredLayers: 2046,
}

// Attributes implements [gpu.Attributed], from the GPU's own configuration.
func (d *Device) Attributes() (a [gpu.AttributeCount]int32, err error) {
	p := &d.props
	for i, v := range textureSizes {
		a[i] = v
	}
	for i, v := range map[gpu.Attribute]uint64{
		gpu.MaxThreadsPerBlock: uint64(p.ThreadsPerBlock),
		gpu.MaxBlockDimX:       uint64(p.MaxBlockDim.X), gpu.MaxBlockDimY: uint64(p.MaxBlockDim.Y), gpu.MaxBlockDimZ: uint64(p.MaxBlockDim.Z),
		gpu.MaxGridDimX: uint64(p.MaxGrid.X), gpu.MaxGridDimY: uint64(p.MaxGrid.Y), gpu.MaxGridDimZ: uint64(p.MaxGrid.Z),
		gpu.MaxSharedPerBlock: p.SharedPerBlock, gpu.MaxSharedPerBlockOptin: p.SharedPerBlockOptin, gpu.MaxSharedPerMultiprocessor: p.SharedPerSM,
		gpu.MaxRegistersPerBlock: uint64(p.RegistersPerSM), gpu.MaxRegistersPerMultiprocessor: uint64(p.RegistersPerSM),
		gpu.MultiprocessorCount: uint64(p.SMs), gpu.MaxThreadsPerMultiprocessor: uint64(p.ThreadsPerSM),
		gpu.MaxBlocksPerMultiprocessor: uint64(p.BlocksPerSM),
		gpu.ClockRate:                  p.ClockHz / 1000, gpu.MemoryClockRate: p.ClockHz / 1000, gpu.MemoryBusWidth: memoryBusBits,
		gpu.L2CacheSize: p.L2Bytes, gpu.TotalConstantMemory: 64 << 10, gpu.WarpSize: 32, gpu.MaxPitch: maxPitch,
		gpu.TextureAlignment: 512, gpu.TexturePitchAlignment: 32, gpu.SurfaceAlignment: 512,
		gpu.ComputeCapabilityMajor: uint64(p.Major), gpu.ComputeCapabilityMinor: uint64(p.Minor),
		gpu.GPUOverlap: 1, gpu.AsyncEngineCount: 1, // programs copy beside the kernels
		gpu.ConcurrentKernels: 1, gpu.UnifiedAddressing: 1, gpu.CanMapHostMemory: 1, gpu.VirtualMemoryManagement: 1, gpu.MemoryPools: 1,
		gpu.StreamPriorities: 1, gpu.CooperativeLaunch: 1, gpu.SingleToDoubleRatio: 1, gpu.MemSyncDomainCount: 1,
	} {
		a[i] = int32(min(v, maxPitch))
	}
	if p.Preempts {
		a[gpu.ComputePreemption] = 1
	}
	a[gpu.HostNUMAID], a[gpu.NUMAID] = -1, -1
	return a, nil
}
