// Package kubernetes is the pure part of running vgpud on nodes of a Kubernetes cluster: which devices
// a node offers to its scheduler, by Dynamic Resource Allocation, and which guest an allocated claim
// means. It does no I/O, has no clock, and imports nothing of Kubernetes; cmd/vgpu-dra publishes the
// devices as a ResourceSlice and has the daemon create the guests.
//
// Each GPU is one device that may be allocated many times, with two capacities:
//
//	share   100 a GPU: hundredths of its time
//	memory  its memory, in MiB here
//
// [Devices] makes them of what the daemon says, by the numbers of [vgpud/mediator/capacity]. A GPU that
// takes no guests is left out, so nothing new is allocated of it. A claim takes an amount of both of
// one device, from which [Guests] makes the guests' specifications.
package kubernetes
