package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"vgpud/guestagent/preempt"
	"vgpud/ptx"
	"vgpud/ptx/link"
)

// kernels counts a program's kernels, and those that have a preemptible form after linking.
type kernels struct {
	Total       int            `json:"total"`
	Preemptible int            `json:"preemptible"`
	Reasons     map[string]int `json:"reasons,omitempty"` // of those without a form
	Errors      []string       `json:"errors,omitempty"`  // programs that can't be linked or transformed
}

// offloaded returns the PTX objects in a program that GCC built. Each is a string constant that ends
// with a zero byte. All objects of a program are loaded together.
func offloaded(program string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(program, "test"))
	if err != nil {
		return nil, err
	}
	var objects []string
	for part := range bytes.SplitSeq(text, []byte{0}) {
		i := bytes.Index(part, []byte("// BEGIN PREAMBLE"))
		if i >= 0 && bytes.Contains(part[i:], []byte(".version")) {
			objects = append(objects, string(part[i:]))
		}
	}
	return objects, nil
}

// printed returns the PTX modules that Halide printed while it compiled, and the output without
// them.
func printed(out string) (modules []string, rest string) {
	const head = "PTX kernel:\n"
	for {
		before, after, ok := strings.Cut(out, head)
		rest += before
		if !ok {
			return modules, rest
		}
		end := moduleEnd(after)
		// Halide prints nothing there for code that has no kernels for the GPU.
		if m := after[:end]; strings.Contains(m, ".version") {
			modules = append(modules, m)
		}
		out = after[end:]
	}
}

// moduleEnd returns the length of the module that a text begins with: up to the closing brace of a
// function that no further item of PTX follows.
func moduleEnd(text string) int {
	const brace = "\n}\n"
	for at := 0; ; {
		i := strings.Index(text[at:], brace)
		if i < 0 {
			return len(text)
		}
		at += i + len(brace)
		rest := strings.TrimLeft(text[at:], " \t\n")
		if !strings.HasPrefix(rest, ".") && !strings.HasPrefix(rest, "//") {
			return at
		}
		at-- // the next item may end with the same line break
	}
}

// countLinked links the objects of a program and adds its kernels.
func (k *kernels) countLinked(objects []string) {
	var list []link.Object
	for i, text := range objects {
		m, err := ptx.Parse(text)
		if err != nil {
			k.fail(fmt.Errorf("object %d: %w", i, err))
			return
		}
		list = append(list, link.Object{Name: fmt.Sprintf("object %d", i), Module: m})
	}
	m, err := link.Link(list, link.Options{})
	if err != nil {
		k.fail(err)
		return
	}
	k.count(m)
}

// countModule adds the kernels of one module.
func (k *kernels) countModule(text string) {
	m, err := ptx.Parse(text)
	if err != nil {
		k.fail(err)
		return
	}
	k.count(m)
}

func (k *kernels) count(m *ptx.Module) {
	_, reports, err := preempt.Transform(m, preempt.Options{})
	if err != nil {
		k.fail(err)
		return
	}
	for _, r := range reports {
		k.Total++
		if r.Preemptible {
			k.Preemptible++
			continue
		}
		if k.Reasons == nil {
			k.Reasons = make(map[string]int)
		}
		k.Reasons[r.Reason.String()]++
	}
}

func (k *kernels) fail(err error) { k.Errors = append(k.Errors, err.Error()) }

// add adds the counts of another program.
func (k *kernels) add(o *kernels) {
	if o == nil {
		return
	}
	k.Total += o.Total
	k.Preemptible += o.Preemptible
	k.Errors = append(k.Errors, o.Errors...)
	for reason, n := range o.Reasons {
		if k.Reasons == nil {
			k.Reasons = make(map[string]int)
		}
		k.Reasons[reason] += n
	}
}

// String describes the counts on one line.
func (k *kernels) String() string {
	if k.Total == 0 {
		return "no kernels"
	}
	s := fmt.Sprintf("%d of %d kernels (%.1f %%) have a preemptible form after linking", k.Preemptible, k.Total, 100*float64(k.Preemptible)/float64(k.Total))
	reasons := slices.SortedFunc(maps.Keys(k.Reasons), func(a, b string) int { return k.Reasons[b] - k.Reasons[a] })
	for i, r := range reasons {
		sep := "; without: "
		if i > 0 {
			sep = ", "
		}
		s += fmt.Sprintf("%s%s %d", sep, r, k.Reasons[r])
	}
	if len(k.Errors) > 0 {
		s += fmt.Sprintf("; %d programs can't be linked", len(k.Errors))
	}
	return s
}
