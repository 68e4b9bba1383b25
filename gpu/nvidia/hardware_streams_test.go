package nvidia

import (
	"os"
	"testing"
	"time"

	"vgpud/gpu"
	"vgpud/gpu/nvidia/cuda"
)

// TestHardwareStreams finds the streams of a context that wait for one another without a
// dependency: those that the driver maps to the same hardware channel. A context has
// CUDA_DEVICE_MAX_CONNECTIONS of these.
func TestHardwareStreams(t *testing.T) {
	_, c := hardwareContext(t, gpu.ContextOptions{})
	t.Logf("CUDA_DEVICE_MAX_CONNECTIONS=%s", os.Getenv("CUDA_DEVICE_MAX_CONNECTIONS"))
	k := load(t, c)
	p, err := c.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	var all []*Channel
	for range 24 {
		all = append(all, channelOf(t, c))
	}
	for _, ch := range all {
		f, err := ch.CopyIn(p, make([]byte, 4))
		ran(t, ch, f, err)
	}
	var urgent []cuda.Stream
	if err := c.do("streams", func() error {
		for range 4 {
			s, err := c.drv.StreamCreate(cuda.StreamNonBlocking, -5)
			if err != nil {
				return err
			}
			urgent = append(urgent, s)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	var mem []byte
	if err := c.do("memory", func() (err error) {
		mem, err = pinned(c.drv, 4096)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, busy := range []int{0, 5} {
		spin, err := all[busy].Launch(k("spin", 60e6))
		if err != nil {
			t.Fatal(err)
		}
		waiting := map[string][]int{}
		try := func(what string, f func(ch *Channel) (gpu.Fence, error)) {
			fences := map[int]gpu.Fence{}
			for i, ch := range all {
				if i != busy {
					if fences[i], err = f(ch); err != nil {
						t.Fatal(err)
					}
					ch.Done() // signals a word's end
				}
			}
			time.Sleep(3 * time.Millisecond)
			for i, ch := range all {
				if i != busy && ch.Done() < fences[i] {
					waiting[what] = append(waiting[what], i)
				}
			}
		}
		try("words", func(ch *Channel) (gpu.Fence, error) { return ch.CopyIn(p, make([]byte, 4)) })
		try("copies", func(ch *Channel) (gpu.Fence, error) { return ch.CopyIn(p, make([]byte, 256)) })
		if err := c.do("write", func() error {
			for i, s := range urgent {
				if err := c.drv.StreamWriteValue64(s, address(mem[8*i:]), 1); err != nil {
					return err
				}
			}
			time.Sleep(time.Millisecond)
			for i, s := range urgent {
				e, err := c.drv.EventCreate(0)
				if err != nil {
					return err
				}
				if err := c.drv.EventRecord(e, s); err != nil {
					return err
				}
				time.Sleep(time.Millisecond)
				if ok, err := c.drv.EventQuery(e); err != nil {
					return err
				} else if !ok {
					waiting["urgent"] = append(waiting["urgent"], i)
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if all[busy].Done() >= spin {
			t.Error("the kernel was too short")
		}
		t.Logf("beside a kernel in channel %d wait: %v", busy, waiting)
		ran(t, all[busy], spin, nil)
	}
}
