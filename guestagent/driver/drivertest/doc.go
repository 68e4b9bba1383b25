// Package drivertest is a host for drivers under test: an executor whose kernels are
// Go functions, and a device in the same process that runs it behind the driver's
// Bus. The rings, the shared memory and the wake-ups are the real ones; the
// registers are as forgiving as a device may be, since checking guests is not what
// is tested here.
package drivertest
