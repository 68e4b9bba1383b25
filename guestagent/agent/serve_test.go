package agent_test

import (
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/guestagent/agent"
	"vgpud/guestagent/allot"
)

// TestDescriptorsRunOut has a program connect while the agent has no free descriptor: it is served
// when there is one.
func TestDescriptorsRunOut(t *testing.T) {
	g := start(t, kernels(0), agent.Options{})
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	check(t, err)
	check(t, unix.SetNonblock(fd, true))
	program := os.NewFile(uintptr(fd), "program")
	defer program.Close()

	var limit syscall.Rlimit
	check(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	restored := limit
	defer func() { check(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &restored)) }()
	limit.Cur = uint64(fd) + 50
	check(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	var all []int
	for {
		n, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			break
		}
		all = append(all, n)
	}
	err = unix.Connect(fd, &unix.SockaddrUnix{Name: g.socket})
	if err == nil {
		g.log.await(t, "programs are temporarily not accepted")
	}
	for _, n := range all {
		check(t, unix.Close(n))
	}
	check(t, err)

	_, err = program.Write([]byte(`{"op":"` + allot.OpStatus + `"}`))
	check(t, err)
	check(t, program.SetReadDeadline(time.Now().Add(time.Minute)))
	if n, err := program.Read(make([]byte, 4096)); err != nil || n == 0 {
		t.Errorf("the agent's answer: %d bytes, %v", n, err)
	}
}
