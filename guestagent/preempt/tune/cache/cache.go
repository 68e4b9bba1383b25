package cache

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"

	"vgpud/guestagent/preempt/tune"
	"vgpud/mediator/vgpu/abi"
)

// Bounds of a cache. A kernel that was launched with many classes of grids takes about 4 kB.
const (
	MaxEntries = 4096
	maxText    = 256 // bytes of a name, a GPU's name or a reason
)

// Hash is the SHA-256 of what a kernel is made from.
type Hash [32]byte

// String returns the hash in hexadecimal digits.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// MarshalText encodes a hash as String's digits.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText decodes String's digits.
func (h *Hash) UnmarshalText(b []byte) error {
	if n, err := hex.Decode(h[:], b[:min(len(b), 2*len(h)+1)]); err != nil || n != len(h) || len(b) != 2*len(h) {
		return fmt.Errorf("%.80q is no SHA-256 in hexadecimal", b)
	}
	return nil
}

// Key identifies a kernel on a GPU: measured times are not valid for another model.
type Key struct {
	Kernel Hash   `json:"kernel"`
	GPU    string `json:"gpu"`
}

// Peak is the most that a program's task needed at a time.
type Peak struct {
	// MemoryBytes is GPU memory, with what the GPU needs for code and stacks.
	MemoryBytes uint64 `json:"memory_bytes"`
	// Blocks is the most thread blocks of a launch, and Threads the most threads of a block.
	Blocks  uint32 `json:"blocks,omitempty"`
	Threads uint32 `json:"threads,omitempty"`
}

// Entry is what is known of a kernel on a GPU, or of a program's task.
type Entry struct {
	Key
	// Name is the kernel's name in its module; other kernels may have the same.
	Name string `json:"name"`
	// Forms are those in which the kernel can be launched beside the original. Reason says why
	// there are none, or not all.
	Forms  abi.PreemptForm `json:"forms"`
	Reason string          `json:"reason,omitempty"`
	Record tune.Record     `json:"record"`
	// Peak is what is known of a program's task. Then Kernel identifies the program, Name is its own,
	// and the others are unset. It is nil for a kernel.
	Peak *Peak `json:"peak,omitempty"`
}

// bounded returns the entry, truncated to the bounds.
func (e Entry) bounded() Entry {
	for _, s := range []*string{&e.Name, &e.GPU, &e.Reason} {
		if len(*s) > maxText {
			*s = strings.ToValidUTF8((*s)[:maxText], "")
		}
	}
	e.Forms &= abi.PreemptSingle | abi.PreemptCoarse | abi.PreemptPersistent
	good := slices.DeleteFunc(slices.Clone(e.Record.Classes), func(c tune.ClassRecord) bool { return !c.Valid() })
	e.Record.Classes = good[:min(len(good), tune.MaxClasses)]
	if e.Peak != nil {
		e.Peak = new(*e.Peak)
	}
	return e
}

// Cache keeps entries in memory. Its methods may be called from several goroutines.
type Cache struct {
	mu      sync.Mutex
	entries map[Key]*cachedEntry
	clock   uint64
	changed bool // since it was last saved
}

type cachedEntry struct {
	Entry
	lastUsed uint64
}

// New returns an empty cache.
func New() *Cache { return &Cache{entries: map[Key]*cachedEntry{}} }

// Get returns what is known of a kernel.
func (c *Cache) Get(k Key) (Entry, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.entries[k]
	if u == nil {
		return Entry{}, false
	}
	c.clock++
	u.lastUsed = c.clock
	e := u.Entry
	e.Record.Classes = slices.Clone(e.Record.Classes)
	return e, true
}

// Put stores an entry in place of an earlier one about the same kernel, truncated to the bounds.
func (c *Cache) Put(e Entry) {
	e = e.bounded()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put(e)
	c.changed = true
}

// put stores a bounded entry; mu is held.
func (c *Cache) put(e Entry) {
	if c.entries[e.Key] == nil && len(c.entries) >= MaxEntries {
		var oldest *cachedEntry
		for _, u := range c.entries {
			if oldest == nil || u.lastUsed < oldest.lastUsed {
				oldest = u
			}
		}
		delete(c.entries, oldest.Key)
	}
	c.clock++
	c.entries[e.Key] = &cachedEntry{e, c.clock}
}

// All returns the entries, the latest used first.
func (c *Cache) All() []Entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all()
}

func (c *Cache) all() []Entry {
	list := make([]*cachedEntry, 0, len(c.entries))
	for _, u := range c.entries {
		list = append(list, u)
	}
	slices.SortFunc(list, func(a, b *cachedEntry) int { return int(int64(b.lastUsed) - int64(a.lastUsed)) })
	all := make([]Entry, len(list))
	for i, u := range list {
		all[i] = u.Entry
		all[i].Record.Classes = slices.Clone(u.Record.Classes)
	}
	return all
}

// Len returns how many entries there are.
func (c *Cache) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.entries)
}

// Recall returns what is known about those kernels; its error is always nil.
func (c *Cache) Recall(_ context.Context, keys []Key) ([]Entry, error) {
	var known []Entry
	for _, k := range keys {
		if e, ok := c.Get(k); ok {
			known = append(known, e)
		}
	}
	return known, nil
}

// Learn stores entries; its error is always nil.
func (c *Cache) Learn(_ context.Context, entries []Entry) error {
	for _, e := range entries {
		c.Put(e)
	}
	return nil
}
