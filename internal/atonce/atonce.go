// Package atonce has tests run two functions at the same time, again and again, so that their loads
// and stores meet in every order that the processors allow.
package atonce

import (
	"runtime"
	"sync/atomic"
	"time"
)

// delays is how many delays, and delay how many turns of an empty loop one is: together about what
// an operation takes with the race detector.
const (
	delays = 16
	delay  = 16
)

// Run calls a and b at once on two goroutines, and then after on the caller's, until the time limit
// has passed or after returns false. Each begins sooner or later than the other by all of a series
// of delays. It returns the number of rounds. On a single processor a and b only alternate.
func Run(limit time.Duration, a, b func(), after func() bool) (rounds uint32) {
	var round, begun, ended atomic.Uint32
	var stop atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := uint32(1); ; i++ {
			spin(&round, i)
			if stop.Load() {
				return
			}
			begun.Store(i)
			pause(i / delays % delays)
			b()
			ended.Store(i)
		}
	}()
	start := time.Now()
	for i := uint32(1); ; i++ {
		if time.Since(start) > limit || i > 1 && !after() {
			stop.Store(true)
			round.Store(i)
			<-done
			return i - 1
		}
		round.Store(i)
		spin(&begun, i)
		pause(i % delays)
		a()
		spin(&ended, i)
	}
}

// spin waits until w is at least value. It polls, since a sleeper would be late.
func spin(w *atomic.Uint32, value uint32) {
	for n := 1; w.Load() < value; n++ {
		if n%1000 == 0 {
			runtime.Gosched()
		}
	}
}

// pause waits for a number of delays.
func pause(n uint32) {
	for range n * delay {
		nothing()
	}
}

//go:noinline
func nothing() {}
