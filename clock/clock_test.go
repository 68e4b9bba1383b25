package clock

import (
	"context"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestSimWakesWaitersInOrder(t *testing.T) {
	var s Sim
	woken := make(chan time.Duration, 3)
	for _, at := range []time.Duration{30, 10, 20} {
		go func() {
			if err := s.WaitUntil(t.Context(), at); err != nil {
				t.Error(err)
			}
			woken <- at
		}()
	}
	s.AwaitWaiters(3)
	s.Advance(10)
	if got := <-woken; got != 10 {
		t.Errorf("first woken: %d, want 10", got)
	}
	if got := s.Now(); got != 10 {
		t.Errorf("Now = %d, want 10", got)
	}
	s.Advance(100)
	if a, b := <-woken, <-woken; a+b != 50 {
		t.Errorf("woken %d and %d, want 20 and 30", a, b)
	}
	if got := s.Now(); got != 110 {
		t.Errorf("Now = %d, want 110", got)
	}
}

func TestSimWaitEndsWithContext(t *testing.T) {
	var s Sim
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.WaitUntil(ctx, 5) }()
	s.AwaitWaiters(1)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("WaitUntil = %v, want context.Canceled", err)
	}
	s.Advance(10) // must not wake the waiter that left
	if len(s.waiters) != 0 {
		t.Errorf("%d waiters left, want none", len(s.waiters))
	}
}

func TestSimPastInstantReturnsAtOnce(t *testing.T) {
	var s Sim
	s.Advance(7)
	if err := s.WaitUntil(t.Context(), 7); err != nil {
		t.Error(err)
	}
}

func TestRealGoesForward(t *testing.T) {
	var r Real
	before := r.Now()
	if err := Sleep(t.Context(), r, time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if d := r.Now() - before; d < time.Millisecond {
		t.Errorf("slept %v, want at least 1ms", d)
	}
}

// Stamps of two processes are compared, so Now must be the kernel's instant and not merely run at
// its pace.
func TestRealIsMonotonicClock(t *testing.T) {
	var before, after unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &before); err != nil {
		t.Fatal(err)
	}
	now := Real{}.Now()
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &after); err != nil {
		t.Fatal(err)
	}
	const slack = 10 * time.Microsecond // the start's instant is known this well
	if now < time.Duration(before.Nano())-slack || now > time.Duration(after.Nano())+slack {
		t.Errorf("Now = %v, want from %v to %v", now, time.Duration(before.Nano()), time.Duration(after.Nano()))
	}
}

func BenchmarkRealNow(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		_ = Real{}.Now()
	}
}

func TestTickWakesAllTogether(t *testing.T) {
	var s Sim
	s.Advance(7)
	woken := make(chan time.Duration, 2)
	for range 2 {
		go func() {
			if err := Tick(t.Context(), &s, 10); err != nil {
				t.Error(err)
			}
			woken <- s.Now()
		}()
		s.AwaitWaiters(1)
	}
	s.AwaitWaiters(2)
	s.Advance(3)
	if a, b := <-woken, <-woken; a != 10 || b != 10 {
		t.Errorf("woken at %d and %d, want 10", a, b)
	}
	// At a multiple it waits for the next.
	go func() {
		if err := Tick(t.Context(), &s, 10); err != nil {
			t.Error(err)
		}
		woken <- s.Now()
	}()
	s.AwaitWaiters(1)
	s.Advance(9)
	select {
	case at := <-woken:
		t.Errorf("woken at %d", at)
	default:
	}
	s.Advance(1)
	if at := <-woken; at != 20 {
		t.Errorf("woken at %d, want 20", at)
	}
}
