package executor

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"vgpud/gpu"
	"vgpud/mediator/ipc"
)

// record is what the guest has written to the memory of a context that may move, as long as no kernel
// and no copy on the GPU has written there and there is not too much of it. With it a context outlives
// the loss of its GPU: see rescue.
type record struct {
	writes []write // in order
	bytes  uint64  // of their data
	filled uint64  // bytes that were set to something else than zero
	over   bool    // memory may have what the record lacks
}

// write is a copy to memory, or n elements of width bytes that were set to value.
type write struct {
	at    gpu.Ptr
	data  []byte
	value uint32
	width int
	n     uint64 // of elements; 0: a copy
}

const (
	maxRecord       = 64 << 20 // bytes
	maxRecordFilled = 256 << 20
	maxRecordWrites = 1 << 12
)

// end ends the record: memory is about to have what it lacks.
func (r *record) end() { *r = record{over: true} }

// add adds a write.
func (r *record) add(w write) {
	if r.over {
		return
	}
	if len(w.data) > maxRecord || r.bytes+uint64(len(w.data)) > maxRecord || len(r.writes) >= maxRecordWrites {
		r.end()
		return
	}
	if w.n > 0 && !w.zero() {
		if r.filled += w.size(); r.filled > maxRecordFilled { // it would take as much of the host's memory
			r.end()
			return
		}
	}
	w.data = slices.Clone(w.data)
	r.bytes += uint64(len(w.data))
	r.writes = append(r.writes, w)
}

// freed drops what was written to memory that was freed.
func (r *record) freed(a allocation) {
	r.writes = slices.DeleteFunc(r.writes, func(w write) bool { return w.at-a.base < gpu.Ptr(a.size) })
}

// size returns the number of bytes that were written.
func (w *write) size() uint64 {
	if w.n > 0 {
		return w.n * uint64(w.width)
	}
	return uint64(len(w.data))
}

// zero reports whether all bytes are set to zero.
func (w *write) zero() bool { return w.n > 0 && w.value<<(32-8*w.width) == 0 }

// to writes the bytes to a file at an offset. Zeros become a hole.
func (w *write) to(f *os.File, at int64) error {
	if w.n == 0 {
		_, err := f.WriteAt(w.data, at)
		return err
	}
	if w.zero() {
		return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, int64(w.size()))
	}
	b := make([]byte, min(w.size(), savedPiece)) // a whole number of elements
	for i := range b {
		b[i] = byte(w.value >> (8 * (i % w.width)))
	}
	for done := uint64(0); done < w.size(); done += uint64(len(b)) {
		if _, err := f.WriteAt(b[:min(uint64(len(b)), w.size()-done)], at+int64(done)); err != nil {
			return err
		}
	}
	return nil
}

// rescue has a context leave a GPU that was lost, and reports whether it does: nothing of it may be on
// the GPU, and no kernel may have run.
func (x *Executor) rescue() bool {
	if x.o.Rescued == nil || x.record.over || x.gone || !x.quiet() || x.stays() != nil {
		return false
	}
	fd, err := unix.MemfdCreate("vgpud-context", unix.MFD_CLOEXEC)
	if err == nil {
		f := os.NewFile(uintptr(fd), "context")
		if err = x.saveRecord(f); err == nil {
			x.gone = true
			err = x.o.Rescued(f, ipc.Saved{Wants: x.wants()})
		}
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		x.o.Log.Debug("a context is lost with its GPU", "err", err)
	}
	return x.gone
}

// saveRecord is save without the GPU: memory has what was recorded.
func (x *Executor) saveRecord(f *os.File) error {
	host := x.o.Clock.Now()
	s := x.contents(x.epoch.guest+(host-x.epoch.host)+x.shift, host)
	at := int64(0)
	for _, a := range x.memory {
		s.Memory = append(s.Memory, placeIn(&at, a.base, a.size))
	}
	for _, w := range x.record.writes {
		i := slices.IndexFunc(s.Memory, func(m savedMemory) bool { return w.at-m.Base < gpu.Ptr(m.Size) })
		if i < 0 {
			return fmt.Errorf("%d bytes at %#x were written to no allocation", w.size(), uint64(w.at))
		}
		if err := w.to(f, s.Memory[i].At+int64(w.at-s.Memory[i].Base)); err != nil {
			return err
		}
	}
	for i := range s.Modules {
		m := x.modules.byID[s.Modules[i].Handle]
		v, _ := m.gpu.(gpu.Variables) // it is placed
		base, n := v.Variables()
		s.Modules[i].Variables, s.Modules[i].Fresh = savedMemory{base, n, 0}, true
	}
	return writeContents(f, at, s)
}
