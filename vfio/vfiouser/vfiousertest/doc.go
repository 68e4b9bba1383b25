// Package vfiousertest has peers for tests of vfio-user: a device in memory for tests of clients, a
// client that sends any bytes for tests of servers, and a check for leaked descriptors and
// goroutines. All use real sockets.
package vfiousertest
