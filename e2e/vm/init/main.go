package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"log"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"vgpud/vfio/qemu/console"
)

// port is the serial port of the host's requests.
const port = "/dev/ttyS1"

func main() {
	log.SetFlags(0)
	log.SetPrefix("init: ")
	if len(os.Args) > 1 && os.Args[1] == "look" {
		if err := look(os.Stdout, os.Args[2:]); err != nil {
			log.Fatal(err)
		}
		return
	}
	if len(os.Args) == 2 && os.Args[1] == "serve" {
		log.Fatal(serve(newChildren()))
	}
	if os.Getpid() != 1 {
		log.Fatal("this is the first process of a test's guest; it is of no use anywhere else")
	}
	if err := run(); err != nil {
		log.Print(err)
	}
	if err := power(console.PowerOff); err != nil {
		log.Fatal(err) // the kernel panics
	}
}

// run sets the guest up and serves the host, or works unattended; it returns only on an error.
func run() error {
	if err := mountAll(); err != nil {
		return err
	}
	if err := os.Setenv("PATH", "/bin"); err != nil {
		return err
	}
	// A guest without a module can do everything that does not need it.
	if err := loadModules("/lib/modules"); err != nil {
		log.Print(err)
	}
	children := newChildren()
	if err := startAgent(children); err != nil {
		log.Print(err)
	}
	if _, err := os.Stat(plan); err == nil {
		return unattended(children)
	}
	return serve(children)
}

// serve executes the host's requests; it returns only on an error.
func serve(children *children) error {
	line, err := openSerial(port)
	if err != nil {
		return err
	}
	var boot [4]byte
	if _, err := rand.Read(boot[:]); err != nil {
		return err
	}
	server := console.Server{
		Guest: guest{children},
		Boot:  binary.LittleEndian.Uint32(boot[:]),
		Text:  describe(),
		Log:   func(s string) { log.Print(s) },
	}
	return server.Serve(context.Background(), line)
}

// agent is started at every boot, if it exists.
const agent = "/bin/vgpu-agent"

// startAgent runs the agent on the kernel's console.
func startAgent(c *children) error {
	if _, err := os.Stat(agent); err != nil {
		return nil
	}
	p, err := c.start([]string{agent}, nil, [3]*os.File{nil, os.Stdout, os.Stderr})
	if err != nil {
		return fmt.Errorf("start %s: %w", agent, err)
	}
	go func() {
		status := <-p.status
		log.Printf("%s has ended: %s", agent, describeStatus(status))
	}()
	return nil
}

// describe describes the guest.
func describe() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return err.Error()
	}
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s %s, %s, up %.2f s", unix.ByteSliceToString(u.Sysname[:]), unix.ByteSliceToString(u.Release[:]),
		runtime.Version(), float64(up.Nano())/1e9)
}

// guest executes the host's requests.
type guest struct{ children *children }

// Start runs a program with pipes as its standard files.
func (g guest) Start(args, env []string) (console.Child, error) {
	path, err := exec.LookPath(args[0])
	if err != nil {
		return console.Child{}, err
	}
	args = append([]string{path}, args[1:]...)
	var inside [3]*os.File // the program's ends of the pipes
	var ours [3]*os.File
	defer func() {
		for _, f := range inside {
			f.Close()
		}
	}()
	for i := range inside {
		r, w, err := os.Pipe()
		if err != nil {
			for _, f := range ours {
				f.Close()
			}
			return console.Child{}, err
		}
		if inside[i], ours[i] = w, r; i == 0 {
			inside[i], ours[i] = r, w
		}
	}
	p, err := g.children.start(args, env, inside)
	if err != nil {
		for _, f := range ours {
			f.Close()
		}
		return console.Child{}, fmt.Errorf("start %s: %w", strings.Join(args, " "), err)
	}
	return console.Child{
		PID: p.pid, Stdin: ours[0], Stdout: ours[1], Stderr: ours[2],
		Wait: func() (int, int) {
			status := <-p.status
			if status.Signaled() {
				return -1, int(status.Signal())
			}
			return status.ExitStatus(), 0
		},
		Signal: func(n int) error { return unix.Kill(p.pid, unix.Signal(n)) },
	}, nil
}

// Power powers off or reboots the guest.
func (g guest) Power(action string) error { return power(action) }
