package driver

import (
	"bytes"
	"errors"
	"runtime"
	"testing"

	"pgregory.net/rapid"

	"vgpud/mediator/vgpu/abi"
)

// TestStagingProperty allocates and frees windows in any order: they never overlap, lie in the
// area, are aligned, and all merge into one span in the end.
func TestStagingProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const from, to = 1000, 1 << 20
		s := newStaging(abi.Window{Offset: from, Size: to - from})
		var held []abi.Window
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				n := rapid.Uint64Range(0, to/4).Draw(t, "bytes")
				align := uint64(1) << rapid.IntRange(0, 14).Draw(t, "align")
				w, err := s.alloc(n, align)
				if err != nil {
					if !errors.Is(err, errStagingFull) || len(held) == 0 {
						t.Fatalf("take %d of an empty area: %v", n, err)
					}
					return
				}
				if w.Size < n || w.Size == 0 || w.Offset%align != 0 || w.Offset < from || w.Offset+w.Size > to {
					t.Fatalf("take(%d, %d) = %+v", n, align, w)
				}
				for _, o := range held {
					if w.Offset < o.Offset+o.Size && o.Offset < w.Offset+w.Size {
						t.Fatalf("%+v overlaps %+v", w, o)
					}
				}
				held = append(held, w)
			},
			"give": func(t *rapid.T) {
				if len(held) == 0 {
					return
				}
				i := rapid.IntRange(0, len(held)-1).Draw(t, "which")
				s.release(held[i])
				held = append(held[:i], held[i+1:]...)
			},
			"": func(t *rapid.T) {
				free := uint64(0)
				for i, f := range s.free {
					free += f.to - f.from
					if f.from >= f.to || i > 0 && s.free[i-1].to >= f.from {
						t.Fatalf("free list %+v", s.free)
					}
				}
				for _, w := range held {
					free += w.Size
				}
				if free != s.size {
					t.Fatalf("%d bytes free or held, of %d", free, s.size)
				}
			},
		})
		for _, w := range held {
			s.release(w)
		}
		if len(s.free) != 1 || s.free[0].to-s.free[0].from != s.size {
			t.Fatalf("free list at the end: %+v", s.free)
		}
	})
}

// TestCopyShared checks that what several processors copy is complete, whatever its length.
func TestCopyShared(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
	d := &Device{}
	for _, n := range []int{0, 1, copierBytes, 2*copierBytes - 1, 2 * copierBytes, 3*copierBytes + 7, 9 * copierBytes} {
		src, dst := make([]byte, n), make([]byte, n)
		for i := range src {
			src[i] = byte(i % 251)
		}
		if err := d.copyShared(dst, src); err != nil || !bytes.Equal(dst, src) {
			t.Errorf("%d bytes: copied wrongly, %v", n, err)
		}
	}
}

// TestChunk checks that long copies use longer pieces if the windows leave room for others.
func TestChunk(t *testing.T) {
	for _, c := range []struct{ shared, n, want int }{
		{256 << 20, 256 << 20, longChunk}, {64 << 20, 16 << 20, longChunk},
		{256 << 20, 16<<20 - 1, copyChunk}, {32 << 20, 256 << 20, copyChunk}, {2 << 20, 1, copyChunk},
	} {
		d := &Device{staging: newStaging(abi.Window{Size: uint64(c.shared)})}
		if got := d.chunk(c.n); got != c.want {
			t.Errorf("%d bytes by a device with %d of shared memory go in pieces of %d, want %d", c.n, c.shared, got, c.want)
		}
	}
}
