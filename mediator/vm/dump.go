package vm

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/clock"
)

// An executor that has to be killed because it does not do what it should is first asked what it
// waits for: SIGQUIT has Go's runtime print all goroutines and end the process. That needs no
// system call beside writes to the standard error, which the executor's filter allows, and any
// user may send it to a process of its own.
const (
	// quitGrace is how long the executor has for that.
	quitGrace = 5 * time.Second
	// dumpBytes bounds what is kept of what it prints, and briefBytes what is logged of it: a
	// dozen records that the daemon, which cuts lines to maxLineBytes, passes on whole.
	dumpBytes  = 64 << 10
	briefBytes = 12 << 10
	pieceBytes = 1200
	// maxThreads bounds the threads that are looked at.
	maxThreads = 64
)

// quit has an executor print its goroutines and end. It returns without an error when the executor
// could be asked, and has had its time: the caller kills it. It returns early, with an error, when
// ctx ends.
func (s *started) quit(ctx context.Context, c clock.Clock, log *slog.Logger) error {
	log.Info("the executor's threads", "pid", s.cmd.Process.Pid, "threads", threadStates("/proc", s.cmd.Process.Pid))
	s.output.keepDump()
	if err := s.cmd.Process.Signal(unix.SIGQUIT); err != nil {
		log.Debug("ask an executor for its goroutines", "err", err)
		return nil
	}
	return clock.Sleep(ctx, c, quitGrace)
}

// logDump logs the goroutines that an executor printed, if it did.
func logDump(log *slog.Logger, dump string) {
	for _, piece := range pieces(brief(dump), pieceBytes) {
		log.Warn("the executor's goroutines", "text", piece)
	}
}

// brief shortens what Go's runtime prints on SIGQUIT to one line for each goroutine: its number and
// state, and each frame's function and line, the innermost first. It leaves out registers,
// arguments and folders, and what is beyond briefBytes.
func brief(dump string) string {
	var b strings.Builder
	function, open := "", false
	for line := range strings.Lines(dump) {
		line = strings.TrimRight(line, "\n")
		file, isFile := strings.CutPrefix(line, "\t")
		var add string
		switch {
		case strings.HasPrefix(line, "goroutine "):
			add, open = line, true
			if b.Len() > 0 {
				add = "\n" + line
			}
		case open && isFile && function != "":
			place, _, _ := strings.Cut(path.Base(file), " +0x") // the offset in the function, if it is there
			add = fmt.Sprintf(" < %s %s", function, place)
		}
		if b.Len()+len(add) > briefBytes {
			break
		}
		b.WriteString(add)
		switch at := strings.LastIndexByte(line, '('); {
		case isFile:
			function = ""
		case at > 0 && strings.HasSuffix(line, ")"):
			function = line[:at]
		default:
			function = line // it was created by
		}
	}
	return b.String()
}

// pieces divides text into pieces of at most n bytes, at the ends of lines where possible.
func pieces(text string, n int) (all []string) {
	for len(text) > n {
		at := strings.LastIndexByte(text[:n], '\n') + 1
		if at == 0 {
			at = n
		}
		all = append(all, strings.TrimRight(text[:at], "\n"))
		text = text[at:]
	}
	if text != "" {
		all = append(all, text)
	}
	return all
}

// threadStates returns the state, the processor time and the last processor of a process's threads:
// what is known of one that prints nothing. proc is where procfs is mounted.
func threadStates(proc string, pid int) string {
	names, err := filepath.Glob(filepath.Join(proc, strconv.Itoa(pid), "task", "*", "stat"))
	if err != nil {
		return ""
	}
	var all []string
	for _, name := range names[:min(len(names), maxThreads)] {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // the thread has ended
		}
		// See proc_pid_stat(5): the name, field 2, may hold blanks and brackets.
		fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		const first, user, system, processor = 3, 14, 15, 39
		if len(fields) <= processor-first {
			continue
		}
		var inUser, inKernel time.Duration
		if _, err := fmt.Sscan(fields[user-first]+" "+fields[system-first], &inUser, &inKernel); err != nil {
			continue // the kernel writes numbers
		}
		const tick = time.Second / 100 // Linux's USER_HZ
		all = append(all, fmt.Sprintf("%s %v on %s", fields[0], (inUser+inKernel)*tick, fields[processor-first]))
	}
	return strings.Join(all, ", ")
}

// activeTime returns how long the threads of a process, those that it has now, have used a processor
// or waited for one; 0 where the kernel does not tell. proc is where procfs is mounted.
func activeTime(proc string, pid int) (sum time.Duration) {
	names, err := filepath.Glob(filepath.Join(proc, strconv.Itoa(pid), "task", "*", "schedstat"))
	if err != nil {
		return 0
	}
	for _, name := range names[:min(len(names), maxThreads)] {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // the thread has ended
		}
		// In nanoseconds: see sched-stats.rst of the kernel's documentation.
		var used, waited int64
		if _, err := fmt.Sscan(string(b), &used, &waited); err == nil {
			sum += time.Duration(used + waited)
		}
	}
	return sum
}
