// Package eventtable is a GPU's event kernel table (EDGE §III.A and E, table I): which kernels are
// registered, whose they are, and what has to be given back when one is not registered any more or
// its registration fails in the middle.
//
// It is pure: it has no goroutine, clock or lock, and belongs to one goroutine. A registration takes
// more than its row by the steps that the caller passes. Whether a ring finds a free entry is known to
// the queue (package eventqueue); the table counts what is under way, because unregistering a kernel
// lets that end first. The paper is silent on it.
package eventtable
