package cuda

// FunctionAttribute is a CUfunction_attribute.
type FunctionAttribute int32

// Function attributes.
const (
	FuncMaxThreadsPerBlock   FunctionAttribute = 0
	FuncSharedSizeBytes      FunctionAttribute = 1
	FuncConstSizeBytes       FunctionAttribute = 2
	FuncLocalSizeBytes       FunctionAttribute = 3
	FuncNumRegs              FunctionAttribute = 4
	FuncPTXVersion           FunctionAttribute = 5
	FuncBinaryVersion        FunctionAttribute = 6
	FuncMaxDynamicSharedSize FunctionAttribute = 8
)

// ModuleUnload frees a module.
func (l *Library) ModuleUnload(m Module) error { return l.call(cuModuleUnload, uintptr(m)) }

// ModuleGetFunction finds a kernel by name.
func (l *Library) ModuleGetFunction(m Module, name string) (Function, error) {
	f, _, err := answers(func(s *scratch) error {
		return named(name, func(name uintptr) error { return l.call(cuModuleGetFunction, s.at(0), uintptr(m), name) })
	})
	return Function(f), err
}

// ModuleGetGlobal finds a variable by name.
func (l *Library) ModuleGetGlobal(m Module, name string) (p DevicePtr, size uint64, err error) {
	a, size, err := answers(func(s *scratch) error {
		return named(name, func(name uintptr) error {
			return l.call(cuModuleGetGlobal, s.at(0), s.at(1), uintptr(m), name)
		})
	})
	return DevicePtr(a), size, err
}

// FuncGetAttribute returns one of the attributes above.
func (l *Library) FuncGetAttribute(f Function, a FunctionAttribute) (int, error) {
	v, _, err := answers(func(s *scratch) error { return l.call(cuFuncGetAttribute, s.at(0), uintptr(a), uintptr(f)) })
	return int(int32(v)), err
}

// FuncSetAttribute sets an attribute.
func (l *Library) FuncSetAttribute(f Function, a FunctionAttribute, value int) error {
	return l.call(cuFuncSetAttribute, uintptr(f), uintptr(a), uintptr(value))
}

// FuncGetParamInfo returns the offset and size of the i-th parameter, or ErrInvalidValue if there
// are fewer.
func (l *Library) FuncGetParamInfo(f Function, i int) (offset, size uint64, err error) {
	return answers(func(s *scratch) error {
		return l.call(cuFuncGetParamInfo, uintptr(f), uintptr(i), s.at(0), s.at(1))
	})
}

// OccupancyMaxActiveBlocksPerMultiprocessor returns the number of blocks of so many threads and so
// much dynamic shared memory that an SM holds.
func (l *Library) OccupancyMaxActiveBlocksPerMultiprocessor(f Function, threads int, shared uint64) (int, error) {
	n, _, err := answers(func(s *scratch) error {
		return l.call(cuOccupancyMaxActiveBlocksPerMultiprocessor, s.at(0), uintptr(f), uintptr(threads), uintptr(shared))
	})
	return int(int32(n)), err
}
