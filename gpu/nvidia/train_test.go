package nvidia

import (
	"errors"
	"testing"
	"time"

	"vgpud/gpu"
)

// TestTrainIsToldOfOnce checks what a train costs, and that its commands have equal parts of its
// time.
func TestTrainIsToldOfOnce(t *testing.T) {
	x := newFake(t, Options{})
	ch := channelOf(t, x.context(t, gpu.ContextOptions{}))
	l := kernel(t, ch.c, "add", uint64(alloc(t, ch.c, 8)))
	before := [2]int{x.gpu.Calls("EventRecord"), x.gpu.Calls("StreamWriteValue64")}
	hanging, err := ch.Launch(kernel(t, ch.c, "hang", 0))
	if err != nil {
		t.Fatal(err)
	}
	const n = 5
	var all []gpu.Fence
	for i := range n {
		ch.Ahead(i < n-1)
		f, err := ch.Launch(l)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, f)
	}
	// Those of the kernel that hangs are its start, its end and its word.
	if events, words := x.gpu.Calls("EventRecord")-before[0], x.gpu.Calls("StreamWriteValue64")-before[1]; events != 2+1 || words != 1+1 {
		t.Errorf("%d events and %d words of two commands", events, words)
	}
	x.unblock()
	last := ran(t, ch, all[n-1], nil)
	end := ch.Outcome(hanging).End
	if last.Err != nil || end == 0 {
		t.Fatalf("%+v behind %v", last, end)
	}
	whole, from := last.End-end, end
	for i, f := range all {
		o := ch.Outcome(f)
		if want := end + whole*time.Duration(i+1)/n; o.Err != nil || o.Start != from || o.End < want-n || o.End > want+n {
			t.Errorf("command %d of %d: %+v, want from %v to %v", i+1, n, o, from, want)
		}
		from = o.End
	}
	if from != last.End {
		t.Errorf("the parts end at %v, the train at %v", from, last.End)
	}
}

// TestTrainThatEndsEarly has nothing follow a command although it was said to, and then a command
// that belongs to no train.
func TestTrainThatEndsEarly(t *testing.T) {
	x := newFake(t, Options{})
	ch := channelOf(t, x.context(t, gpu.ContextOptions{}))
	l := kernel(t, ch.c, "add", uint64(alloc(t, ch.c, 8)))
	ch.Ahead(true)
	first, err := ch.Launch(l)
	if err != nil {
		t.Fatal(err)
	}
	if o := ran(t, ch, first, nil); o.Err != nil || o.End == 0 {
		t.Errorf("%+v", o)
	}
	ch.Ahead(true)
	if first, err = ch.Launch(l); err != nil {
		t.Fatal(err)
	}
	second, err := ch.Launch(l)
	own := ran(t, ch, second, err)
	if o := ch.Outcome(first); o.Err != nil || o.End == 0 || o.End > own.End {
		t.Errorf("%+v, before %+v", o, own)
	}
	if got := ch.slots[uint64(second)%slotCount].began; got != recorded {
		t.Errorf("the command of no train began as %d", got)
	}
}

// TestFaultInATrain checks that a fault ends all of a train's commands, and that one of them has it.
func TestFaultInATrain(t *testing.T) {
	x := newFake(t, Options{})
	ch := channelOf(t, x.context(t, gpu.ContextOptions{}))
	ch.Ahead(true)
	if _, err := ch.Launch(kernel(t, ch.c, "bad", 0)); err != nil {
		t.Fatal(err)
	}
	ch.Ahead(false)
	last, err := ch.Launch(kernel(t, ch.c, "add", uint64(alloc(t, ch.c, 8))))
	if err != nil {
		t.Fatal(err)
	}
	x.unblock()
	var fault *gpu.Fault
	if err := ch.Wait(t.Context(), last); err == nil {
		t.Log("ended before it was waited for")
	}
	faults := 0
	for f := last - 1; f <= last; f++ {
		switch o := ch.Outcome(f); {
		case errors.As(o.Err, &fault):
			faults++
		case !errors.Is(o.Err, gpu.ErrPoisoned):
			t.Errorf("command %d: %+v", f, o)
		}
	}
	if faults != 1 {
		t.Errorf("%d of the commands have the fault", faults)
	}
}
