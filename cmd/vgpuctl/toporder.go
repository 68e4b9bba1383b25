package main

import (
	"cmp"
	"slices"
	"strings"

	"vgpud/cmd/internal/cli"
)

// order is what guests are sorted by in `vgpuctl top`.
type order int

const (
	byName order = iota
	byShare
	byEntitled
	bySuspended
	byKernels
	byMemory
)

// orders have the key that chooses each on the screen. Names ascend, and numbers descend.
var orders = []struct {
	name, key string
	compare   func(a, b *usage) int
}{
	byName:      {"name", "N", func(a, b *usage) int { return cmp.Compare(a.Name, b.Name) }},
	byShare:     {"share", "S", func(a, b *usage) int { return cmp.Compare(b.Busy, a.Busy) }},
	byEntitled:  {"entitled", "E", func(a, b *usage) int { return cmp.Compare(b.Entitled, a.Entitled) }},
	bySuspended: {"suspended", "U", func(a, b *usage) int { return cmp.Compare(b.Suspended, a.Suspended) }},
	byKernels:   {"kernels", "K", func(a, b *usage) int { return cmp.Compare(b.Kernels, a.Kernels) }},
	byMemory:    {"memory", "M", func(a, b *usage) int { return cmp.Compare(b.Memory, a.Memory) }},
}

func orderNameList() (names []string) {
	for _, o := range orders {
		names = append(names, o.name)
	}
	return names
}

func orderNames() string { return strings.Join(orderNameList(), ", ") }

// parseOrder returns the order with a name.
func parseOrder(name string) (order, error) {
	i := slices.Index(orderNameList(), name)
	if i < 0 {
		return 0, cli.Usagef("--sort %q: want one of %s", name, orderNames())
	}
	return order(i), nil
}

// sortUsage sorts guests; equal ones stay in the order in which they are.
func sortUsage(us []usage, by order, reversed bool) {
	slices.SortStableFunc(us, func(a, b usage) int {
		c := orders[by].compare(&a, &b)
		if reversed {
			return -c
		}
		return c
	})
}
