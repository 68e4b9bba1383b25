// Package device tests the virtual GPU (mediator/vgpu), served over vfio-user, through a guest's
// driver. The driver's test double (guestagent/driver/drivertest) executes the commands. It has
// tests and benchmarks only.
package device
