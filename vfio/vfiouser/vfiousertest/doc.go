// Package vfiousertest has peers for tests of vfio-user: a device in memory for tests of clients, a client that sends any
// bytes for tests of servers, and checks that nothing is left open. They are real ends of real sockets.
package vfiousertest
