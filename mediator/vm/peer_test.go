package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"vgpud/mediator/ipc"
	"vgpud/vfio/vfiouser"
	"vgpud/vfio/vfiouser/vfiousertest"
)

// serveGuarded serves a device at a socket with an admission rule.
func serveGuarded(t *testing.T, peer *ipc.Peer) (path string, dev *vfiousertest.Device) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "s")
	l, err := vfiouser.Listen(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	dev = &vfiousertest.Device{}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	srv := &vfiouser.Server{Device: dev, Check: admit(&ipc.Spec{Peer: peer}, nil).check, Log: slog.New(slog.DiscardHandler)}
	go func() { served <- srv.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return path, dev
}

// connects connects and disconnects again.
func connects(path string) error {
	c, err := vfiouser.Dial(context.Background(), path)
	if err != nil {
		return err
	}
	return c.Close()
}

func TestPeerOfThePIDFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "vm.pid")
	socket, _ := serveGuarded(t, &ipc.Peer{PIDFile: file})
	put := func(text string, mode os.FileMode) func() error {
		return func() error {
			return errors.Join(os.WriteFile(file, []byte(text), 0o600), os.Chmod(file, mode))
		}
	}
	own := fmt.Sprint(os.Getpid())
	// One after the other on one server: the file is read at every connection.
	for _, c := range []struct {
		what string
		do   func() error
		want error
	}{
		{"no file yet", func() error { return nil }, syscall.EAGAIN},
		{"another process", put("1\n", 0o644), syscall.EPERM},
		{"this process", put(own+"\n", 0o644), nil},
		{"without a line's end", put(own, 0o600), nil},
		{"nothing", put("", 0o644), syscall.EAGAIN},
		{"no number", put("qemu", 0o644), syscall.EAGAIN},
		{"no process", put("-"+own, 0o644), syscall.EAGAIN},
		{"more than a number", put(own+strings.Repeat(" ", maxPIDFile), 0o644), syscall.EAGAIN},
		{"anybody's to write", put(own, 0o666), syscall.EAGAIN},
		{"this process again", put(own, 0o644), nil},
		{"a symbolic link", func() error {
			return errors.Join(os.Rename(file, file+".real"), os.Symlink(file+".real", file))
		}, syscall.EAGAIN},
		{"a pipe", func() error { return errors.Join(os.Remove(file), unix.Mkfifo(file, 0o600)) }, syscall.EAGAIN},
		{"a directory", func() error { return errors.Join(os.Remove(file), os.Mkdir(file, 0o700)) }, syscall.EAGAIN},
	} {
		if err := c.do(); err != nil {
			t.Fatal(err)
		}
		if err := connects(socket); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.what, err, c.want)
		}
	}
}

func TestAdmission(t *testing.T) {
	me := os.Getpid()
	daemon := uint32(os.Geteuid())
	for what, c := range map[string]struct {
		peer  *ipc.Peer
		owner *vfiouser.Owner
		from  vfiouser.Peer
		want  error
		says  string
	}{
		"the daemon's user":      {from: vfiouser.Peer{PID: 7, UID: daemon}},
		"root":                   {owner: &vfiouser.Owner{UID: 64055, GID: -1}, from: vfiouser.Peer{PID: 7}},
		"the owner":              {owner: &vfiouser.Owner{UID: 64055, GID: -1}, from: vfiouser.Peer{PID: 7, UID: 64055}},
		"another user":           {owner: &vfiouser.Owner{UID: 64055, GID: -1}, from: vfiouser.Peer{PID: 7, UID: 1000}, want: syscall.EACCES, says: "user 1000, while the socket is user 64055's"},
		"only the group is set":  {owner: &vfiouser.Owner{UID: -1, GID: 5}, from: vfiouser.Peer{PID: 7, UID: daemon + 1}, want: syscall.EACCES},
		"the process":            {peer: &ipc.Peer{PID: me}, from: vfiouser.Peer{PID: int32(me), UID: daemon}},
		"another process":        {peer: &ipc.Peer{PID: me}, from: vfiouser.Peer{PID: 7, UID: daemon}, want: syscall.EPERM, says: "process 7, while the guest's VMM is process"},
		"root's another process": {peer: &ipc.Peer{PID: me}, from: vfiouser.Peer{PID: 7}, want: syscall.EPERM},
		"another PID namespace":  {peer: &ipc.Peer{PID: me}, from: vfiouser.Peer{PID: 0, UID: daemon}, want: syscall.EPERM},
		"the process, not its user": {
			peer: &ipc.Peer{PID: me}, owner: &vfiouser.Owner{UID: 64055, GID: -1}, from: vfiouser.Peer{PID: int32(me), UID: 1000}, want: syscall.EACCES,
		},
	} {
		err := admit(&ipc.Spec{Peer: c.peer}, c.owner).check(c.from)
		if !errors.Is(err, c.want) || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %v that says %q", what, err, c.want, c.says)
		}
	}
}

