// Package ring is how launches reach the soft GPU and their ends come back: a file in memory for each channel, mapped
// by the program that launches and by the GPU.
//
// One side is the [Producer], which launches; the other the [Consumer], the GPU. Launches are numbered from 1. The
// producer writes an entry and then the number of entries put; the consumer copies an entry out before it looks at
// it, and when the launch has ended writes an outcome and then the number completed. Nothing that the producer writes
// is trusted: the consumer bounds what it reads and derives every index from its own counts.
//
// Neither side asks the kernel for anything while the other is awake. A consumer about to sleep says that it wants a
// kick; the producer, having put an entry, looks whether it must give one. A producer that waits longer than a moment
// sleeps on the completed count with a futex, and says so first, so that the consumer wakes it.
package ring
