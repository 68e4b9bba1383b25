package main

import (
	"fmt"
	"io"
	"slices"
	"vgpud/cmd/internal/output"

	"vgpud/guestagent/allot"
	"vgpud/guestagent/preempt/tune"
	"vgpud/guestagent/preempt/tune/cache"
	"vgpud/mediator/vgpu/abi"
)

// printKernels prints the daemon's kernels.
func printKernels(w io.Writer, o *options, f *output.Format) error {
	all, err := knownKernels(o.socket)
	if err != nil {
		return err
	}
	if f.Kind == "json" {
		return output.JSON(w, all)
	}
	var rows [][]string
	for _, e := range all {
		head := []string{e.Name, formNames(e.Forms), output.OrDash(e.Reason)}
		if len(e.Record.Classes) == 0 {
			rows = append(rows, append(head, "-", "-", "-", "-", e.GPU))
		}
		for _, c := range e.Record.Classes {
			rows = append(rows, append(head[:3:3], blocks(&c), launchedAs(&c), c.Why.String(), overhead(&c), e.GPU))
		}
	}
	return f.Table(w, []string{"KERNEL", "FORMS", "REASON", "BLOCKS", "LAUNCHED", "WHY", "COST", "GPU"}, rows)
}

// knownKernels queries the daemon's kernels, page by page.
func knownKernels(socket string) ([]cache.Entry, error) {
	all := []cache.Entry{}
	err := ask(socket, func(conn allot.Conn) error {
		for from := 0; ; {
			reply, _, err := conn.Question(allot.Request{Op: allot.OpKernels, From: from}, askLimit)
			if err != nil {
				return err
			}
			all = append(all, slices.DeleteFunc(reply.Kernels, func(e cache.Entry) bool { return e.Peak != nil })...)
			if reply.Next <= from || len(all) > cache.MaxEntries {
				return nil
			}
			from = reply.Next
		}
	})
	return all, err
}

// formNames formats a set of forms.
func formNames(f abi.PreemptForm) string {
	if f == 0 {
		return "-"
	}
	return f.String()
}

// blocks formats the grids of a class: "64-127×256" for grids of 64 to 127 blocks of 256 threads.
func blocks(c *tune.ClassRecord) string {
	least := uint64(1) << max(c.Log2Tasks-1, 0)
	s := fmt.Sprintf("%d-%d×%d", least, 2*least-1, c.Threads)
	if c.SharedBytes > 0 {
		s += fmt.Sprintf("+%dB", c.SharedBytes)
	}
	return s
}

// launchedAs formats the form in which a class is launched: "coarse/8", or "persistent/4/2" with a
// check every second fetch.
func launchedAs(c *tune.ClassRecord) string {
	switch c.Form {
	case 0:
		return "original"
	case abi.PreemptSingle:
		return c.Form.String()
	case abi.PreemptCoarse:
		return fmt.Sprintf("%v/%d", c.Form, c.Group)
	}
	return fmt.Sprintf("%v/%d/%d", c.Form, c.Group, c.Every)
}

// overhead formats the cost of a class compared with the original.
func overhead(c *tune.ClassRecord) string {
	if c.Form == 0 {
		return "-"
	}
	return fmt.Sprintf("%+.1f%%", 100*(c.Chosen/c.Original-1))
}
