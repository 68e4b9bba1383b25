package inventory

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/clock"
)

// ProgramName is the program that uses NVIDIA's management library.
const ProgramName = "vgpu-nvml"

// Options configure [Watch].
type Options struct {
	Clock clock.Clock
	Log   *slog.Logger
	// Program is the program's path, by default [ProgramName] beside this program or else in $PATH.
	Program string
	// Every is the sampling interval, by default [DefaultEvery].
	Every time.Duration
}

// Watch waits between firstPause and lastPause before it restarts the program: twice as long each
// time, but from the beginning if the last run had an inventory.
const (
	firstPause = time.Second
	lastPause  = 30 * time.Second
)

// silenceLimit is the longest time without a message, beyond the sampling interval: querying a GPU
// in trouble takes the library many seconds.
const silenceLimit = 30 * time.Second

// Watch runs the program until ctx ends and passes its messages to f, from one goroutine. A message
// with an Error gives the reason for an interruption. Watch restarts the program when it exits, but
// returns [ErrUnavailable] if the program can't run here.
func Watch(ctx context.Context, o Options, f func(Message)) error {
	program, err := findProgram(o.Program)
	if err != nil {
		return err
	}
	if o.Every == 0 {
		o.Every = DefaultEvery
	}
	pause, quiet := firstPause, false // an outage is one line in the log
	for ctx.Err() == nil {
		said, err := o.once(ctx, program, f)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrUnavailable):
			return err
		case said:
			pause, quiet = firstPause, false
		}
		if !quiet {
			o.Log.Warn("the driver's inventory is not available; trying again", "err", err)
		}
		quiet = true
		f(Message{Error: newProblem(err)})
		if s, ok := errors.AsType[*stuckError](err); ok {
			select { // another process would get stuck beside it
			case <-s.over:
			case <-ctx.Done():
			}
		}
		if clock.Sleep(ctx, o.Clock, pause) != nil {
			return nil
		}
		pause = min(2*pause, lastPause)
	}
	return nil
}

// once is Watch for one run of the program. said reports whether it had an inventory.
func (o *Options) once(ctx context.Context, program string, f func(Message)) (said bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	var heard atomic.Int64 // time of the last message
	heard.Store(int64(o.Clock.Now()))
	var listening sync.WaitGroup
	defer listening.Wait()
	defer cancel(nil)
	listening.Go(func() { o.listen(ctx, &heard, cancel) })
	err = run(ctx, program, []string{"--every", o.Every.String()}, func(m Message) error {
		heard.Store(int64(o.Clock.Now()))
		if m.Error != nil {
			return m.Error
		}
		said = said || m.Inventory != nil
		f(m)
		return nil
	})
	return said, err
}

// listen stops a program that has been silent for too long. It runs until ctx ends.
func (o *Options) listen(ctx context.Context, heard *atomic.Int64, giveUp func(error)) {
	limit := silenceLimit + o.Every
	for {
		until := time.Duration(heard.Load()) + limit
		if o.Clock.WaitUntil(ctx, until) != nil {
			return
		}
		if time.Duration(heard.Load())+limit <= until {
			giveUp(fmt.Errorf("%s said nothing for %v", ProgramName, limit))
			return
		}
	}
}

// Once runs the program for the inventory and one sample of each GPU.
func Once(ctx context.Context, program string) (v Inventory, s []Sample, err error) {
	if program, err = findProgram(program); err != nil {
		return v, nil, err
	}
	err = run(ctx, program, []string{"--once"}, func(m Message) error {
		switch {
		case m.Error != nil:
			return m.Error
		case m.Inventory != nil:
			v = *m.Inventory
		default:
			s = m.Samples
		}
		return nil
	})
	if errors.Is(err, errEnded) && v.Driver != "" && s != nil {
		err = nil
	}
	return v, s, err
}

// errEnded is the error of a program that exited without a reason.
var errEnded = errors.New("ended")

