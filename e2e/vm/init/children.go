package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"

	"golang.org/x/sys/unix"
)

// children starts processes and reaps them, and also orphans, which become children of the first
// process. Waiting for all of them in one place keeps both kinds apart; os/exec's own waiting would
// race.
type children struct {
	mu     sync.Mutex
	status map[int]chan unix.WaitStatus
}

// child is a started process.
type child struct {
	pid    int
	status <-chan unix.WaitStatus // receives the exit status
}

func newChildren() *children {
	c := &children{status: map[int]chan unix.WaitStatus{}}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	go func() {
		for range ended {
			c.reap()
		}
	}()
	return c
}

// start runs a program. It holds the lock until the process is registered, so that reap can't come
// first.
func (c *children) start(args, env []string, files [3]*os.File) (child, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, err := os.StartProcess(args[0], args, &os.ProcAttr{Env: append(os.Environ(), env...), Files: files[:], Dir: "/"})
	if err != nil {
		return child{}, err
	}
	status := make(chan unix.WaitStatus, 1)
	c.status[p.Pid] = status
	pid := p.Pid
	// reap waits for it instead of os.Process.
	if err := p.Release(); err != nil {
		return child{}, err
	}
	return child{pid, status}, nil
}

// reap reaps all processes that have ended.
func (c *children) reap() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil || pid == 0:
			return
		}
		if ended := c.status[pid]; ended != nil {
			ended <- status
			delete(c.status, pid)
		}
	}
}

// describeStatus returns a text for a wait status.
func describeStatus(s unix.WaitStatus) string {
	if s.Signaled() {
		return fmt.Sprintf("signal: %v", s.Signal())
	}
	return fmt.Sprintf("exit status %d", s.ExitStatus())
}
