package ring

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vgpud/gpu"
	"vgpud/internal/atonce"
)

// pair maps a new ring from both sides.
func pair(t testing.TB, kick func()) (*Producer, *Consumer) {
	t.Helper()
	f, err := NewFile()
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewProducer(f, kick)
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewConsumer(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(p.Close(), c.Close()); err != nil {
			t.Error(err)
		}
	})
	return p, c
}

func mustWaiting(t testing.TB, c *Consumer) int {
	t.Helper()
	n, err := c.Waiting()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestEntriesGoThroughInOrder(t *testing.T) {
	p, c := pair(t, nil)
	var got Entry
	for i := range uint32(3 * Entries) {
		want := Entry{Kernel: i, Grid: gpu.Dim3{X: i, Y: 2, Z: 3}, Block: gpu.Dim3{X: 4, Y: 5, Z: 6},
			Shared: uint64(i) << 33, Params: make([]byte, int(i)*20%ParamBytes)}
		for j := range want.Params {
			want.Params[j] = byte(int(i) + j)
		}
		seq, ok := p.Put(&want)
		if !ok || seq != uint64(i+1) {
			t.Fatalf("put %d: number %d, %v", i, seq, ok)
		}
		if n := mustWaiting(t, c); n != 1 {
			t.Fatalf("%d waiting, want 1", n)
		}
		if seq := c.Fetch(&got); seq != uint64(i+1) {
			t.Fatalf("fetched %d, want %d", seq, i+1)
		}
		if got.Kernel != want.Kernel || !bytes.Equal(got.Params, want.Params) {
			t.Fatalf("entry %d has kernel %d and %d bytes of parameters", i, got.Kernel, len(got.Params))
		}
		got.Params, want.Params = nil, nil
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("entry (-want +got):\n%s", diff)
		}
		wantOut := Outcome{Start: int64(i), End: int64(i) + 7, Code: Code(i % 3)}
		c.Complete(wantOut)
		if o, ok := p.Outcome(seq); !ok || o != wantOut {
			t.Fatalf("outcome %+v, %v; want %+v", o, ok, wantOut)
		}
	}
	if _, ok := p.Outcome(1); ok {
		t.Error("an outcome is still known after two rounds of the ring")
	}
	if _, ok := p.Outcome(p.Completed() + 1); ok {
		t.Error("an outcome is known before its launch")
	}
}

func TestFullRingRefuses(t *testing.T) {
	p, c := pair(t, nil)
	for range Entries {
		if _, ok := p.Put(&Entry{}); !ok {
			t.Fatal("refused before it was full")
		}
	}
	if _, ok := p.Put(&Entry{}); ok {
		t.Fatal("took more than it holds")
	}
	var e Entry
	c.Fetch(&e)
	if _, ok := p.Put(&Entry{}); ok {
		t.Fatal("an entry that was fetched is not free before it completes")
	}
	c.Complete(Outcome{})
	if _, ok := p.Put(&Entry{}); !ok {
		t.Fatal("still full after a completion")
	}
}

func TestKickOnlyWhenWanted(t *testing.T) {
	kicks := 0
	p, c := pair(t, func() { kicks++ })
	p.Put(&Entry{})
	c.WantKick(true)
	p.Put(&Entry{})
	c.WantKick(false)
	p.Put(&Entry{})
	if kicks != 1 {
		t.Errorf("%d kicks, want 1", kicks)
	}
}

// TestSleepingConsumerIsKicked has the consumer go to sleep while the producer puts a launch.
func TestSleepingConsumerIsKicked(t *testing.T) {
	kicked, asleep := false, false
	p, c := pair(t, func() { kicked = true })
	lost := 0
	var e Entry
	rounds := atonce.Run(2*time.Second, func() {
		c.WantKick(true)
		n, err := c.Waiting()
		if asleep = n == 0; err != nil {
			t.Error(err)
		}
	}, func() {
		kicked = false
		if _, ok := p.Put(&Entry{}); !ok {
			t.Error("no room")
		}
	}, func() bool {
		if asleep && !kicked {
			lost++
		}
		c.WantKick(false)
		c.Fetch(&e)
		c.Complete(Outcome{})
		return !t.Failed()
	})
	if lost > 0 {
		t.Errorf("%d kicks lost in %d rounds", lost, rounds)
	}
}

