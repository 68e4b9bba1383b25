package neon

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestConfigIsLoGAs has CUDA's 12 channels for an application.
func TestConfigIsLoGAs(t *testing.T) {
	want := Config{Alone: 12 * time.Millisecond, FreeRun: 60 * time.Millisecond}
	if diff := cmp.Diff(want, PerChannels(12)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestRoundIsFreeRunAndEachAlone has LoGA's figure 7 with two channels a guest.
func TestRoundIsFreeRunAndEachAlone(t *testing.T) {
	if got, want := PerChannels(2).RoundLength(11), 11*(10+2)*time.Millisecond; got != want {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestQueueHoldsWhoIsAhead has one owner with commands ten times as long as the other's.
func TestQueueHoldsWhoIsAhead(t *testing.T) {
	q := NewQueue(PerChannels(2), 2)
	sampled := []Sample{{Owner: 0, Commands: 1, Charged: 50 * time.Millisecond}, {Owner: 1, Commands: 1, Charged: 5 * time.Millisecond}}
	if diff := cmp.Diff([]Owner{1}, q.Allow(sampled)); diff != "" {
		t.Errorf("allowed (-want +got):\n%s", diff)
	}
	sampled[0].Charged = 0
	for range 7 {
		q.Allow(sampled)
	}
	if diff := cmp.Diff([]Owner{0, 1}, q.Allow(sampled)); diff != "" {
		t.Errorf("allowed when it has caught up (-want +got):\n%s", diff)
	}
}

// TestQueueForgetsTimeNotUsed has an owner come back after it did nothing for long: it gets no
// credit for that.
func TestQueueForgetsTimeNotUsed(t *testing.T) {
	q := NewQueue(PerChannels(2), 2)
	const long = 100
	for range long {
		q.Allow([]Sample{{Owner: 0, Commands: 1, Charged: 10 * time.Millisecond}, {Owner: 1}})
	}
	back := []Sample{{Owner: 0, Commands: 1, Charged: 10 * time.Millisecond}, {Owner: 1, Commands: 1, Charged: 10 * time.Millisecond}}
	if diff := cmp.Diff([]Owner{0, 1}, q.Allow(back)); diff != "" {
		t.Errorf("allowed (-want +got):\n%s", diff)
	}
}
