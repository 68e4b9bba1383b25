package nvidia

import (
	"errors"
	"testing"
	"time"

	"vgpud/clock"
)

// The GPU's clock is read at intervals and extrapolated between. It does not go back when the
// clocks drift apart.
func TestReadings(t *testing.T) {
	var host clock.Sim
	gpu, reads := time.Hour, 0
	var broken error
	read := func() (time.Duration, error) {
		reads++
		return gpu, broken
	}
	var r readings
	var last time.Duration
	for range 1000 {
		got, err := r.at(host.Now(), &host, read)
		if err != nil {
			t.Fatal(err)
		}
		if got < last || got-gpu > 2*time.Microsecond || gpu-got > 2*time.Microsecond {
			t.Fatalf("%v, then %v, where the clock says %v", last, got, gpu)
		}
		last = got
		host.Advance(time.Millisecond)
		gpu += time.Millisecond - 20*time.Nanosecond
	}
	if reads < 15*readingTries || reads > 25*readingTries {
		t.Errorf("read %d times in a second", reads)
	}
	broken = errors.New("gone")
	host.Advance(time.Second)
	if _, err := r.at(host.Now(), &host, read); !errors.Is(err, broken) {
		t.Error(err)
	}
}

// The time of a past instant is derived from a later reading as well as from an earlier one.
func TestReadingsOfThePast(t *testing.T) {
	var host clock.Sim
	host.Advance(time.Minute)
	read := func() (time.Duration, error) { return host.Now() + time.Hour, nil }
	var r readings
	for range 3 {
		then := host.Now()
		host.Advance(10 * time.Microsecond)
		if got, err := r.was(then, &host, read); err != nil || got != then+time.Hour {
			t.Errorf("%v, %v, want %v", got, err, then+time.Hour)
		}
		if got, err := r.at(host.Now(), &host, read); err != nil || got != host.Now()+time.Hour {
			t.Errorf("now %v, %v", got, err)
		}
		host.Advance(readingEvery)
	}
}
