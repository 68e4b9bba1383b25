package nvidia

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"

	"vgpud/gpu"
	"vgpud/gpu/nvidia/cuda/cudatest"
)

// Kernels' output is what the driver writes to standard output, in whole lines.
func TestPrintf(t *testing.T) {
	x := newFake(t, Options{CaptureOutput: true})
	x.gpu.Kernels["add"] = func(*cudatest.Launch) error {
		_, err := unix.Write(unix.Stdout, []byte("one\ntwo\nthree"))
		return err
	}
	c := x.context(t, gpu.ContextOptions{})
	ch := channelOf(t, c)
	f, err := ch.Launch(kernel(t, c, "add", 0))
	ran(t, ch, f, err)
	before := x.gpu.Calls("StreamSynchronize")
	for _, want := range []string{"one\n", "two\n", "th", "ree", ""} {
		if got, err := c.Printf(max(len(want), 2)); err != nil || string(got) != want {
			t.Errorf("printed %q, %v, want %q", got, err, want)
		}
	}
	if n := x.gpu.Calls("StreamSynchronize") - before; n != 1 {
		t.Errorf("the driver was asked %d times for the output of one launch", n)
	}
	// A running kernel is not waited for.
	if _, err := ch.Launch(kernel(t, c, "hang", 0)); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Printf(100); err != nil || len(got) > 0 {
		t.Errorf("printed %q, %v", got, err)
	}
	x.unblock()
}

// Output beyond the limit is dropped, and nobody waits for the reader.
func TestOutputIsBounded(t *testing.T) {
	o, err := capture()
	if err != nil {
		t.Fatal(err)
	}
	line := append(bytes.Repeat([]byte{'x'}, 1023), '\n')
	for range 3 * printBytes / len(line) {
		if n, err := unix.Write(unix.Stdout, line); n != len(line) || err != nil {
			t.Fatal(n, err)
		}
	}
	got, err := o.take(10 * printBytes)
	if err != nil || len(got) != printBytes {
		t.Errorf("kept %d bytes, %v, want %d", len(got), err, printBytes)
	}
	if err := o.Close(); err != nil {
		t.Error(err)
	}
}
