package cuda

import (
	"errors"
	"fmt"
	"strings"

	"github.com/ebitengine/purego"
)

// Name is the library's name, as the driver installs it.
const Name = "libcuda.so.1"

// MinVersion is the oldest driver that has all functions used here, in cuDriverGetVersion's form:
// CUDA 12.4, driver 550.
const MinVersion = 12040

// ErrAbsent is the error of [Open] on a host without the library.
var ErrAbsent = errors.New("no NVIDIA driver's library")

// Library is libcuda. Its methods may be called from any goroutine.
type Library struct {
	fn [functions]uintptr
}

// Open opens the library. It stays loaded until the process ends: the driver can't be unloaded. An
// error names the missing part.
func Open() (*Library, error) {
	handle, err := purego.Dlopen(Name, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w: %w: install the NVIDIA driver's compute library", Name, ErrAbsent, err)
	}
	var l Library
	var missing []string
	for i, name := range symbols {
		if l.fn[i], err = purego.Dlsym(handle, name); err != nil && function(i) < optional {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		version := "its version is not known"
		if v, err := l.DriverGetVersion(); err == nil {
			version = "it is for CUDA " + FormatVersion(v)
		}
		return nil, fmt.Errorf("%s lacks %s; %s, want %s or newer (driver 550)",
			Name, strings.Join(missing, ", "), version, FormatVersion(MinVersion))
	}
	return &l, nil
}

// FormatVersion formats a result of [Library.DriverGetVersion], such as "12.4".
func FormatVersion(v int) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }

// function is an index into symbols.
type function int

const (
	cuInit function = iota
	cuDriverGetVersion
	cuDeviceGetCount
	cuDeviceGet
	cuDeviceGetName
	cuDeviceGetUuid
	cuDeviceGetPCIBusID
	cuDeviceTotalMem
	cuDeviceGetAttribute
	cuCtxCreate
	cuCtxDestroy
	cuCtxSetCurrent
	cuCtxGetLimit
	cuCtxSetLimit
	cuMemGetInfo
	cuMemAlloc
	cuMemFree
	cuMemAllocAsync
	cuMemFreeAsync
	cuDeviceGetDefaultMemPool
	cuMemPoolSetAttribute
	cuMemPoolTrimTo
	cuMemAddressReserve
	cuMemAddressFree
	cuMemCreate
	cuMemRelease
	cuMemMap
	cuMemUnmap
	cuMemSetAccess
	cuMemGetAllocationGranularity
	cuMemHostRegister
	cuMemHostUnregister
	cuMemcpyHtoDAsync
	cuMemcpyDtoHAsync
	cuMemcpyDtoDAsync
	cuMemcpy3DAsync
	cuMemsetD8Async
	cuMemsetD16Async
	cuMemsetD32Async
	cuMemsetD2D8Async
	cuMemsetD2D16Async
	cuMemsetD2D32Async
	cuModuleLoadDataEx
	cuModuleUnload
	cuModuleGetFunction
	cuModuleGetGlobal
	cuModuleGetFunctionCount
	cuModuleEnumerateFunctions
	cuFuncGetAttribute
	cuFuncSetAttribute
	cuFuncGetParamInfo
	cuOccupancyMaxActiveBlocksPerMultiprocessor
	cuLaunchKernel
	cuStreamCreateWithPriority
	cuStreamDestroy
	cuStreamSynchronize
	cuStreamWaitEvent
	cuStreamWriteValue64
	cuEventCreate
	cuEventDestroy
	cuEventRecord
	cuEventQuery
	cuEventSynchronize
	cuEventElapsedTime
	cuArray3DCreate
	cuArrayDestroy
	cuTexObjectCreate
	cuTexObjectDestroy
	cuSurfObjectCreate
	cuSurfObjectDestroy
	cuModuleGetTexRef
	cuTexRefSetArray
	cuTexRefSetAddress
	cuTexRefSetAddress2D
	cuTexRefSetFormat
	cuTexRefSetAddressMode
	cuTexRefSetFilterMode
	cuTexRefSetFlags
	cuTexRefSetBorderColor
	cuModuleGetSurfRef
	cuSurfRefSetArray
	functions

	// optional functions are deprecated: a library without them can bind no texture references.
	optional = cuModuleGetTexRef
)

