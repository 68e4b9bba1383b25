package executor

import "testing"

// The window is whole while waits are short, and next to nothing when the last three were long. It
// is tried now and then all the same, and is whole again with short waits.
func TestPollWindow(t *testing.T) {
	const short, long = PollWindow, PollWindow + 1
	var w pollWindow
	for i := range maxMisses {
		if got := w.length(0); got != PollWindow {
			t.Fatalf("after %d long waits: %v", i, got)
		}
		w.record(long, 0)
	}
	tried := 0
	for range 10 * probeInterval {
		switch got := w.length(0); got {
		case PollWindow:
			tried++
		case PollWindow / 20:
		default:
			t.Fatalf("while waits are long: %v", got)
		}
		w.record(long, 0)
	}
	if tried != 10 {
		t.Errorf("the whole window was tried %d times in %d waits", tried, 10*probeInterval)
	}
	w.record(short, 0)
	for range probeInterval {
		if got := w.length(0); got != PollWindow {
			t.Fatalf("after a short wait: %v", got)
		}
		w.record(short, 0)
	}
}
