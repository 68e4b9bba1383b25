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

// Bounds of a cache. A kernel that was launched on many classes of grids takes about 4 kB.
const (
	MaxEntries = 4096
	maxText    = 256 // bytes of a name, a GPU's name or a reason
)

// Hash is the SHA-256 of what a kernel is made from.
type Hash [32]byte

// String is the hash in hexadecimal digits.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// MarshalText and UnmarshalText write and read String's digits.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText is MarshalText's inverse.
func (h *Hash) UnmarshalText(b []byte) error {
	if n, err := hex.Decode(h[:], b[:min(len(b), 2*len(h)+1)]); err != nil || n != len(h) || len(b) != 2*len(h) {
		return fmt.Errorf("%.80q is no SHA-256 in hexadecimal", b)
	}
	return nil
}

// Key names a kernel on a GPU: measured times say nothing about another model.
type Key struct {
	Kernel Hash   `json:"kernel"`
	GPU    string `json:"gpu"`
}

// Entry is what is known of a kernel on a GPU.
type Entry struct {
	Key
	// Name is the kernel's in its module; other kernels may have the same.
	Name string `json:"name"`
	// Forms are those that the kernel can be launched in beside the original, and Reason why there are none, or not
	// more.
	Forms  abi.PreemptForm `json:"forms"`
	Reason string          `json:"reason,omitempty"`
	Record tune.Record     `json:"record"`
}

// bound makes an entry fit the bounds, whoever made it.
func (e Entry) bound() Entry {
	for _, s := range []*string{&e.Name, &e.GPU, &e.Reason} {
		if len(*s) > maxText {
			*s = strings.ToValidUTF8((*s)[:maxText], "")
		}
	}
	e.Forms &= abi.PreemptSingle | abi.PreemptCoarse | abi.PreemptPersistent
	good := slices.DeleteFunc(slices.Clone(e.Record.Classes), func(c tune.ClassRecord) bool { return !c.Valid() })
	e.Record.Classes = good[:min(len(good), tune.MaxClasses)]
	return e
}

// Cache keeps entries in memory. Its methods may be called from several goroutines.
type Cache struct {
	mu      sync.Mutex
	entries map[Key]*used
	clock   uint64
	changed bool // since it was last saved
}

type used struct {
	Entry
	at uint64
}

// New returns an empty cache.
func New() *Cache { return &Cache{entries: map[Key]*used{}} }

// Get returns what is known of a kernel.
func (c *Cache) Get(k Key) (Entry, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.entries[k]
	if u == nil {
		return Entry{}, false
	}
	c.clock++
	u.at = c.clock
	e := u.Entry
	e.Record.Classes = slices.Clone(e.Record.Classes)
	return e, true
}

// Put keeps an entry in place of an earlier one about the same kernel. What does not fit the bounds is left out.
func (c *Cache) Put(e Entry) {
	e = e.bound()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put(e)
	c.changed = true
}

// put keeps an entry that was bounded; mu is held.
func (c *Cache) put(e Entry) {
	if c.entries[e.Key] == nil && len(c.entries) >= MaxEntries {
		var oldest *used
		for _, u := range c.entries {
			if oldest == nil || u.at < oldest.at {
				oldest = u
			}
		}
		delete(c.entries, oldest.Key)
	}
	c.clock++
	c.entries[e.Key] = &used{e, c.clock}
}

// All returns the entries, those used last first.
func (c *Cache) All() []Entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all()
}

func (c *Cache) all() []Entry {
	list := make([]*used, 0, len(c.entries))
	for _, u := range c.entries {
		list = append(list, u)
	}
	slices.SortFunc(list, func(a, b *used) int { return int(int64(b.at) - int64(a.at)) })
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

// Recall returns what is known of those kernels; its error is always nil.
func (c *Cache) Recall(_ context.Context, keys []Key) ([]Entry, error) {
	var known []Entry
	for _, k := range keys {
		if e, ok := c.Get(k); ok {
			known = append(known, e)
		}
	}
	return known, nil
}

// Learn puts entries; its error is always nil.
func (c *Cache) Learn(_ context.Context, entries []Entry) error {
	for _, e := range entries {
		c.Put(e)
	}
	return nil
}
