// Package device holds the virtual GPU (mediator/vgpu), served over vfio-user, to what a
// guest's driver sees of it. Commands are executed by the driver's own test double
// (guestagent/driver/drivertest). It has tests and benchmarks only.
package device