// symbols are the names in the library. The suffixes are those to which cuda.h of CUDA 12 defines
// the plain names.
var symbols = [functions]string{
	cuInit:                        "cuInit",
	cuDriverGetVersion:            "cuDriverGetVersion",
	cuDeviceGetCount:              "cuDeviceGetCount",
	cuDeviceGet:                   "cuDeviceGet",
	cuDeviceGetName:               "cuDeviceGetName",
	cuDeviceGetUuid:               "cuDeviceGetUuid_v2",
	cuDeviceGetPCIBusID:           "cuDeviceGetPCIBusId",
	cuDeviceTotalMem:              "cuDeviceTotalMem_v2",
	cuDeviceGetAttribute:          "cuDeviceGetAttribute",
	cuCtxCreate:                   "cuCtxCreate_v2",
	cuCtxDestroy:                  "cuCtxDestroy_v2",
	cuCtxSetCurrent:               "cuCtxSetCurrent",
	cuCtxGetLimit:                 "cuCtxGetLimit",
	cuCtxSetLimit:                 "cuCtxSetLimit",
	cuMemGetInfo:                  "cuMemGetInfo_v2",
	cuMemAlloc:                    "cuMemAlloc_v2",
	cuMemFree:                     "cuMemFree_v2",
	cuMemAllocAsync:               "cuMemAllocAsync",
	cuMemFreeAsync:                "cuMemFreeAsync",
	cuDeviceGetDefaultMemPool:     "cuDeviceGetDefaultMemPool",
	cuMemPoolSetAttribute:         "cuMemPoolSetAttribute",
	cuMemPoolTrimTo:               "cuMemPoolTrimTo",
	cuMemAddressReserve:           "cuMemAddressReserve",
	cuMemAddressFree:              "cuMemAddressFree",
	cuMemCreate:                   "cuMemCreate",
	cuMemRelease:                  "cuMemRelease",
	cuMemMap:                      "cuMemMap",
	cuMemUnmap:                    "cuMemUnmap",
	cuMemSetAccess:                "cuMemSetAccess",
	cuMemGetAllocationGranularity: "cuMemGetAllocationGranularity",
	cuMemHostRegister:             "cuMemHostRegister_v2",
	cuMemHostUnregister:           "cuMemHostUnregister",
	cuMemcpyHtoDAsync:             "cuMemcpyHtoDAsync_v2",
	cuMemcpyDtoHAsync:             "cuMemcpyDtoHAsync_v2",
	cuMemcpyDtoDAsync:             "cuMemcpyDtoDAsync_v2",
	cuMemcpy3DAsync:               "cuMemcpy3DAsync_v2",
	cuMemsetD8Async:               "cuMemsetD8Async",
	cuMemsetD16Async:              "cuMemsetD16Async",
	cuMemsetD32Async:              "cuMemsetD32Async",
	cuMemsetD2D8Async:             "cuMemsetD2D8Async",
	cuMemsetD2D16Async:            "cuMemsetD2D16Async",
	cuMemsetD2D32Async:            "cuMemsetD2D32Async",
	cuModuleLoadDataEx:            "cuModuleLoadDataEx",
	cuModuleUnload:                "cuModuleUnload",
	cuModuleGetFunction:           "cuModuleGetFunction",
	cuModuleGetGlobal:             "cuModuleGetGlobal_v2",
	cuModuleGetFunctionCount:      "cuModuleGetFunctionCount",
	cuModuleEnumerateFunctions:    "cuModuleEnumerateFunctions",
	cuFuncGetAttribute:            "cuFuncGetAttribute",
	cuFuncSetAttribute:            "cuFuncSetAttribute",
	cuFuncGetParamInfo:            "cuFuncGetParamInfo",
	cuOccupancyMaxActiveBlocksPerMultiprocessor: "cuOccupancyMaxActiveBlocksPerMultiprocessor",
	cuLaunchKernel:             "cuLaunchKernel",
	cuStreamCreateWithPriority: "cuStreamCreateWithPriority",
	cuStreamDestroy:            "cuStreamDestroy_v2",
	cuStreamSynchronize:        "cuStreamSynchronize",
	cuStreamWaitEvent:          "cuStreamWaitEvent",
	cuStreamWriteValue64:       "cuStreamWriteValue64_v2",
	cuEventCreate:              "cuEventCreate",
	cuEventDestroy:             "cuEventDestroy_v2",
	cuEventRecord:              "cuEventRecord",
	cuEventQuery:               "cuEventQuery",
	cuEventSynchronize:         "cuEventSynchronize",
	cuEventElapsedTime:         "cuEventElapsedTime",
	cuArray3DCreate:            "cuArray3DCreate_v2",
	cuArrayDestroy:             "cuArrayDestroy",
	cuTexObjectCreate:          "cuTexObjectCreate",
	cuTexObjectDestroy:         "cuTexObjectDestroy",
	cuSurfObjectCreate:         "cuSurfObjectCreate",
	cuSurfObjectDestroy:        "cuSurfObjectDestroy",
	cuModuleGetTexRef:          "cuModuleGetTexRef",
	cuTexRefSetArray:           "cuTexRefSetArray",
	cuTexRefSetAddress:         "cuTexRefSetAddress_v2",
	cuTexRefSetAddress2D:       "cuTexRefSetAddress2D_v3",
	cuTexRefSetFormat:          "cuTexRefSetFormat",
	cuTexRefSetAddressMode:     "cuTexRefSetAddressMode",
	cuTexRefSetFilterMode:      "cuTexRefSetFilterMode",
	cuTexRefSetFlags:           "cuTexRefSetFlags",
	cuTexRefSetBorderColor:     "cuTexRefSetBorderColor",
	cuModuleGetSurfRef:         "cuModuleGetSurfRef",
	cuSurfRefSetArray:          "cuSurfRefSetArray",
}
