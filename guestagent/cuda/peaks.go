package cuda

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"vgpud/guestagent/driver"
	"vgpud/guestagent/preempt/tune/cache"
	"vgpud/guestagent/tasks"
)

// The agent keeps tasks' peaks beside what it learned about kernels; without an agent they are in a
// file of the user's.

// peaksFile is that file, in the user's folder of caches.
const peaksFile = "vgpu/tasks"

// peakWait bounds how long a program waits for what is known of it, and at its end.
const peakWait = 200 * time.Millisecond

// openPeaks returns where peaks are kept, or nil.
func (d *Driver) openPeaks(bus driver.Bus) driver.Memory {
	if m, ok := bus.(driver.Memory); ok {
		return m
	}
	if d.o.Secure {
		return nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return nil
	}
	f, err := cache.Open(filepath.Join(dir, peaksFile), slog.New(slog.DiscardHandler))
	if err != nil {
		return nil
	}
	return f
}

// programKey returns what identifies a program with its arguments that has recorded r. proc is its
// folder in /proc. A program that is built anew is another. Two runs that have recorded the same are
// likely to go on alike, and those with other inputs rarely do.
func programKey(proc, gpu string, r *tasks.Record) (k cache.Key, name string, ok bool) {
	exe, err := os.Readlink(filepath.Join(proc, "exe"))
	if err != nil {
		return k, "", false
	}
	st, err := os.Stat(filepath.Join(proc, "exe"))
	if err != nil {
		return k, "", false
	}
	args, err := os.ReadFile(filepath.Join(proc, "cmdline"))
	if err != nil {
		return k, "", false
	}
	if i := bytes.IndexByte(args, 0); i >= 0 { // its name is exe
		args = args[i:]
	}
	var text []byte
	for _, s := range []string{"a program's task", exe, string(args)} {
		text = append(binary.LittleEndian.AppendUint64(text, uint64(len(s))), s...)
	}
	for _, n := range []uint64{uint64(st.Size()), uint64(st.ModTime().UnixNano()), r.Bytes(), uint64(r.Objects())} {
		text = binary.LittleEndian.AppendUint64(text, n)
	}
	return cache.Key{Kernel: cache.Hash(sha256.Sum256(text)), GPU: gpu}, filepath.Base(exe), true
}

// recall returns what is known of earlier runs, and remembers as whose the task's own is to be kept.
func (t *task) recall(ctx context.Context) cache.Peak {
	m := t.x.d.peaks
	if m == nil {
		return cache.Peak{}
	}
	t.x.d.device.mu.Lock()
	gpu := t.x.d.device.name
	t.x.d.device.mu.Unlock()
	var ok bool
	if t.entry.Key, t.entry.Name, ok = programKey("/proc/self", gpu, t.record); !ok {
		return cache.Peak{}
	}
	ctx, cancel := context.WithTimeout(ctx, peakWait)
	defer cancel()
	known, err := m.Recall(ctx, []cache.Key{t.entry.Key})
	if err != nil || len(known) == 0 || known[0].Key != t.entry.Key || known[0].Peak == nil {
		return cache.Peak{}
	}
	return *known[0].Peak
}

// noteLaunch notes a launch; Context.mu is held.
func (t *task) noteLaunch(l *configuration) {
	t.most.Blocks = max(t.most.Blocks, blocksOf(l.grid))
	t.most.Threads = max(t.most.Threads, l.block[0]*l.block[1]*l.block[2])
}

// blocksOf returns the blocks of a grid, or as many as a request can say.
func blocksOf(grid [3]uint32) uint32 {
	const most = 1<<32 - 1
	n := uint64(grid[0]) * uint64(grid[1]) // each less than 2³¹ and 2¹⁶
	if n > most {
		return most
	}
	return uint32(min(n*uint64(grid[2]), most))
}

// learn keeps what the task needed at most, so that the program's next run asks for that. It takes no
// longer than peakWait.
func (x *Context) learn() {
	t := x.task
	if t == nil || !t.begun.Load() || x.d.peaks == nil || t.entry.Key == (cache.Key{}) || Result(x.sticky.Load()) != Success {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), peakWait)
	defer cancel()
	n, err := x.gpu.MemoryPeak(ctx)
	if err != nil || n == 0 {
		return
	}
	limit, known := x.d.taskLimit(), t.known
	switch {
	case t.less && t.outgrew.Load():
		n = limit // the next run asks for all, and then shows how much it needs
	case known.MemoryBytes >= limit:
		known.MemoryBytes = 0
	}
	x.mu.Lock()
	most := t.most
	x.mu.Unlock()
	e := t.entry
	e.Peak = &cache.Peak{
		MemoryBytes: max(n, known.MemoryBytes), Blocks: max(most.Blocks, t.known.Blocks), Threads: max(most.Threads, t.known.Threads),
	}
	if *e.Peak == t.known {
		return
	}
	done := make(chan struct{})
	go func() { // an agent may take long to answer
		defer close(done)
		_ = x.d.peaks.Learn(ctx, []cache.Entry{e}) // or the next run asks for as much as this one
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}
