package rm_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"vgpud/gpu/nvidia/cuda"
	"vgpud/gpu/nvidia/rm"
)

// The tests on a GPU need processes with CUDA contexts: this test's own program, started with
// workerEnv set. A worker sends its handles and its descriptor of the driver over a socket, and
// shows its kernels' progress in a shared page.

const workerEnv = "VGPUD_RM_WORKER"

// spins is workerEnv's value for a worker that polls for its kernels' ends instead of sleeping.
const spins = "spins"

// A worker's kernels have enough blocks to fill an H100, with a line of the page each.
const (
	blocks     = 264
	threads    = 1024
	line       = 128
	pageBytes  = (blocks + 1) * line
	roundInner = 200 // about 10 µs per round
)

// spin counts rounds of integer work in each block's line, with the time of the last.
const spin = `
.version 7.0
.target sm_70
.address_size 64
.visible .entry spin(.param .u64 page, .param .u64 rounds, .param .u32 inner)
{
	.reg .pred p, q;
	.reg .b32 r<8>;
	.reg .b64 d<8>;
	ld.param.u64 d1, [page];
	ld.param.u64 d2, [rounds];
	ld.param.u32 r1, [inner];
	mov.u32 r2, %ctaid.x;
	mov.u32 r3, %tid.x;
	mul.wide.u32 d3, r2, 128;
	add.u64 d3, d3, d1;
	mov.u64 d4, 0;
	mov.u32 r5, r3;
	setp.ne.u32 q, r3, 0;
	@q bra round;
	ld.volatile.global.u64 d6, [d3];
round:
	mov.u32 r4, 0;
work:
	mad.lo.u32 r5, r5, 1664525, 1013904223;
	add.u32 r4, r4, 1;
	setp.lt.u32 p, r4, r1;
	@p bra work;
	add.u64 d4, d4, 1;
	bar.sync 0;
	@q bra next;
	add.u64 d6, d6, 1;
	mov.u64 d5, %globaltimer;
	st.volatile.global.u64 [d3+8], d5;
	st.volatile.global.u64 [d3], d6;
next:
	setp.lt.u64 p, d4, d2;
	@p bra round;
	setp.ne.u32 p, r5, 0;
	@p bra end;
	st.volatile.global.u32 [d3+16], r5;
end:
	ret;
}
`

