package executor

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/gpu"
	"vgpud/mediator/ipc"
)

// A saved context is a file: the contents of memory, without the pages that are zero, then a
// [savedContext] as JSON, then the end: its length and savedMagic. It is for executors of the same
// release.

// savedContext is all of a context but the contents of its memory.
type savedContext struct {
	// GuestTime is the time that the guest was told last, and HostTime the executor's clock then.
	GuestTime, HostTime time.Duration
	Limits              map[uint32]uint64
	Memory              []savedMemory
	Modules             []savedModule
	Functions           []savedFunction
	Events              []savedEvent
	// The handles that were given last.
	LastModule, LastFunction, LastEvent uint64
	Windows                             gpu.Ptr // 0: they are not mapped
	NextPlace                           gpu.Ptr
	Printed                             []byte
	Peak                                uint64 // the most memory that it has had
	Channels                            []savedChannel
}

// savedMemory is memory whose contents are in the file at an offset.
type savedMemory struct {
	Base gpu.Ptr
	Size uint64
	At   int64
}

type savedModule struct {
	Handle    uint64
	Image     []byte
	At        gpu.Ptr
	Stack     uint64 // the limit when it was loaded; 0: that was not known
	Variables savedMemory
	Fresh     bool // they have their first values
}

type savedFunction struct {
	Handle, Module uint64
	Name           string
	Mean, Hint     time.Duration
	Unresponsive   bool
	Set            map[uint32]uint64
}

type savedEvent struct {
	Handle                                uint64
	Recorded, Reached, Untimed, Triggered bool
	At                                    time.Duration
	Records                               int
	Value                                 uint64
}

// savedChannel is a channel. Nothing of it is on the GPU, and all completions are published.
type savedChannel struct {
	ipc.Channel
	Submission, Completion uint32 // positions in the rings
	Seq                    uint64
	Fetched                []byte // entries that were not carried out
	Dead                   bool
}

const (
	savedMagic = "vgpudmv1"
	savedEnd   = 8 + len(savedMagic)
	savedGrain = 4096    // of memory in the file
	savedPiece = 1 << 20 // that is copied at a time, a multiple of savedGrain
	maxSaved   = 1 << 30 // of the JSON
)

// writeContents writes all but the memory to the end of the file.
func writeContents(f *os.File, at int64, s *savedContext) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	text = append(binary.LittleEndian.AppendUint64(text, uint64(len(text))), savedMagic...)
	_, err = f.WriteAt(text, at)
	return err
}

// readContents reads what writeContents wrote.
func readContents(f *os.File) (*savedContext, error) {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	end := make([]byte, savedEnd)
	if _, err := f.ReadAt(end, size-int64(savedEnd)); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(end)
	if string(end[8:]) != savedMagic || n > maxSaved || int64(n) > size-int64(savedEnd) {
		return nil, errors.New("not a saved context")
	}
	text := make([]byte, n)
	if _, err := f.ReadAt(text, size-int64(savedEnd)-int64(n)); err != nil {
		return nil, err
	}
	s := &savedContext{}
	return s, json.Unmarshal(text, s)
}

// mover copies a context's memory to and from a file, by a channel of its own.
type mover struct {
	x     *Executor
	ch    gpu.Channel
	f     *os.File
	piece []byte
}

func (x *Executor) newMover(f *os.File) (*mover, error) {
	ch, err := x.o.Context.NewChannel()
	if err != nil {
		return nil, err
	}
	return &mover{x: x, ch: ch, f: f, piece: make([]byte, savedPiece)}, nil
}

func (m *mover) close() error { return m.ch.Close() }

// wait waits for a copy.
func (m *mover) wait(fence gpu.Fence, err error) error {
	if err == nil {
		err = m.ch.Wait(m.x.o.Until, fence)
	}
	if err == nil {
		err = m.ch.Outcome(fence).Err
	}
	return err
}

var noBytes [savedGrain]byte

// out copies memory to the file. Pages that are zero become holes.
func (m *mover) out(s savedMemory) error {
	for done := uint64(0); done < s.Size; {
		b := m.piece[:min(savedPiece, s.Size-done)]
		if err := m.wait(m.ch.CopyOut(b, s.Base+gpu.Ptr(done))); err != nil {
			return fmt.Errorf("copy %d bytes at %#x to the host: %w", len(b), uint64(s.Base)+done, err)
		}
		for i := 0; i < len(b); i += savedGrain {
			page := b[i:min(i+savedGrain, len(b))]
			if bytes.Equal(page, noBytes[:len(page)]) {
				continue
			}
			if _, err := m.f.WriteAt(page, s.At+int64(done)+int64(i)); err != nil {
				return err
			}
		}
		done += uint64(len(b))
	}
	return nil
}

// in copies memory from the file, without holes: what they stand for is zero already, unless all is
// set.
func (m *mover) in(s savedMemory, all bool) error {
	for done := uint64(0); done < s.Size; {
		at := s.At + int64(done)
		if !all {
			data, err := unix.Seek(int(m.f.Fd()), at, unix.SEEK_DATA)
			if errors.Is(err, unix.ENXIO) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("look for a context's memory: %w", err)
			}
			if done += uint64(data - at); done >= s.Size {
				return nil
			}
			at = data
		}
		b := m.piece[:min(savedPiece, s.Size-done)]
		if _, err := m.f.ReadAt(b, at); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if err := m.wait(m.ch.CopyIn(s.Base+gpu.Ptr(done), b)); err != nil {
			return fmt.Errorf("copy %d bytes at %#x to the GPU: %w", len(b), uint64(s.Base)+done, err)
		}
		done += uint64(len(b))
	}
	return nil
}

// hashOf returns the hash by which a module's kernels are known.
func hashOf(image []byte) [sha256.Size]byte { return sha256.Sum256(image) }
