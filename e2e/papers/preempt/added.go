package main

import (
	"encoding/binary"
	"fmt"

	"vgpud/e2e/papers/kernelcost"
	"vgpud/gpu"
	"vgpud/gpu/corpus"
	"vgpud/gpu/soft/simt"
	"vgpud/guestagent/preempt"
	"vgpud/mediator/vgpu/abi"
	"vgpud/ptx"
)

// attempt is one way to launch a transformed kernel in order to count the instructions that it
// issues.
type attempt struct {
	abi.Preempt
	blocks uint64 // of a persistent launch
}

// units returns the number of checks that the attempt makes, or of fetches that return a task.
func (a attempt) units(tasks uint64) uint64 {
	return (tasks + uint64(a.Group) - 1) / uint64(a.Group)
}

// addCost transforms the subject's kernel and measures how much more each form issues than the
// original, for each unit and for each task. It derives both from two runs with different numbers
// of tasks in a unit.
func (s *subject) addCost() error {
	original, err := s.issues(nil)
	if err != nil {
		return err
	}
	forms, err := s.forms()
	if err != nil {
		return err
	}
	s.added = additions{}
	more := func(a attempt) (float64, error) {
		n, err := s.issues(&a)
		return float64(n) - float64(original), err
	}
	tasks := float64(s.tasks)
	for _, f := range forms {
		fine := attempt{Preempt: abi.Preempt{Form: f, Group: 1, Every: 1}, blocks: min(4, s.tasks)}
		coarse := fine
		coarse.Group = 4
		one, err := more(fine)
		if err != nil {
			return fmt.Errorf("%v: %w", f, err)
		}
		if f == abi.PreemptSingle {
			s.added[f] = added{unit: one / tasks}
			continue
		}
		four, err := more(coarse)
		if err != nil {
			return fmt.Errorf("%v by 4: %w", f, err)
		}
		// one = units·u + tasks·t, and four the same with fewer units.
		var n added
		if fewer := tasks - float64(coarse.units(s.tasks)); fewer > 0 {
			n.unit = max(0, (one-four)/fewer)
		}
		n.task = max(0, one/tasks-n.unit)
		s.added[f] = n
	}
	return nil
}

// forms returns the forms that the transformation offers for the subject's kernel.
func (s *subject) forms() ([]abi.PreemptForm, error) {
	parsed, err := ptx.Parse(s.k.PTX(corpus.SM90))
	if err != nil {
		return nil, err
	}
	_, reports, err := preempt.Transform(parsed, preempt.Options{})
	if err != nil {
		return nil, err
	}
	for i := range reports {
		if reports[i].Kernel == s.step.Entry {
			s.reason = reports[i].Reason.String()
			return reports[i].Forms, nil
		}
	}
	return nil, fmt.Errorf("no report on %s", s.step.Entry)
}

// issues runs the case and returns the SM cycles that the subject's step issued. The step runs as a
// says, or in its original form if a is nil.
func (s *subject) issues(a *attempt) (uint64, error) {
	parsed, err := ptx.Parse(s.k.PTX(corpus.SM90))
	if err != nil {
		return 0, err
	}
	if a != nil {
		if parsed, _, err = preempt.Transform(parsed, preempt.Options{Forms: a.Form}); err != nil {
			return 0, err
		}
	}
	costs := issueCosts()
	bench, err := kernelcost.New(parsed, s.c, simt.Options{Costs: &costs})
	if err != nil {
		return 0, err
	}
	for i := range s.c.Steps {
		step := &s.c.Steps[i]
		if step != s.step {
			if _, _, err := bench.Step(interpreter, step); err != nil {
				return 0, fmt.Errorf("launch %d: %w", i, err)
			}
			continue
		}
		counts, err := s.launch(bench, a)
		return counts.Cycles & (1<<access - 1), err
	}
	return 0, fmt.Errorf("the case has no such launch")
}

// launch runs the subject's step as a says, without evicting it.
func (s *subject) launch(bench *kernelcost.Bench, a *attempt) (simt.Counts, error) {
	if a == nil {
		counts, _, err := bench.Step(interpreter, s.step)
		return counts, err
	}
	control, word, err := bench.Alloc(abi.ControlBytes)
	if err != nil {
		return simt.Counts{}, err
	}
	units := a.units(s.tasks)
	skipped, _, err := bench.Alloc(4 * int(units))
	if err != nil {
		return simt.Counts{}, err
	}
	args := abi.PreemptArgs{
		Control: control, Skipped: skipped, Count: uint32(units), Capacity: uint32(units), Tasks: uint32(s.tasks),
		Grid: s.step.Grid, Group: a.Group, Every: a.Every,
	}
	grid := gpu.Dim3{X: uint32(units), Y: 1, Z: 1}
	switch a.Form {
	case abi.PreemptSingle:
		grid, args.Flags = kernelcost.Dim(s.step.Grid), abi.PreemptWhole
	case abi.PreemptPersistent:
		grid.X = uint32(a.blocks)
	}
	extra := make([]byte, abi.PreemptArgsBytes)
	args.Encode(extra)
	entry := preempt.EntryName(s.step.Entry, a.Form)
	params, err := bench.Params(entry, s.step.Args, extra)
	if err != nil {
		return simt.Counts{}, err
	}
	counts, _, err := bench.Run(interpreter, entry, grid, kernelcost.Dim(s.step.Block), uint64(s.step.SharedBytes), params)
	if err == nil && a.Form == abi.PreemptPersistent && uint64(binary.LittleEndian.Uint32(word[abi.ControlNext:])) < s.tasks {
		err = fmt.Errorf("%d tasks, and the kernel says otherwise", s.tasks)
	}
	return counts, err
}
