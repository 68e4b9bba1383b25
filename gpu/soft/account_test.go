package soft

import (
	"errors"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"vgpud/gpu"
	"vgpud/gpu/soft/vram"
)

// purse is a budget in this process.
type purse struct {
	mu           sync.Mutex
	limit, taken uint64
}

func (p *purse) Take(n uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n > p.limit-p.taken {
		return false
	}
	p.taken += n
	return true
}

func (p *purse) Give(n uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken -= n
}

func (p *purse) Room() (free, total uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.limit - p.taken, p.limit
}

// stack has a kernel with local memory, and a variable.
const stack = `
.version 7.0
.target sm_80
.address_size 64

.global .align 4 .b8 table[5000];

.visible .entry deep()
{
	.local .align 4 .b8 frame[64];
	.reg .b32 %r<2>;
	mov.u32 %r1, 1;
	st.local.u32 [frame], %r1;
	ret;
}
`

// Everything that the contexts of an owner hold is counted against the owner's budget, and all of
// it is returned.
func TestContextsShareABudget(t *testing.T) {
	d := newDevice(t, Options{Priority: -1})
	rapid.Check(t, func(t *rapid.T) {
		p := &purse{limit: rapid.Uint64Range(1<<20, 12<<20).Draw(t, "limit")}
		type held struct {
			ctx     gpu.Context
			allocs  map[gpu.Ptr]uint64
			modules []gpu.Module
		}
		var open []*held
		defer func() {
			for _, h := range open {
				if err := h.ctx.Close(); err != nil {
					t.Error(err)
				}
			}
			if p.taken != 0 {
				t.Errorf("%d bytes are left of contexts that are closed", p.taken)
			}
		}()
		refused := func(t *rapid.T, err error, before uint64) {
			if !errors.Is(err, gpu.ErrMemoryLimit) || !errors.Is(err, gpu.ErrOutOfMemory) || p.taken != before {
				t.Fatalf("%d bytes of %d taken, then %d: %v", before, p.limit, p.taken, err)
			}
		}
		add := func(t *rapid.T) {
			before := p.taken
			ctx, err := d.NewContext(t.Context(), gpu.ContextOptions{MemoryLimit: p.limit, Budget: p})
			if err != nil {
				refused(t, err, before)
				return
			}
			open = append(open, &held{ctx: ctx, allocs: map[gpu.Ptr]uint64{}})
		}
		pick := func(t *rapid.T) *held {
			// With actions that skip instead, rapid sometimes finds none.
			if len(open) == 0 {
				add(t)
			}
			if len(open) == 0 {
				t.Skip("no context")
			}
			return open[rapid.IntRange(0, len(open)-1).Draw(t, "context")]
		}
		t.Repeat(map[string]func(*rapid.T){
			"open": add,
			"close": func(t *rapid.T) {
				h := pick(t)
				if err := h.ctx.Close(); err != nil {
					t.Fatal(err)
				}
				for i := range open {
					if open[i] == h {
						open = append(open[:i], open[i+1:]...)
						break
					}
				}
			},
			"alloc": func(t *rapid.T) {
				h := pick(t)
				n, before := rapid.Uint64Range(1, p.limit).Draw(t, "bytes"), p.taken
				ptr, err := h.ctx.Alloc(n)
				if err != nil {
					refused(t, err, before)
					return
				}
				h.allocs[ptr] = n
			},
			"free": func(t *rapid.T) {
				h := pick(t)
				for ptr := range h.allocs {
					if err := h.ctx.Free(ptr); err != nil {
						t.Fatal(err)
					}
					if err := h.ctx.Free(ptr); !errors.Is(err, gpu.ErrInvalidPtr) {
						t.Fatalf("freed twice: %v", err)
					}
					delete(h.allocs, ptr)
					return
				}
			},
			"load": func(t *rapid.T) {
				h := pick(t)
				before := p.taken
				m, err := h.ctx.LoadModule([]byte(stack))
				if err != nil {
					refused(t, err, before)
					return
				}
				h.modules = append(h.modules, m)
			},
			"unload": func(t *rapid.T) {
				h := pick(t)
				if n := len(h.modules); n > 0 {
					if err := h.modules[n-1].Unload(); err != nil {
						t.Fatal(err)
					}
					h.modules = h.modules[:n-1]
				}
			},
			"": func(t *rapid.T) {
				var want uint64
				for _, h := range open {
					want += ContextBytes
					for _, n := range h.allocs {
						want += vram.Round(n)
					}
					for i, m := range h.modules {
						info := &m.(*module).info
						want += vram.Round(5000) + info.CodeBytes
						if i == 0 {
							want += info.LocalBytes // shared by the context's modules
						}
					}
					free, total, err := h.ctx.Memory()
					if err != nil || free > p.limit-p.taken || total > p.limit {
						t.Fatalf("Memory = %d, %d, %v with %d of %d taken", free, total, err, p.taken, p.limit)
					}
				}
				if p.taken != want || p.taken > p.limit {
					t.Fatalf("%d bytes of %d are taken, want %d", p.taken, p.limit, want)
				}
			},
		})
	})
}