// tries counts the outcomes of a process's connections.
type tries struct{ Served, Refused, Busy, Cut int }

// knock is a process that connects again and again, from the end of its standard input on.
func knock() error {
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	const each, times = 3, 30
	var mu sync.Mutex
	var got tries
	var wg sync.WaitGroup
	var others error
	for range each {
		wg.Go(func() {
			for range times {
				err := connects(os.Getenv(socketVariable))
				mu.Lock()
				switch {
				case err == nil:
					got.Served++
				case errors.Is(err, syscall.EPERM):
					got.Refused++
				case errors.Is(err, syscall.EBUSY):
					got.Busy++
				case errors.Is(err, vfiouser.ErrClosed):
					got.Cut++ // too many at once
				default:
					others = errors.Join(others, err)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return errors.Join(others, json.NewEncoder(os.Stdout).Encode(got))
}

// socketVariable names the socket to connect to.
const socketVariable = "VGPUD_TEST_SOCKET"

// TestRaceForTheSocket runs several processes of one user that race for a guest's socket. Only the
// one named by the file is ever served, one connection at a time, and the others do not keep it
// out.
func TestRaceForTheSocket(t *testing.T) {
	file := filepath.Join(t.TempDir(), "vm.pid")
	socket, dev := serveGuarded(t, &ipc.Peer{PIDFile: file})
	var mu sync.Mutex
	served := make(map[int32]int)
	at, most := 0, 0
	dev.OnAttach = func(s *vfiouser.Session) error {
		mu.Lock()
		defer mu.Unlock()
		served[s.Peer().PID]++
		at++
		most = max(most, at)
		return nil
	}
	dev.OnDetach = func(*vfiouser.Session) {
		mu.Lock()
		defer mu.Unlock()
		at--
	}

	const processes = 4
	cmds, outs := make([]*exec.Cmd, processes), make([]strings.Builder, processes)
	starts := make([]io.Closer, processes)
	for i := range cmds {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), roleVariable+"=knock", socketVariable+"="+socket)
		cmd.Stdout, cmd.Stderr = &outs[i], os.Stderr
		start, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		cmds[i], starts[i] = cmd, start
	}
	right := cmds[0].Process.Pid
	if err := os.WriteFile(file, fmt.Append(nil, right), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, s := range starts {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for i, cmd := range cmds {
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		var got tries
		if err := json.Unmarshal([]byte(outs[i].String()), &got); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			if got.Served == 0 || got.Refused > 0 {
				t.Errorf("the VMM: %+v", got)
			}
		} else if got.Served > 0 || got.Busy > 0 || got.Refused == 0 {
			t.Errorf("process %d, which is not the VMM: %+v", i, got)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(served) != 1 || served[int32(right)] == 0 || most != 1 {
		t.Errorf("served %v, %d at a time; want %d alone", served, most, right)
	}
}
