package nvidia

import (
	"errors"
	"testing"

	"vgpud/gpu"
)

// TestCopiesAreToldOfByEvents: behind a copy nothing is stored, and it is known all the same that
// the copy is done, also to what only sees the word.
func TestCopiesAreToldOfByEvents(t *testing.T) {
	x := newFake(t, Options{})
	c := x.context(t, gpu.ContextOptions{})
	ch := channelOf(t, c)
	p := alloc(t, c, 8)
	words := func() int { return x.gpu.Calls("StreamWriteValue64") }
	before := words()
	f, err := ch.CopyIn(p, make([]byte, 8))
	if o := ran(t, ch, f, err); o.Err != nil || o.End == 0 {
		t.Errorf("a copy in: %+v", o)
	}
	read(t, ch, p, 8)
	f, err = ch.Copy(p, p, 8)
	ran(t, ch, f, err)
	if n := words() - before; n != 0 {
		t.Errorf("%d stores behind copies", n)
	}
	if got := ch.word.Load(); got != ch.last.Load() {
		t.Errorf("the word is %d when all is done, want %d", got, ch.last.Load())
	}
	// Behind a kernel there is a store, which tells of the copy before it as well.
	hang, err := ch.Launch(kernel(t, c, "hang", 0))
	if err != nil {
		t.Fatal(err)
	}
	first, err := ch.CopyIn(p, make([]byte, 8))
	if err != nil {
		t.Fatal(err)
	}
	add, err := ch.Launch(kernel(t, c, "add", uint64(p)))
	if err != nil {
		t.Fatal(err)
	}
	second, err := ch.CopyIn(p, make([]byte, 8))
	if err != nil {
		t.Fatal(err)
	}
	if done := ch.Done(); done >= hang {
		t.Errorf("%d is done behind a kernel that hangs, %d", done, hang)
	}
	x.unblock()
	for _, f := range []gpu.Fence{hang, first, add, second} {
		if o := ran(t, ch, f, nil); o.Err != nil {
			t.Errorf("%d: %v", f, o.Err)
		}
	}
	if n := words() - before; n != 2 {
		t.Errorf("%d stores behind two kernels and four copies", n)
	}
}

// copyBehind returns a device, a channel of its context with a kernel that waits for unblock and a
// copy behind it, whose fence is 2, and the memory that is copied to.
func copyBehind(t *testing.T, name string) (*fake, *Channel, gpu.Ptr) {
	t.Helper()
	x := newFake(t, Options{})
	c := x.context(t, gpu.ContextOptions{})
	ch := channelOf(t, c)
	p := alloc(t, c, 8)
	if _, err := ch.Launch(kernel(t, c, name, 0)); err != nil {
		t.Fatal(err)
	}
	if f, err := ch.CopyIn(p, make([]byte, 8)); err != nil || f != 2 {
		t.Fatalf("fence %d, %v", f, err)
	}
	return x, ch, p
}

// TestChannelClosedBehindACopy: its stream serves another channel once the copy is done, though
// nobody asks for the copy's end any more.
func TestChannelClosedBehindACopy(t *testing.T) {
	x, ch, _ := copyBehind(t, "hang")
	c := ch.c
	lane := ch.lane
	if err := ch.Close(); err != nil {
		t.Fatal(err)
	}
	x.unblock()
	if err := c.do("wait", func() error { return x.gpu.StreamSynchronize(lane.stream) }); err != nil {
		t.Fatal(err)
	}
	if next := channelOf(t, c); next.lane != lane {
		t.Error("the stream of a closed channel stays unused")
	}
}

// TestMemoryFreedBehindACopy: it is given back once the copy is done, though nobody asks the channel
// for the copy's end.
func TestMemoryFreedBehindACopy(t *testing.T) {
	x, ch, p := copyBehind(t, "hang")
	c := ch.c
	if err := c.Free(p); err != nil {
		t.Fatal(err)
	}
	if c.Freed() == 0 {
		t.Error("memory is given back before the commands that may use it")
	}
	x.unblock()
	if err := c.do("wait", func() error { return x.gpu.StreamSynchronize(ch.stream) }); err != nil {
		t.Fatal(err)
	}
	if n := c.Freed(); n != 0 {
		t.Errorf("%d bytes are not given back", n)
	}
}

// TestContextClosedBehindACopy: it does not wait for a word that nobody stores.
func TestContextClosedBehindACopy(t *testing.T) {
	x := newFake(t, Options{})
	c := x.context(t, gpu.ContextOptions{})
	ch := channelOf(t, c)
	if _, err := ch.CopyIn(alloc(t, c, 8), make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// TestFaultBehindACopy: whoever asks for a copy's end learns that a fault has ended the context.
func TestFaultBehindACopy(t *testing.T) {
	x, ch, _ := copyBehind(t, "bad")
	c, f := ch.c, gpu.Fence(2)
	x.unblock()
	for c.Fault() == nil {
		ch.Done()
	}
	if o := ch.Outcome(f); !errors.Is(o.Err, gpu.ErrPoisoned) {
		t.Errorf("the copy's outcome is %v", o.Err)
	}
}
