package proctest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	// waitLimit is more than any wait of a test takes on a machine with nothing else to do.
	waitLimit = 30 * time.Second
	// mostWait bounds a wait where processors are never free, or nobody can tell.
	mostWait = 10 * time.Minute
	// unknownWait bounds a wait where the kernel does not tell how long threads waited for processors.
	unknownWait = 2 * time.Minute
)

// Until waits until ok returns true, and fails the test if that does not come within the limit of a
// [Wait].
func Until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for range 1000 { // most waits are short
		if ok() {
			return
		}
		runtime.Gosched()
	}
	var w Wait
	again := time.NewTicker(2 * time.Millisecond)
	defer again.Stop()
	for !ok() {
		<-again.C
		if err := w.Over(); err != nil {
			t.Fatalf("never: %s (%v)", what, err)
		}
	}
}

// Receive receives from a channel, and fails the test if nothing comes within the limit of a [Wait].
func Receive[T any](t testing.TB, what string, from <-chan T) T {
	t.Helper()
	var w Wait
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for {
		select {
		case v := <-from:
			return v
		case <-look.C:
			if err := w.Over(); err != nil {
				t.Fatalf("never: %s (%v)", what, err)
			}
		}
	}
}

// Wait is the limit of a wait in a test, from the first call of Over on. A busy machine is no reason to
// fail, so the limit of 30 s does not count time in which threads of this process and its descendants
// were ready to run and had no processor. One goroutine uses it.
type Wait struct {
	begin, looked time.Time
	unstarved     unstarved
}

// Over returns an error if the wait has taken too long.
func (w *Wait) Over() error {
	now := time.Now()
	if w.begin.IsZero() {
		w.begin = now
	}
	if now.Sub(w.looked) < time.Second {
		return nil
	}
	w.looked = now
	delays, err := runDelays(os.Getpid())
	all := now.Sub(w.begin)
	if free := w.unstarved.add(all, delays); free > waitLimit && (err == nil || all > unknownWait) || all > mostWait {
		late := fmt.Errorf("waited %v, %v of that with processors", all.Round(time.Millisecond), free.Round(time.Millisecond))
		return errors.Join(late, err)
	}
	return nil
}

// unstarved counts the time in which no thread waited for a processor.
type unstarved struct {
	at   time.Duration
	last map[int]time.Duration
	used time.Duration
}

// add takes in how long each thread, by its ID, has waited for processors until now, and returns the
// sum so far. Where several wait at the same time, that counts as one after the other.
func (w *unstarved) add(now time.Duration, delays map[int]time.Duration) time.Duration {
	free := now - w.at
	for id, d := range delays {
		free -= max(0, d-w.last[id])
	}
	if w.last != nil { // the first is what was before
		w.used += max(0, free)
	}
	w.at, w.last = now, delays
	return w.used
}

// runDelays returns how long each thread of a process and its descendants has waited for a processor.
func runDelays(pid int) (map[int]time.Duration, error) {
	delays := make(map[int]time.Duration)
	return delays, addRunDelays(delays, pid)
}

func addRunDelays(delays map[int]time.Duration, pid int) error {
	// A thread or process may end at any time, and is left out then.
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil {
		return err
	}
	for _, dir := range threads {
		id, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			return err
		}
		stat, err := os.ReadFile(filepath.Join(dir, "schedstat"))
		if err != nil {
			if _, err := os.Stat("/proc/thread-self/schedstat"); err != nil {
				return err
			}
			continue
		}
		// Nanoseconds that it ran, and that it waited, and how often it ran.
		fields := strings.Fields(string(stat))
		if len(fields) < 2 {
			return fmt.Errorf("%s/schedstat is %q", dir, stat)
		}
		ns, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			return fmt.Errorf("%s/schedstat: %w", dir, err)
		}
		delays[id] = time.Duration(ns)
		children, err := os.ReadFile(filepath.Join(dir, "children"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ESRCH) {
			return err
		}
		for child := range strings.FieldsSeq(string(children)) {
			n, err := strconv.Atoi(child)
			if err != nil {
				return fmt.Errorf("%s/children: %w", dir, err)
			}
			if err := addRunDelays(delays, n); err != nil {
				return err
			}
		}
	}
	return nil
}
