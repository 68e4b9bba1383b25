package proc

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"
)

// TestWhatProcessesDo compares what is read about this process, and a child that ends, with what
// they do.
func TestWhatProcessesDo(t *testing.T) {
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	pid := child.Process.Pid
	children, err := Children(os.Getpid())
	if err != nil || !slices.Contains(children, pid) {
		t.Errorf("the children %v, %v, are without %d", children, err, pid)
	}
	if d, err := CPUTime(pid); err != nil || d > time.Second {
		t.Errorf("a process that sleeps has used %v, %v", d, err)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if child.Wait() == nil {
		t.Error("it ended by itself")
	}
	if _, err := CPUTime(pid); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("processor time of a process that has ended: %v", err)
	}
	if children, err := Children(os.Getpid()); err != nil || slices.Contains(children, pid) {
		t.Errorf("the children afterwards are %v, %v", children, err)
	}
}

// TestReadOfWhatEnds reads a file that was opened before its process ended.
func TestReadOfWhatEnds(t *testing.T) {
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/stat", child.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // it was killed
	_, err = f.Read(make([]byte, 1))
	if err == nil || !errors.Is(gone(err), fs.ErrNotExist) {
		t.Errorf("it reads %v, which is %v", err, gone(err))
	}
	if err := gone(io.ErrUnexpectedEOF); err != io.ErrUnexpectedEOF {
		t.Errorf("another error becomes %v", err)
	}
}

func TestCPUTimeGoesOn(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	before, err := CPUTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	const enough = 5 * clockTick
	for begin := time.Now(); ; {
		used, err := CPUTime(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		if used >= before+enough {
			break
		}
		if time.Since(begin) > time.Minute {
			t.Fatalf("%v of processor time in a minute", used-before)
		}
	}
	if d, err := CPUTimeOfThreads(os.Getpid()); err != nil || d < enough/2 {
		t.Errorf("the threads of this process have used %v, %v", d, err)
	}
	if d, err := CPUTimeOfThreads(-1); d != 0 {
		t.Errorf("no process's threads have used %v, %v", d, err)
	}
	if pids, err := OfProgram(self); err != nil || !slices.Contains(pids, os.Getpid()) {
		t.Errorf("the processes of this program %v, %v, are without this one", pids, err)
	}
	if all, err := CPUTimeOfProgram(self); err != nil || all < before+enough {
		t.Errorf("all processes of this program have used %v, %v; this one had %v", all, err, before+enough)
	}
}

func TestDescriptorsAreCounted(t *testing.T) {
	before, err := Descriptors(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // it was only opened
	if after, err := Descriptors(os.Getpid()); err != nil || after != before+1 {
		t.Errorf("%d and one are %d, %v", before, after, err)
	}
}

// TestKernelsThreads checks that the kernel's threads are found if they are visible, and none
// otherwise.
func TestKernelsThreads(t *testing.T) {
	if d, err := CPUTimeOfKernel("no such thread"); d != 0 || err != nil {
		t.Errorf("%v, %v", d, err)
	}
	name, err := os.ReadFile("/proc/2/comm")
	if err != nil || string(name) != "kthreadd\n" {
		t.Skip("this process's /proc has no threads of the kernel")
	}
	if d, err := CPUTimeOfKernel("kthreadd"); d <= 0 || err != nil {
		t.Errorf("kthreadd has used %v, %v", d, err)
	}
}

func TestSizeIsThisProcesss(t *testing.T) {
	threads, resident, err := Size(os.Getpid())
	if err != nil || threads < 2 || resident < 1<<20 {
		t.Errorf("%d threads, %d bytes, %v", threads, resident, err)
	}
	if _, _, err := Size(-1); err == nil {
		t.Error("of no process")
	}
}
