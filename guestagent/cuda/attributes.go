package cuda

import (
	"maps"

	"vgpud/mediator/vgpu/abi"
)

// derive adds to the attributes that a device answered those that this library knows. Where the
// device does not answer all, the others follow from its compute capability. An attribute that is
// missing is 0.
func derive(known map[uint32]int32, features abi.Features) map[uint32]int32 {
	a := map[uint32]int32{}
	if features&abi.FeatureIdentity == 0 {
		maps.Copy(a, usual)
		maps.Copy(a, perSM(known[DeviceAttributeComputeCapabilityMajor], known[DeviceAttributeComputeCapabilityMinor]))
	}
	maps.Copy(a, known)
	maps.Copy(a, ours)
	if features&abi.FeatureWindowAddresses != 0 {
		a[DeviceAttributeCanMapHostMemory] = 1
		a[DeviceAttributeManagedMemory] = 1
		a[DeviceAttributeConcurrentManagedAccess] = 1
	}
	if features&abi.FeatureChosenAddresses != 0 {
		a[DeviceAttributeVirtualMemoryManagementSupported] = 1
	}
	a[DeviceAttributeMaxRegistersPerMultiprocessor] = max(a[DeviceAttributeMaxRegistersPerMultiprocessor], a[DeviceAttributeMaxRegistersPerBlock])
	return a
}

// usual are the attributes that all GPUs of the last generations share.
var usual = map[uint32]int32{
	DeviceAttributeTotalConstantMemory:                64 << 10,
	DeviceAttributeMaxPitch:                           1<<31 - 1,
	DeviceAttributeTextureAlignment:                   512,
	DeviceAttributeTexturePitchAlignment:              32,
	DeviceAttributeSurfaceAlignment:                   512,
	DeviceAttributeMemoryClockRate:                    1215000,
	DeviceAttributeGlobalMemoryBusWidth:               5120,
	DeviceAttributeL2CacheSize:                        40 << 20,
	DeviceAttributeAsyncEngineCount:                   3,
	DeviceAttributeConcurrentKernels:                  1,
	DeviceAttributeMaximumTexture1dWidth:              131072,
	DeviceAttributeMaximumTexture1dLinearWidth:        268435456,
	DeviceAttributeMaximumTexture1dMipmappedWidth:     32768,
	DeviceAttributeMaximumTexture1dLayeredWidth:       32768,
	DeviceAttributeMaximumTexture1dLayeredLayers:      2048,
	DeviceAttributeMaximumTexture2dWidth:              131072,
	DeviceAttributeMaximumTexture2dHeight:             65536,
	DeviceAttributeMaximumTexture2dLinearWidth:        131072,
	DeviceAttributeMaximumTexture2dLinearHeight:       65000,
	DeviceAttributeMaximumTexture2dLinearPitch:        2097120,
	DeviceAttributeMaximumTexture2dMipmappedWidth:     32768,
	DeviceAttributeMaximumTexture2dMipmappedHeight:    32768,
	DeviceAttributeMaximumTexture2dLayeredWidth:       32768,
	DeviceAttributeMaximumTexture2dLayeredHeight:      32768,
	DeviceAttributeMaximumTexture2dLayeredLayers:      2048,
	DeviceAttributeMaximumTexture2dGatherWidth:        32768,
	DeviceAttributeMaximumTexture2dGatherHeight:       32768,
	DeviceAttributeMaximumTexture3dWidth:              16384,
	DeviceAttributeMaximumTexture3dHeight:             16384,
	DeviceAttributeMaximumTexture3dDepth:              16384,
	DeviceAttributeMaximumTexture3dWidthAlternate:     8192,
	DeviceAttributeMaximumTexture3dHeightAlternate:    8192,
	DeviceAttributeMaximumTexture3dDepthAlternate:     32768,
	DeviceAttributeMaximumTexturecubemapWidth:         32768,
	DeviceAttributeMaximumTexturecubemapLayeredWidth:  32768,
	DeviceAttributeMaximumTexturecubemapLayeredLayers: 2046,
	DeviceAttributeMaximumSurface1dWidth:              32768,
	DeviceAttributeMaximumSurface1dLayeredWidth:       32768,
	DeviceAttributeMaximumSurface1dLayeredLayers:      2048,
	DeviceAttributeMaximumSurface2dWidth:              131072,
	DeviceAttributeMaximumSurface2dHeight:             65536,
	DeviceAttributeMaximumSurface2dLayeredWidth:       32768,
	DeviceAttributeMaximumSurface2dLayeredHeight:      32768,
	DeviceAttributeMaximumSurface2dLayeredLayers:      2048,
	DeviceAttributeMaximumSurface3dWidth:              16384,
	DeviceAttributeMaximumSurface3dHeight:             16384,
	DeviceAttributeMaximumSurface3dDepth:              16384,
	DeviceAttributeMaximumSurfacecubemapWidth:         32768,
	DeviceAttributeMaximumSurfacecubemapLayeredWidth:  32768,
	DeviceAttributeMaximumSurfacecubemapLayeredLayers: 2046,
	DeviceAttributeGlobalL1CacheSupported:             1,
	DeviceAttributeLocalL1CacheSupported:              1,
	DeviceAttributeMaxPersistingL2CacheSize:           30 << 20,
	DeviceAttributeMaxAccessPolicyWindowSize:          128 << 20,
	DeviceAttributeReservedSharedMemoryPerBlock:       1 << 10,
	DeviceAttributeGpuOverlap:                         1,
}