func TestWaitSleepsUntilCompleted(t *testing.T) {
	p, c := pair(t, nil)
	seq, _ := p.Put(&Entry{})
	done := make(chan error)
	go func() {
		var err error
		for p.Completed() < seq && err == nil {
			err = p.Wait(t.Context(), seq, 0)
		}
		done <- err
	}()
	for c.l.waiting.Load() == 0 {
		select {
		case err := <-done:
			t.Fatalf("returned %v before the launch ended", err)
		default:
		}
	}
	var e Entry
	c.Fetch(&e)
	c.Complete(Outcome{})
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestWaitEndsWithContext(t *testing.T) {
	p, c := pair(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		var err error
		for err == nil {
			err = p.Wait(ctx, 1, 0)
		}
		done <- err
	}()
	for c.l.waiting.Load() == 0 {
		time.Sleep(0) // yield
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Wait = %v, want context.Canceled", err)
	}
}

func TestKilledRing(t *testing.T) {
	p, c := pair(t, nil)
	if p.Dead() {
		t.Error("dead at birth")
	}
	c.Kill()
	if !p.Dead() {
		t.Error("killed, and not dead")
	}
	if err := p.Wait(t.Context(), 1, 0); err != nil {
		t.Error(err)
	}
}

// With a hostile producer, the consumer returns an error or copies something of limited size,
// whatever the producer writes.
func TestHostileCounts(t *testing.T) {
	for _, put := range []uint64{Entries + 1, math.MaxUint64, 1 << 63} {
		p, c := pair(t, nil)
		p.l.put.Store(put)
		if n, err := c.Waiting(); err == nil {
			t.Errorf("put %d: %d waiting, want an error", put, n)
		}
	}
	p, c := pair(t, nil)
	p.Put(&Entry{})
	p.Put(&Entry{})
	var e Entry
	c.Fetch(&e)
	c.Fetch(&e)
	p.l.put.Store(1)
	if n, err := c.Waiting(); err == nil {
		t.Errorf("put went back: %d waiting, want an error", n)
	}
}

func FuzzConsumer(f *testing.F) {
	f.Add(uint64(1), []byte{1, 2, 3})
	f.Add(uint64(64), []byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, put uint64, raw []byte) {
		p, c := pair(t, nil)
		copy(p.mem[headBytes+Entries*outcomeBytes:], raw)
		p.l.put.Store(put)
		n, err := c.Waiting()
		if err != nil {
			return
		}
		if n > Entries {
			t.Fatalf("%d waiting in a ring of %d", n, Entries)
		}
		var e Entry
		for range n {
			c.Fetch(&e)
			if len(e.Params) > ParamBytes {
				t.Fatalf("%d bytes of parameters", len(e.Params))
			}
			c.Complete(Outcome{})
		}
	})
}

func TestForeignFile(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := NewProducer(f, nil); err == nil {
		t.Error("an empty file was taken for a ring")
	}
	if err := f.Truncate(Bytes); err != nil {
		t.Fatal(err)
	}
	if _, err := NewProducer(f, nil); err == nil {
		t.Error("a file of zeros was taken for a ring")
	}
}

func BenchmarkPutFetchComplete(b *testing.B) {
	p, c := pair(b, nil)
	e := Entry{Params: make([]byte, 32)}
	var got Entry
	b.ReportAllocs()
	for b.Loop() {
		p.Put(&e)
		c.Fetch(&got)
		c.Complete(Outcome{})
	}
}