// run runs the program and passes on its messages until it exits, f fails, or ctx ends. It never
// waits for a program that is stuck in the kernel, where no signal reaches it.
func run(ctx context.Context, program string, args []string, f func(Message) error) error {
	cmd := exec.Command(program, args...)
	// The program gets another session, so that a terminal's interrupt does not reach it. It exits
	// when its standard input is closed, so at the latest with this process.
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	var last lastWords
	cmd.Stderr = &last
	in, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("start %s: %w", program, err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return errors.Join(fmt.Errorf("start %s: %w", program, err), in.Close())
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", program, unavailable(err))
	}
	messages, over := make(chan Message), make(chan error, 1)
	reading, stop := context.WithCancel(ctx)
	defer stop()
	go func() { over <- read(reading, cmd, out, messages) }()
	for {
		select {
		case m := <-messages:
			if err := f(m); err != nil {
				stop()
				return errors.Join(err, end(cmd, in, over))
			}
		case err := <-over:
			if errors.Is(err, errEnded) && last.text() != "" {
				err = fmt.Errorf("%w: %s", err, last.text())
			}
			return err
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), end(cmd, in, over))
		}
	}
}

// read passes on the program's messages and waits for its exit, which it returns as the error.
func read(ctx context.Context, cmd *exec.Cmd, out io.Reader, messages chan<- Message) error {
	err := scan(out, func(m Message) error {
		select {
		case messages <- m:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	if err != nil && ctx.Err() == nil {
		err = errors.Join(err, ignoreDone(cmd.Process.Kill()))
	}
	werr := cmd.Wait()
	switch {
	case err != nil:
		return err
	case werr != nil:
		return fmt.Errorf("%s %w: %w", ProgramName, errEnded, werr)
	}
	return fmt.Errorf("%s %w", ProgramName, errEnded)
}

// closeLimit bounds the time that the program may take to close the library, and then to be killed.
const closeLimit = time.Second

// end stops the program, through its standard input or else by force. It does not wait for a
// program that is stuck in the kernel.
func end(cmd *exec.Cmd, in io.Closer, over <-chan error) error {
	err := in.Close()
	if errors.Is(err, os.ErrClosed) { // it has exited by itself
		err = nil
	}
	select {
	case <-over:
		return err
	case <-time.After(closeLimit):
	}
	err = errors.Join(err, ignoreDone(cmd.Process.Kill()))
	select {
	case <-over:
		return err
	case <-time.After(closeLimit):
		return errors.Join(err, &stuckError{pid: cmd.Process.Pid, over: over})
	}
}

// stuckError is the error for a program that can't be ended.
type stuckError struct {
	pid  int
	over <-chan error // receives a value when the program does exit
}

func (s *stuckError) Error() string {
	return fmt.Sprintf("%s (process %d) can't be ended: it is stuck in the driver", ProgramName, s.pid)
}

func ignoreDone(err error) error {
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// unavailable returns the error of a program that could not be started. If it exists and is
// executable the start may succeed later, when processes are available again.
func unavailable(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: %w", err, ErrUnavailable)
	}
	return err
}

// findProgram returns the program's path.
func findProgram(named string) (string, error) {
	if named != "" {
		return named, nil
	}
	if self, err := os.Executable(); err == nil {
		path := filepath.Join(filepath.Dir(self), ProgramName)
		if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	path, err := exec.LookPath(ProgramName)
	if err != nil {
		return "", fmt.Errorf("the program %s is neither beside this one nor in $PATH: %w", ProgramName, ErrUnavailable)
	}
	return path, nil
}

// lastWords keeps the last line that a program wrote to standard error.
type lastWords struct {
	mu   sync.Mutex
	said string
}

const maxSaid = 512

// Write implements [io.Writer].
func (l *lastWords) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.said += string(b)
	if over := len(l.said) - maxSaid; over > 0 {
		l.said = l.said[over:]
	}
	return len(b), nil
}

func (l *lastWords) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := strings.TrimSpace(l.said)
	return plain(text[strings.LastIndexByte(text, '\n')+1:], maxSaid)
}