func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) != "" {
		if err := work(); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// hello is a worker's first message.
type hello struct {
	rm.Objects
	Found       time.Duration // the duration of FindOwn
	Group       uint16        // hardware id
	Descriptors int
}

// work runs a worker until its socket is closed.
func work() error {
	runtime.LockOSThread()
	sock, err := socketOf(os.NewFile(3, "socket"))
	if err != nil {
		return err
	}
	page, err := unix.Mmap(4, 0, pageBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	l, err := cuda.Open()
	if err != nil {
		return err
	}
	if err := l.Init(); err != nil {
		return err
	}
	dev, err := l.DeviceGet(0)
	if err != nil {
		return err
	}
	const schedSpin = 1 // CU_CTX_SCHED_SPIN
	sched := uint32(cuda.CtxSchedBlockingSync)
	if os.Getenv(workerEnv) == spins {
		sched = schedSpin
	}
	ctx, err := l.CtxCreate(sched, dev)
	if err != nil {
		return err
	}
	start := time.Now()
	own, err := rm.FindOwn(rm.Linux{}, nil)
	if err != nil {
		return err
	}
	h := hello{Objects: own.Objects, Found: time.Since(start)}
	nodes, err := rm.Linux{}.Own()
	if err != nil {
		return err
	}
	h.Descriptors = len(nodes)
	for _, n := range nodes {
		n.Close()
	}
	c, err := rm.NewControl(own.Node, own.Objects, rm.ControlOptions{})
	if err != nil {
		return err
	}
	if h.Group, err = c.HardwareID(); err != nil {
		return err
	}
	if err := l.MemHostRegister(page, cuda.HostPortable|cuda.HostDeviceMap); err != nil {
		return err
	}
	m, log, err := l.ModuleLoadData([]byte(spin))
	if err != nil {
		return fmt.Errorf("%w: %s", err, log)
	}
	f, err := l.ModuleGetFunction(m, "spin")
	if err != nil {
		return err
	}
	s, err := l.StreamCreate(cuda.StreamNonBlocking, 0)
	if err != nil {
		return err
	}
	b, err := json.Marshal(h)
	if err != nil {
		return err
	}
	if _, _, err := sock.WriteMsgUnix(b, unix.UnixRights(own.Node.FD()), nil); err != nil {
		return err
	}
	args := cuda.NewArgs()
	buf := make([]byte, 4096)
	for {
		n, err := sock.Read(buf)
		if err != nil || n == 0 {
			return nil
		}
		answer, err := command(l, ctx, f, s, c, args, page, string(buf[:n]))
		if err != nil {
			answer = "error: " + err.Error()
		}
		if _, err := sock.Write([]byte(answer)); err != nil {
			return nil
		}
	}
}

// command executes a command that the test sent to a worker.
func command(l *cuda.Library, ctx cuda.Context, f cuda.Function, s cuda.Stream, c *rm.Control, args *cuda.Args, page []byte, line string) (string, error) {
	var name string
	var a, b int
	_, _ = fmt.Sscan(line, &name, &a, &b)
	switch name {
	case "run": // a kernels of b rounds
		for range a {
			binary.LittleEndian.PutUint64(args.Params[0:], uint64(uintptr(unsafe.Pointer(&page[0]))))
			binary.LittleEndian.PutUint64(args.Params[8:], uint64(b))
			binary.LittleEndian.PutUint32(args.Params[16:], roundInner)
			if err := l.LaunchKernel(f, [3]uint32{blocks, 1, 1}, [3]uint32{threads, 1, 1}, 0, s, args, 20); err != nil {
				return "", err
			}
		}
		return "ok", nil
	case "wait":
		return "ok", l.StreamSynchronize(s)
	case "again": // kernels of b rounds, each waited for, for a milliseconds
		n := 0
		for end := time.Now().Add(time.Duration(a) * time.Millisecond); time.Now().Before(end); n++ {
			if _, err := command(l, ctx, f, s, c, args, page, fmt.Sprintf("run 1 %d", b)); err != nil {
				return "", err
			}
			if err := l.StreamSynchronize(s); err != nil {
				return "", err
			}
		}
		return fmt.Sprint(n), nil
	case "take": // a MiB
		if _, err := l.MemAllocAsync(uint64(a)<<20, s); err != nil {
			return "", err
		}
		return "ok", l.StreamSynchronize(s)
	case "free":
		free, _, err := l.MemGetInfo()
		return fmt.Sprint(free >> 20), err
	case "watch": // until the worker's end
		client, err := rm.Open(rm.Linux{}, rm.GPU{})
		if err != nil {
			return "", err
		}
		_, err = client.Events()
		return "ok", err
	case "end": // the context
		return "ok", l.CtxDestroy(ctx)
	case "disable":
		return "ok", c.Disable()
	case "enable":
		return "ok", c.Enable()
	}
	return "", errors.New("unknown command")
}

// socketOf returns a connection from a socket's descriptor, and closes f.
func socketOf(f *os.File) (*net.UnixConn, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	return c.(*net.UnixConn), nil
}

// worker is the test's side of a worker.
type worker struct {
	hello
	t    *testing.T
	cmd  *exec.Cmd
	sock *net.UnixConn
	page []byte
	// file is a descriptor of the worker's file of the driver.
	file *os.File
	exit chan error
}

// newWorker starts a worker, which ends with the test at the latest.
func newWorker(t *testing.T) *worker {
	t.Helper()
	w := startWorker(t)
	w.greet()
	return w
}

// startWorker starts a worker with additional environment variables. The caller must call greet.
func startWorker(t *testing.T, env ...string) *worker {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	mem, err := unix.MemfdCreate("progress", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Ftruncate(mem, pageBytes); err != nil {
		t.Fatal(err)
	}
	w := &worker{t: t, exit: make(chan error, 1)}
	if w.page, err = unix.Mmap(mem, 0, pageBytes, unix.PROT_READ, unix.MAP_SHARED); err != nil {
		t.Fatal(err)
	}
	if w.sock, err = socketOf(os.NewFile(uintptr(fds[0]), "socket")); err != nil {
		t.Fatal(err)
	}
	theirs, memory := os.NewFile(uintptr(fds[1]), "socket"), os.NewFile(uintptr(mem), "memfd")
	w.cmd = exec.Command(os.Args[0])
	w.cmd.Env = append(append(os.Environ(), workerEnv+"=1"), env...)
	w.cmd.ExtraFiles = []*os.File{theirs, memory}
	w.cmd.Stderr = os.Stderr
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	memory.Close()
	go func() { w.exit <- w.cmd.Wait() }()
	t.Cleanup(func() {
		w.cmd.Process.Kill()
		w.sock.Close()
		if w.file != nil {
			w.file.Close()
		}
	})
	return w
}

// greet waits for the worker's first message.
func (w *worker) greet() {
	t := w.t
	t.Helper()
	buf, oob := make([]byte, 8192), make([]byte, 64)
	w.sock.SetReadDeadline(time.Now().Add(20 * time.Second))
	n, oobn, _, _, err := w.sock.ReadMsgUnix(buf, oob)
	if err != nil {
		t.Fatalf("no message from the worker: %v", err)
	}
	if err := json.Unmarshal(buf[:n], &w.hello); err != nil {
		t.Fatal(err)
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil || len(msgs) != 1 {
		t.Fatalf("worker passed no descriptor: %v", err)
	}
	rights, err := unix.ParseUnixRights(&msgs[0])
	if err != nil || len(rights) != 1 {
		t.Fatalf("worker passed %d descriptors: %v", len(rights), err)
	}
	w.file = os.NewFile(uintptr(rights[0]), "nvidiactl")
}

// try sends the worker a command and returns its answer. It fails after limit.
func (w *worker) try(limit time.Duration, format string, a ...any) (string, error) {
	if _, err := fmt.Fprintf(w.sock, format, a...); err != nil {
		return "", err
	}
	buf := make([]byte, 4096)
	w.sock.SetReadDeadline(time.Now().Add(limit))
	n, err := w.sock.Read(buf)
	if err != nil {
		return "", err
	}
	answer := string(buf[:n])
	if text, failed := strings.CutPrefix(answer, "error: "); failed {
		return "", errors.New(text)
	}
	return answer, nil
}

// do is try for commands that must not fail.
func (w *worker) do(format string, a ...any) string {
	w.t.Helper()
	answer, err := w.try(20*time.Second, format, a...)
	if err != nil {
		w.t.Fatalf("worker %d, %s: %v", w.cmd.Process.Pid, fmt.Sprintf(format, a...), err)
	}
	return answer
}

// control takes control of the worker's context through the worker's own file.
func (w *worker) control(opt rm.ControlOptions) *rm.Control {
	w.t.Helper()
	fd, err := unix.FcntlInt(w.file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	n, err := rm.Linux{}.Adopt(os.NewFile(uintptr(fd), "nvidiactl"))
	if err != nil {
		w.t.Fatal(err)
	}
	c, err := rm.NewControl(n, w.Objects, opt)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() })
	return c
}

// word reads a word of a block's line.
func (w *worker) word(block, i int) uint64 {
	return atomic.LoadUint64((*uint64)(unsafe.Pointer(&w.page[block*line+8*i])))
}

// progress returns the rounds of all blocks, and the GPU's time of the newest.
func (w *worker) progress() (rounds uint64, newest time.Duration) {
	for b := range blocks {
		rounds += w.word(b, 0)
		newest = max(newest, time.Duration(w.word(b, 1)))
	}
	return rounds, newest
}

// moving waits until the worker's kernel makes progress.
func (w *worker) moving() {
	w.t.Helper()
	from, _ := w.progress()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		if n, _ := w.progress(); n != from {
			return
		}
	}
	w.t.Fatal("no progress in 10 s")
}

// rate returns the worker's rounds per second over d.
func (w *worker) rate(d time.Duration) float64 {
	a, _ := w.progress()
	start := time.Now()
	time.Sleep(d)
	b, _ := w.progress()
	return float64(b-a) / time.Since(start).Seconds()
}
