package kernels

// catalog is every kernel, ordered by name.
var catalog = []Kernel{
	reduce,
	throttle,
	vecadd,
}
