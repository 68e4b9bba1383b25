package eventtable

import (
	"errors"
	"fmt"

	"vgpud/gpu"
	"vgpud/mediator/vgpu/abi"
)

const (
	// Rows is how many event kernels a GPU has at a time (EDGE §IV.E).
	Rows = 32
	// OwnerRows bounds those of one owner, so that no guest takes the table from the others.
	OwnerRows = abi.MaxEventKernels
)

// ErrEnding means that an event kernel is being unregistered already.
var ErrEnding = errors.New("event kernel is being unregistered")

// A Step is something that a registration takes.
type Step struct {
	// Take takes it. Its error ends the registration.
	Take func() error
	// Back gives it back. It is called once if Take succeeded: when a later step fails, or at the
	// kernel's end.
	Back func()
}

// Table is an event kernel table. The zero value is empty.
type Table struct {
	rows [Rows]row
}

type row struct {
	used, ending bool
	owner        string
	row          abi.EventRow
	steps        []Step // taken
	flying       int
}

// Register takes a row for an owner's kernel, and then the steps in order. If the table or the
// owner's part of it is full, or a step fails, everything is given back in the opposite order. The
// same kernel may be registered several times. The owner's rows are freed by [Table.Unregister].
func (t *Table) Register(owner string, r abi.EventRow, steps ...Step) (n int, err error) {
	if n, err = t.free(owner); err != nil {
		return 0, err
	}
	e := &t.rows[n]
	*e = row{used: true, owner: owner, row: r}
	for _, s := range steps {
		if err := s.Take(); err != nil {
			e.giveBack()
			return 0, err
		}
		e.steps = append(e.steps, s)
	}
	return n, nil
}

// free returns a free row.
func (t *Table) free(owner string) (n int, err error) {
	n, own := -1, 0
	for i := range t.rows {
		switch {
		case !t.rows[i].used:
			if n < 0 {
				n = i
			}
		case t.rows[i].owner == owner:
			own++
		}
	}
	switch {
	case own >= OwnerRows:
		return 0, fmt.Errorf("register an event kernel beside %d of the same owner: %w", own, gpu.ErrFull)
	case n < 0:
		return 0, fmt.Errorf("register an event kernel beside %d: %w", Rows, gpu.ErrFull)
	}
	return n, nil
}

// giveBack undoes the steps and frees the row.
func (e *row) giveBack() {
	for len(e.steps) > 0 {
		last := e.steps[len(e.steps)-1]
		e.steps = e.steps[:len(e.steps)-1]
		last.Back()
	}
	*e = row{}
}

// Row returns an event kernel's row; ok is false if there is none.
func (t *Table) Row(n int) (r abi.EventRow, ok bool) {
	if n < 0 || n >= Rows || !t.rows[n].used {
		return abi.EventRow{}, false
	}
	return t.rows[n].row, true
}

// Started counts events of n that were rung for and have to end before n can.
func (t *Table) Started(n, events int) { t.rows[n].flying += events }

// Ended uncounts an event, and reports whether it was the last of a kernel that is being
// unregistered: its row is free then.
func (t *Table) Ended(n int) (gone bool) {
	e := &t.rows[n]
	e.flying--
	if e.ending && e.flying <= 0 {
		e.giveBack()
		return true
	}
	return false
}

// Unregister ends a kernel's registration: at once if nothing is under way, which it reports, else
// with the last event. Meanwhile it takes up its row. The error is [gpu.ErrNotFound] or [ErrEnding].
func (t *Table) Unregister(n int) (gone bool, err error) {
	switch {
	case n < 0 || n >= Rows || !t.rows[n].used:
		return false, fmt.Errorf("unregister event kernel %d: %w", n, gpu.ErrNotFound)
	case t.rows[n].ending:
		return false, fmt.Errorf("unregister event kernel %d: %w", n, ErrEnding)
	}
	e := &t.rows[n]
	e.ending = true
	if e.flying <= 0 {
		e.giveBack()
		return true, nil
	}
	return false, nil
}

// Drop ends a kernel's registration at once, whatever is under way: its context is gone. A row that
// is free stays so.
func (t *Table) Drop(n int) {
	if n >= 0 && n < Rows && t.rows[n].used {
		t.rows[n].giveBack()
	}
}

// Used returns how many rows are taken.
func (t *Table) Used() (n int) {
	for i := range t.rows {
		if t.rows[i].used {
			n++
		}
	}
	return n
}
