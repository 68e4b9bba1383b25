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

// ProgramName is the program that has NVIDIA's management library.
const ProgramName = "vgpu-nvml"

// Options are how [Watch] watches.
type Options struct {
	Clock clock.Clock
	Log   *slog.Logger
	// Program is [ProgramName] beside this program, or else in $PATH.
	Program string
	// Every is how often GPUs are sampled: [DefaultEvery].
	Every time.Duration
}

// How long Watch waits before it starts the program again: twice as long each
// time, but from the beginning where it had something to say.
const (
	firstPause = time.Second
	lastPause  = 30 * time.Second
)

// silence is how long the program may say nothing beyond the time between two
// samples: asking a GPU that is in trouble takes the library many seconds.
const silence = 30 * time.Second

// Watch runs the program until ctx ends and hands on what it says, from one
// goroutine; an Error among it is why there was no more for a while. It starts the
// program again when that ends, but where there can't be one it returns
// [ErrUnavailable].
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
			o.Log.Warn("the driver's inventory can't be had; trying again", "err", err)
		}
		quiet = true
		f(Message{Error: newProblem(err)})
		if s, ok := errors.AsType[*stuckError](err); ok {
			select { // another would get stuck beside it
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
	var heard atomic.Int64 // when, on the clock
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

// listen gives a program up that has said nothing for too long, until ctx ends.
func (o *Options) listen(ctx context.Context, heard *atomic.Int64, giveUp func(error)) {
	limit := silence + o.Every
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

// Once has the program say which GPUs there are, and how they are now.
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

// errEnded is the end of a program that gave no reason.
var errEnded = errors.New("ended")

// run runs the program and hands on what it says, until it ends, f fails, or ctx
// ends. It never waits for a program that is stuck in the kernel, where no signal
// reaches it.
func run(ctx context.Context, program string, args []string, f func(Message) error) error {
	cmd := exec.Command(program, args...)
	// Another session, so that a terminal's interrupt is for us alone. It ends when
	// its standard input does, so with this process at the latest.
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

// read hands on what the program says, and waits for its end, which is the error.
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

// closeLimit is how long the program may take to let the library go, and then to
// be killed.
const closeLimit = time.Second

// end ends the program, by its standard input or else by force. What happens to
// one that is stuck in the kernel is not waited for.
func end(cmd *exec.Cmd, in io.Closer, over <-chan error) error {
	err := in.Close()
	if errors.Is(err, os.ErrClosed) { // it has ended by itself
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

// stuckError is a program that can't be ended.
type stuckError struct {
	pid  int
	over <-chan error // has a value when it did end
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

// unavailable is the error of a program that could not be started. What is there
// and may be run can be had later, when there are processes to spare again.
func unavailable(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: %w", err, ErrUnavailable)
	}
	return err
}

// findProgram finds the program, where it is not named.
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

// lastWords keeps the last line that a program wrote on standard error.
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
