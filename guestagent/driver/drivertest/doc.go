// Package drivertest is a host for drivers under test: an executor whose kernels are Go functions,
// and a device in the same process that runs it behind the driver's Bus. The rings, the shared
// memory and the wake-ups are real; the registers accept whatever a device may accept, since
// checking guests is not what these tests are about.
package drivertest
