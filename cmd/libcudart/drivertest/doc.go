// Package drivertest tests cmd/libcudart over a driver that only records: what differs between the
// runtime's major versions, what each library exports, and what a launch costs above the driver's.
// e2e/cuda runs programs over the real one.
package drivertest
