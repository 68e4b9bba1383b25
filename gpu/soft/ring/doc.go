// Package ring carries launches to the soft GPU and their completions back: a file in memory for
// each channel, mapped by the program that launches and by the GPU.
//
// The [Producer] launches; the [Consumer] is the GPU. Launches are numbered from 1. The producer
// writes an entry and then the number of entries put. The consumer copies an entry before it
// examines it, and when the launch has ended it writes an outcome and then the number completed.
// The consumer trusts nothing that the producer writes: it checks what it reads and computes every
// index from its own counts.
//
// Neither side makes a system call while the other is awake. A consumer that is about to sleep
// requests a kick; the producer checks for this after it has put an entry. A producer that waits
// longer than a moment sleeps on the completed count with a futex, and announces this, so that the
// consumer wakes it. There are no locks.
package ring