// perSM returns what depends on the compute capability.
func perSM(major, minor int32) map[uint32]int32 {
	shared, blocks, ratio := int32(100<<10), int32(16), int32(64)
	switch {
	case major == 8 && minor == 0:
		shared, blocks, ratio = 164<<10, 32, 2
	case major == 8 && minor == 7:
		shared, ratio = 164<<10, 32
	case major == 8 && minor == 9:
		blocks = 24
	case major >= 9 && major < 12:
		shared, blocks, ratio = 228<<10, 32, 2
	case major >= 12:
		blocks = 32
	case major == 7 && minor == 5:
		shared, ratio = 64<<10, 32
	case major == 7:
		shared, blocks, ratio = 96<<10, 32, 2
	}
	reserved := int32(1 << 10)
	if major < 8 {
		reserved = 0
	}
	return map[uint32]int32{
		DeviceAttributeMaxSharedMemoryPerMultiprocessor: shared,
		DeviceAttributeMaxSharedMemoryPerBlockOptin:     shared - reserved,
		DeviceAttributeMaxBlocksPerMultiprocessor:       blocks,
		DeviceAttributeSingleToDoublePrecisionPerfRatio: ratio,
		DeviceAttributeMaxRegistersPerMultiprocessor:    64 << 10,
		DeviceAttributeReservedSharedMemoryPerBlock:     reserved,
		DeviceAttributeSparseCudaArraySupported:         0,
		DeviceAttributeTensorMapAccessSupported:         0,
		DeviceAttributeClusterLaunch:                    0,
	}
}

// ours are the attributes that say what this library and the virtual GPU can do.
var ours = map[uint32]int32{
	DeviceAttributeIntegrated:                        0,
	DeviceAttributeKernelExecTimeout:                 0,
	DeviceAttributeComputeMode:                       0,
	DeviceAttributeEccEnabled:                        0,
	DeviceAttributeTccDriver:                         0,
	DeviceAttributeCanMapHostMemory:                  0,
	DeviceAttributeUnifiedAddressing:                 1,
	DeviceAttributeStreamPrioritiesSupported:         1,
	DeviceAttributeCooperativeLaunch:                 1,
	DeviceAttributeManagedMemory:                     0,
	DeviceAttributeConcurrentManagedAccess:           0,
	DeviceAttributePageableMemoryAccess:              0,
	DeviceAttributeCanUseHostPointerForRegisteredMem: 0,
	DeviceAttributeHostRegisterSupported:             1,
	DeviceAttributeMultiGpuBoard:                     0,
	DeviceAttributeCanFlushRemoteWrites:              0,
	DeviceAttributeMemoryPoolsSupported:              1,
	DeviceAttributeVirtualMemoryManagementSupported:  0,
	DeviceAttributeGpuDirectRdmaSupported:            0,
	DeviceAttributeIpcEventSupported:                 0,
	DeviceAttributeComputePreemptionSupported:        1,
}
