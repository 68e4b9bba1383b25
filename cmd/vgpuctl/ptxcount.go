package main

import (
	"fmt"
	"io"
	"slices"

	"vgpud/cmd/internal/output"
	"vgpud/guestagent/preempt"
)

// ptxCount counts kernels with forms. A kernel whose blocks wait for others can't have a form that
// runs several blocks in turn in any order, so forms with a loop are counted apart, among the
// kernels whose blocks do not wait.
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

// waits reports whether the kernel's blocks may wait for one another, by cooperative groups too.
func (r ptxRow) waits() bool { return r.WaitsForBlocks || r.Reason == preempt.GridSync }

// loops reports whether the kernel has a form that runs several blocks in one.
func (r ptxRow) loops() bool {
	return slices.Contains(r.Forms, preempt.Coarse) || slices.Contains(r.Forms, preempt.Persistent)
}

// String formats the count as text.
func (c ptxCount) String() string {
	return fmt.Sprintf("%d kernels: %s with a form, %s whose blocks may wait for others\n%d do not wait: %s with a form that has a loop, %s with the early exit of one task alone",
		c.Kernels, share(c.Preemptible, c.Kernels), share(c.Waiting, c.Kernels),
		c.Independent, share(c.Loops, c.Independent), share(c.SingleOnly, c.Independent))
}

// share formats a number with its percentage.
func share(n, of int) string {
	if of == 0 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d (%.1f %%)", n, 100*float64(n)/float64(of))
}

// print writes the count in the format.
func (c ptxCount) print(w io.Writer, f *output.Format) error {
	switch f.Kind {
	case "json":
		return output.JSON(w, c)
	case "yaml":
		return output.YAML(w, c)
	}
	_, err := fmt.Fprintln(w, c)
	return err
}
