package futex

import (
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// words maps the same word twice, as two processes would.
func words(t *testing.T) (a, b *atomic.Uint32) {
	t.Helper()
	fd, err := unix.MemfdCreate("word", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "word")
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := f.Truncate(int64(os.Getpagesize())); err != nil {
		t.Fatal(err)
	}
	mapped := func() *atomic.Uint32 {
		mem, err := unix.Mmap(fd, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.Munmap(mem); err != nil {
				t.Error(err)
			}
		})
		return (*atomic.Uint32)(unsafe.Pointer(unsafe.SliceData(mem)))
	}
	return mapped(), mapped()
}

// now is the time of CLOCK_MONOTONIC.
func now(t *testing.T) time.Duration {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		t.Fatal(err)
	}
	return time.Duration(ts.Nano())
}

// TestWakeAcrossMappings wakes all that wait for a word, by another mapping of it.
func TestWakeAcrossMappings(t *testing.T) {
	a, b := words(t)
	const waiters = 3
	done := make(chan struct{}, waiters)
	for i := range waiters {
		go func() {
			for a.Load() == 0 {
				if i%2 == 0 {
					_ = Wait(a, 0, time.Hour)
				} else {
					_ = WaitUntil(a, 0, now(t)+time.Hour)
				}
			}
			done <- struct{}{}
		}()
	}
	b.Store(1)
	for n := 0; n < waiters; {
		Wake(b) // again, for those that were about to wait
		select {
		case <-done:
			n++
		default:
		}
	}
}

// TestWaitEnds: a wait for a word that has changed does not begin, and others end in time.
func TestWaitEnds(t *testing.T) {
	a, _ := words(t)
	if err := Wait(a, 1, time.Hour); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("changed already: %v", err)
	}
	if err := WaitUntil(a, 1, now(t)+time.Hour); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("changed already: %v", err)
	}
	ends := func(name string, least time.Duration, wait func() error) {
		t.Helper()
		from, err := now(t), error(unix.EINTR)
		for errors.Is(err, unix.EINTR) {
			err = wait()
		}
		if took := now(t) - from; !errors.Is(err, unix.ETIMEDOUT) || took < least {
			t.Errorf("%s: %v after %v, want at least %v", name, err, took, least)
		}
	}
	const d = 5 * time.Millisecond
	ends("for a time", d, func() error { return Wait(a, 0, d) })
	at := now(t) + d
	ends("until an instant", d/2, func() error { return WaitUntil(a, 0, at) })
	ends("until one that is past", 0, func() error { return WaitUntil(a, 0, at-time.Second) })
}
