package cuda

// Attribute is a CUdevice_attribute.
type Attribute int32

// Device attributes.
const (
	MaxThreadsPerBlock          Attribute = 1
	MaxBlockDimX                Attribute = 2
	MaxBlockDimY                Attribute = 3
	MaxBlockDimZ                Attribute = 4
	MaxGridDimX                 Attribute = 5
	MaxGridDimY                 Attribute = 6
	MaxGridDimZ                 Attribute = 7
	MaxSharedMemoryPerBlock     Attribute = 8
	ClockRate                   Attribute = 13 // kHz
	MultiprocessorCount         Attribute = 16
	L2CacheSize                 Attribute = 38
	MaxThreadsPerMultiprocessor Attribute = 39
	ComputeCapabilityMajor      Attribute = 75
	ComputeCapabilityMinor      Attribute = 76
	MaxSharedPerMultiprocessor  Attribute = 81
	MaxRegsPerMultiprocessor    Attribute = 82
	MaxSharedPerBlockOptin      Attribute = 97
	MaxBlocksPerMultiprocessor  Attribute = 106
	MemoryPoolsSupported        Attribute = 115
)

// Init must be called before all other methods.
func (l *Library) Init() error { return l.call(cuInit, 0) }

// DriverGetVersion returns the CUDA version that the driver supports: 1000 times the major plus 10
// times the minor version.
func (l *Library) DriverGetVersion() (int, error) {
	v, _, err := answers(func(s *scratch) error { return l.call(cuDriverGetVersion, s.at(0)) })
	return int(int32(v)), err
}

// DeviceGetCount returns the number of devices that this process sees.
func (l *Library) DeviceGetCount() (int, error) {
	n, _, err := answers(func(s *scratch) error { return l.call(cuDeviceGetCount, s.at(0)) })
	return int(int32(n)), err
}

// DeviceGet finds the i-th device.
func (l *Library) DeviceGet(i int) (Device, error) {
	d, _, err := answers(func(s *scratch) error { return l.call(cuDeviceGet, s.at(0), uintptr(i)) })
	return Device(int32(d)), err
}

// DeviceTotalMem returns the size of the device's memory in bytes.
func (l *Library) DeviceTotalMem(d Device) (uint64, error) {
	n, _, err := answers(func(s *scratch) error { return l.call(cuDeviceTotalMem, s.at(0), uintptr(d)) })
	return n, err
}

// DeviceGetAttribute returns one of the attributes above.
func (l *Library) DeviceGetAttribute(d Device, a Attribute) (int, error) {
	v, _, err := answers(func(s *scratch) error { return l.call(cuDeviceGetAttribute, s.at(0), uintptr(a), uintptr(d)) })
	return int(int32(v)), err
}

// Flags of CtxCreate.
const CtxSchedBlockingSync = 4

// Limits of CtxGetLimit.
const (
	LimitStackSize      = 0
	LimitPrintfFIFOSize = 1
	LimitMallocHeapSize = 2
)

// CtxCreate makes a context and makes it current on the calling thread.
func (l *Library) CtxCreate(flags uint32, d Device) (Context, error) {
	c, _, err := answers(func(s *scratch) error { return l.call(cuCtxCreate, s.at(0), uintptr(flags), uintptr(d)) })
	return Context(c), err
}

// CtxDestroy destroys a context. It waits for the context's running work.
func (l *Library) CtxDestroy(c Context) error { return l.call(cuCtxDestroy, uintptr(c)) }

// CtxSetCurrent makes a context current on the calling thread. The caller must lock its goroutine
// to the thread for this call and for those that need the context.
func (l *Library) CtxSetCurrent(c Context) error { return l.call(cuCtxSetCurrent, uintptr(c)) }

// CtxGetLimit returns a limit of the current context, in bytes.
func (l *Library) CtxGetLimit(limit int) (uint64, error) {
	v, _, err := answers(func(s *scratch) error { return l.call(cuCtxGetLimit, s.at(0), uintptr(limit)) })
	return v, err
}

// CtxSetLimit sets a limit of the current context. Some limits can't be changed once a kernel has
// used what they are for.
func (l *Library) CtxSetLimit(limit int, value uint64) error {
	return l.call(cuCtxSetLimit, uintptr(limit), uintptr(value))
}
