package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"vgpud/guestagent/preempt"
)

// ptxCount is how many of some kernels have forms. Those whose blocks wait for others can't have a form that runs several
// blocks in turns without an order among them, so forms with a loop are counted apart, of the kernels that wait for none.
type ptxCount struct {
	Kernels     int `json:"kernels"`
	Preemptible int `json:"preemptible"` // with at least one form
	Waiting     int `json:"waiting"`     // whose blocks may wait for other blocks
	// Of the kernels that wait for none:
	Independent int `json:"independent"`
	Loops       int `json:"loops"`       // with a form that has a loop, coarse or persistent
	SingleOnly  int `json:"single_only"` // with the early exit of one task alone
}

// countPTX counts the rows that are kernels.
func countPTX(rows []ptxRow) ptxCount {
	var c ptxCount
	for _, r := range rows {
		if r.Error != "" {
			continue
		}
		c.Kernels++
		if r.Preemptible {
			c.Preemptible++
		}
		switch {
		case r.waits():
			c.Waiting++
			continue
		case r.loops():
			c.Loops++
		case r.Preemptible:
			c.SingleOnly++
		}
		c.Independent++
	}
	return c
}

// waits reports whether the kernel's blocks may wait for one another, also by cooperative groups.
func (r ptxRow) waits() bool { return r.WaitsForBlocks || r.Reason == preempt.GridSync }

// loops reports whether the kernel has a form that runs several blocks in one.
func (r ptxRow) loops() bool {
	return slices.Contains(r.Forms, preempt.Coarse) || slices.Contains(r.Forms, preempt.Persistent)
}

// String is the count for people.
func (c ptxCount) String() string {
	return fmt.Sprintf("%d kernels: %s with a form, %s whose blocks may wait for others\n%d wait for none: %s with a form that has a loop, %s with the early exit of one task alone",
		c.Kernels, share(c.Preemptible, c.Kernels), share(c.Waiting, c.Kernels),
		c.Independent, share(c.Loops, c.Independent), share(c.SingleOnly, c.Independent))
}

// share is a number with its part of a whole.
func share(n, of int) string {
	if of == 0 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d (%.1f %%)", n, 100*float64(n)/float64(of))
}

// print writes the count in the format.
func (c ptxCount) print(w io.Writer, f *format) error {
	switch f.kind {
	case "json":
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(c)
	case "yaml":
		return printYAML(w, c)
	}
	_, err := fmt.Fprintln(w, c)
	return err
}
