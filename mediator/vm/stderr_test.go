package vm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"testing"
	"time"

	"vgpud/internal/proctest"
)

// loud is a guest's process that writes more than a pipe holds while nobody reads, and then makes
// one step for each byte on its standard input. Descriptor 3 is the second log.
func loud() error {
	s, err := NewStderr()
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(s, nil))
	for i := range 2000 {
		log.Info("one of many lines that nobody reads", "number", i)
	}
	step := make([]byte, 1)
	for _, f := range []func() error{
		func() error { log.Info("while there is nobody"); return nil },
		func() error { return s.replace(os.NewFile(3, "log")) },
		func() error { log.Info("to somebody"); return nil },
	} {
		if _, err := fmt.Println("ready"); err != nil {
			return err
		}
		if _, err := io.ReadFull(os.Stdin, step); err != nil {
			return err
		}
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// TestLogOutlivesItsReader checks that a guest's process never waits for the reader of its log,
// goes on when the reader is gone, and gives the next reader the last entries.
func TestLogOutlivesItsReader(t *testing.T) {
	var pipes [2][2]*os.File
	for i := range pipes {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		pipes[i] = [2]*os.File{r, w}
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"=loud")
	cmd.Stderr, cmd.ExtraFiles = pipes[0][1], []*os.File{pipes[1][1]}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(cmd.Start(), pipes[0][1].Close(), pipes[1][1].Close()); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	defer close(read)
	go func() {
		look := time.NewTicker(time.Second)
		defer look.Stop()
		for w := new(proctest.Wait); w.Over() == nil; {
			select {
			case <-read:
				return
			case <-look.C:
			}
		}
		_ = cmd.Process.Kill() // ends the reads below
	}()
	answer := make([]byte, len("ready\n"))
	for step := range 3 {
		if _, err := io.ReadFull(out, answer); err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
		if step == 0 {
			if err := pipes[0][0].Close(); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := in.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := io.ReadAll(pipes[1][0])
	if err := errors.Join(err, pipes[1][0].Close(), cmd.Wait()); err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(got, []byte("while there is nobody")) || !bytes.HasSuffix(bytes.TrimSpace(got), []byte(`msg="to somebody"`)) || len(got) > 2*keptBytes {
		t.Errorf("the next reader gets %q", got)
	}
}
