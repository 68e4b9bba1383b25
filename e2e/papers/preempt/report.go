package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"vgpud/e2e/papers/plot"
	"vgpud/mediator/vgpu/abi"
)

// report holds all results.
type report struct {
	Model   string        `json:"model"`
	Targets []target      `json:"targets"`
	Figures []plot.Figure `json:"figures"`
	// Partial lists the kernels for which the transformation does not offer all forms.
	Partial []partial `json:"partial"`
}

// partial is a kernel for which the transformation does not offer all forms, with the reason.
type partial struct {
	Kernel string `json:"kernel"`
	Forms  string `json:"forms"`
	Reason string `json:"reason"`
}

// partly returns the corpus' kernels for which the transformation does not offer all forms.
func partly(all map[string]subject) (list []partial) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		s := all[name]
		var forms abi.PreemptForm
		for f := range s.added {
			forms |= f
		}
		if len(s.added) < 3 {
			reason := s.reason
			if reason == "" {
				reason = "its blocks wait for others"
			}
			list = append(list, partial{name, forms.String(), reason})
		}
	}
	return list
}

// scale is the size of the experiments: the full size, or a smaller one for tests.
type scale struct {
	notes    int           // evictions for each line of the notes
	grids    time.Duration // how long the corpus' grids are
	launches int           // of each kernel in figure 9
	ffs      time.Duration // of figures 13 and 14
	seeds    int           // of each pair for urgent latencies
}

var whole = scale{notes: 31, grids: 10 * time.Millisecond, launches: 1000, ffs: 4 * time.Second, seeds: 8}

// everything runs all experiments.
func everything(s scale) (*report, error) {
	r := &report{Model: "results of a model: package blocks with the costs of an H100 SXM, kernels' costs by the soft GPU's cost model"}
	all, err := studies()
	if err != nil {
		return nil, err
	}
	r.Partial = partly(all)
	figures, product := notesFigures(s.notes)
	onH200, alikeH200 := h200Figure(all)
	onH100, alikeH100 := h100Figure(all)
	r.Figures = append(figures, onH200, onH100)
	r.Targets = notesTargets(s.notes)
	r.Targets = append(r.Targets, unfittedTargets("the notes' matrix product", product)...)
	r.Targets = append(r.Targets, unfittedTargets("our forms on an H200", alikeH200)...)
	r.Targets = append(r.Targets, unfittedTargets("our forms and the papers' words on an H100", alikeH100)...)

	f, err := overheads(all, s.grids, true)
	if err != nil {
		return nil, fmt.Errorf("figure %s: %w", f.Number, err)
	}
	r.Targets = append(r.Targets, overheadTargets(&f)...)
	r.Figures = append(r.Figures, f)

	if err := r.effisha(all, s); err != nil {
		return nil, fmt.Errorf("redo EffiSha: %w", err)
	}
	if err := r.flep(all, s); err != nil {
		return nil, fmt.Errorf("redo FLEP: %w", err)
	}
	return r, nil
}

func (r *report) effisha(all map[string]subject, s scale) error {
	e, err := newEffiSha(all)
	if err != nil {
		return err
	}
	return r.add(
		func() ([]plot.Figure, error) { f, err := e.figure9(s.launches); return []plot.Figure{f}, err },
		func() ([]plot.Figure, error) { f, err := e.figure10(); return []plot.Figure{f}, err },
		func() ([]plot.Figure, error) { f, err := e.signals(); return []plot.Figure{f}, err },
		func() ([]plot.Figure, error) { f, err := e.figure11(); return []plot.Figure{f}, err },
		func() ([]plot.Figure, error) { f, err := e.figure13(); return []plot.Figure{f}, err },
		e.schedule,
	)
}

func (r *report) flep(all map[string]subject, s scale) error {
	f, err := newFLEP(all, often)
	if err != nil {
		return err
	}
	return r.add(
		func() ([]plot.Figure, error) { g, err := f.figure7(100, 12); return []plot.Figure{g}, err },
		func() ([]plot.Figure, error) { g, _, err := f.figure8(); return []plot.Figure{g}, err },
		func() ([]plot.Figure, error) { g, err := f.figure9(); return []plot.Figure{g}, err },
		f.figures10and11,
		func() ([]plot.Figure, error) { g, err := f.figure12(); return []plot.Figure{g}, err },
		func() ([]plot.Figure, error) {
			g, shares, err := f.figures13and14(s.ffs)
			if err == nil {
				r.Targets = append(r.Targets, fairTargets(shares)...)
			}
			return g, err
		},
		func() ([]plot.Figure, error) { g, err := f.figure15(); return []plot.Figure{g}, err },
		func() ([]plot.Figure, error) { g, err := f.figure16(); return []plot.Figure{g}, err },
		func() ([]plot.Figure, error) { g, err := f.figure17(); return []plot.Figure{g}, err },
		func() ([]plot.Figure, error) {
			t, err := f.urgentTarget(highPairs(), s.seeds)
			r.Targets = append(r.Targets, t)
			return nil, err
		},
	)
}

func (r *report) add(makers ...func() ([]plot.Figure, error)) error {
	for _, make := range makers {
		f, err := make()
		if err != nil {
			return err
		}
		r.Figures = append(r.Figures, f...)
	}
	return nil
}

// print writes the tables.
func (r *report) print(w io.Writer) {
	for i := range r.Figures {
		fmt.Fprintln(w, r.Figures[i].Text())
	}
	fmt.Fprintln(w, targetText(r.Targets))
}

// partialText lists the kernels that don't have all forms.
func (r *report) partialText() string {
	var b strings.Builder
	b.WriteString("## Kernels that don't have all forms\n\n| kernel | forms | reason |\n|---|---|---|\n")
	for _, p := range r.Partial {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", p.Kernel, p.Forms, p.Reason)
	}
	b.WriteString("\n")
	return b.String()
}

// write puts the report, the JSON and the page of drawings into dir.
func (r *report) write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	data, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return fmt.Errorf("encode the results: %w", err)
	}
	var b strings.Builder
	b.WriteString(reportHead())
	b.WriteString(r.conclusionText())
	b.WriteString(reasons)
	b.WriteString(r.partialText())
	b.WriteString("## Targets\n\n```\n" + targetText(r.Targets) + "```\n\n## Figures\n\n![all figures](preempt.svg)\n")
	for i := range r.Figures {
		fmt.Fprintf(&b, "\n```\n%s```\n", r.Figures[i].Text())
	}
	for name, text := range map[string][]byte{
		"preempt.json": append(data, '\n'),
		"preempt.svg":  []byte(plot.Page(r.Figures)),
		"preempt.md":   []byte(b.String()),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
