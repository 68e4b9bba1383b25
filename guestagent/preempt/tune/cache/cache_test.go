package cache

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"vgpud/guestagent/preempt/tune"
	"vgpud/mediator/vgpu/abi"
)

func class(tasks uint64) tune.ClassRecord {
	return tune.ClassRecord{
		Class: tune.Shape{Tasks: tasks, Threads: 256}.Class(), Tasks: tasks, Slots: 1056, Why: tune.WhyCheapest,
		Form: abi.PreemptCoarse, Group: 8, Every: 1, Original: 1.25, Chosen: 1.125, Ran: 1.25,
	}
}

func entry(i int, tasks ...uint64) Entry {
	e := Entry{
		Key: Key{Kernel: Hash{byte(i), byte(i >> 8)}, GPU: "a GPU/132"}, Name: fmt.Sprintf("kernel%d", i),
		Forms: abi.PreemptSingle | abi.PreemptCoarse,
	}
	for _, n := range tasks {
		e.Record.Classes = append(e.Record.Classes, class(n))
	}
	return e
}

func TestPutAndGet(t *testing.T) {
	c := New()
	if _, ok := c.Get(entry(1).Key); ok {
		t.Error("an empty cache knows a kernel")
	}
	c.Put(entry(1, 1000))
	c.Put(entry(1, 100_000))
	e, ok := c.Get(entry(1).Key)
	if diff := cmp.Diff(entry(1, 100_000), e); !ok || diff != "" {
		t.Errorf("%v (-want +got):\n%s", ok, diff)
	}
	other := entry(1).Key
	other.GPU = "another"
	if _, ok := c.Get(other); ok {
		t.Error("what was measured on one GPU is known of another")
	}
}

// TestPeak checks that what is known of a program's task is kept like what is known of a kernel.
func TestPeak(t *testing.T) {
	want := Entry{Key: Key{Kernel: Hash{1}, GPU: "a GPU"}, Name: "program", Peak: &Peak{MemoryBytes: 5 << 30, Blocks: 9, Threads: 64}}
	c, e := New(), want
	e.Peak = new(*want.Peak)
	c.Put(e)
	e.Peak.MemoryBytes = 1 // the cache has its own
	all, err := Decode(must[[]byte](t)(Encode(c.All())))
	if diff := cmp.Diff([]Entry{want}, all); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// TestBounded checks that the latest used entries stay.
func TestBounded(t *testing.T) {
	c := New()
	for i := range MaxEntries {
		c.Put(entry(i))
	}
	c.Get(entry(0).Key)
	c.Put(entry(MaxEntries))
	if _, ok := c.Get(entry(0).Key); !ok || c.Len() != MaxEntries {
		t.Errorf("%d entries; the one that was asked for is there: %v", c.Len(), ok)
	}
	if _, ok := c.Get(entry(1).Key); ok {
		t.Error("the one that was used the longest ago is there")
	}
	e := entry(3)
	e.Name, e.Reason, e.Forms = strings.Repeat("n", 1000), strings.Repeat("ü", 1000), 0xff
	for i := range uint64(64) {
		e.Record.Classes = append(e.Record.Classes, tune.ClassRecord{}, class(1<<(i%63)))
	}
	c.Put(e)
	e, _ = c.Get(e.Key)
	if len(e.Name) > maxText || len(e.Reason) > maxText || e.Forms > 7 || len(e.Record.Classes) > tune.MaxClasses {
		t.Errorf("not bounded: %+v", e)
	}
}

func TestDecodeRefuses(t *testing.T) {
	good, err := Encode([]Entry{entry(1, 1000), entry(2)})
	if err != nil {
		t.Fatal(err)
	}
	if all, err := Decode(good); err != nil || len(all) != 2 {
		t.Fatalf("%d entries, %v", len(all), err)
	}
	for name, c := range map[string]struct {
		b    []byte
		want string
	}{
		"nothing":         {nil, "not a file of kernels"},
		"something else":  {[]byte("{}\n"), "not a file of kernels"},
		"a later version": {bytes.Replace(good, []byte("kernels 2 "), []byte("kernels 3 "), 1), "another version"},
		"cut off":         {good[:len(good)-3], "checksum"},
		"a bit is wrong":  {append(bytes.Clone(good[:len(good)-3]), 'x', '}', '\n'), "checksum"},
		"too long":        {append(bytes.Clone(good), make([]byte, MaxBytes)...), "more than"},
	} {
		if _, err := Decode(c.b); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestFile saves and reads a file, and keeps what another program saved meanwhile.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "made", "kernels")
	log := slog.New(slog.DiscardHandler)
	a := must[*File](t)(Open(path, log))
	b := must[*File](t)(Open(path, log))
	a.Put(entry(1, 1000))
	b.Put(entry(2))
	if err := errors.Join(a.Save(), b.Save()); err != nil {
		t.Fatal(err)
	}
	c := must[*File](t)(Open(path, log))
	if diff := cmp.Diff([]Entry{entry(2), entry(1, 1000)}, c.All()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	before := must[os.FileInfo](t)(os.Stat(path))
	if err := c.Save(); err != nil {
		t.Error(err)
	}
	if after := must[os.FileInfo](t)(os.Stat(path)); !os.SameFile(before, after) {
		t.Error("saved though nothing had changed")
	}
	left := must[[]os.DirEntry](t)(os.ReadDir(filepath.Dir(path)))
	if len(left) != 1 {
		t.Errorf("beside the file: %v", left)
	}
}

// TestLeftovers checks that a save removes what programs left that ended in the middle of theirs: a
// CUDA program does not wait for it for long at its end.
func TestLeftovers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tasks")
	old := time.Now().Add(-time.Hour)
	for name, at := range map[string]time.Time{".123": old, ".456": time.Now(), ".bad": old, ".9x": old} {
		if err := errors.Join(os.WriteFile(path+name, nil, 0o600), os.Chtimes(path+name, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	f := must[*File](t)(Open(path, slog.New(slog.DiscardHandler)))
	if err := f.Learn(t.Context(), []Entry{entry(1)}); err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, e := range must[[]os.DirEntry](t)(os.ReadDir(filepath.Dir(path))) {
		left = append(left, e.Name())
	}
	if diff := cmp.Diff([]string{"tasks", "tasks.456", "tasks.9x", "tasks.bad"}, left); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestBrokenFile checks that a corrupt file is renamed and logged, and that what is known stays.
func TestBrokenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kernels")
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, nil))
	running := must[*File](t)(Open(path, log))
	running.Put(entry(1, 1000))
	if err := os.WriteFile(path, []byte("vgpu-agent kernels 2 00\ngarbage"), 0o644); err != nil {
		t.Fatal(err)
	}
	fresh := must[*File](t)(Open(path, log))
	if fresh.Len() != 0 || !strings.Contains(text.String(), "can't be decoded; it is renamed") || !strings.Contains(text.String(), "checksum") {
		t.Errorf("%d entries; log: %s", fresh.Len(), text.String())
	}
	if b := must[[]byte](t)(os.ReadFile(path + ".bad")); !strings.HasSuffix(string(b), "garbage") {
		t.Errorf("renamed file: %q", b)
	}
	if err := os.WriteFile(path, []byte("broken again"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := running.Save(); err != nil {
		t.Fatal(err)
	}
	if again := must[*File](t)(Open(path, log)); again.Len() != 1 {
		t.Errorf("%d entries of the running program's one", again.Len())
	}
	if _, err := Open(filepath.Dir(path), log); err == nil {
		t.Error("a directory was read")
	}
}

// TestPipe checks that a pipe in the file's place, which another process has open, is renamed
// without waiting.
func TestPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kernels")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	held := must[*os.File](t)(os.OpenFile(path, os.O_RDWR, 0))
	opened := make(chan error, 1)
	go func() {
		_, err := Open(path, slog.New(slog.DiscardHandler))
		opened <- err
	}()
	select {
	case err := <-opened:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(2 * time.Minute):
		t.Error("a pipe is waited for")
	}
	if err := held.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path + ".bad"); err != nil {
		t.Error(err)
	}
}

func must[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// FuzzDecode decodes anything: what is accepted is bounded and survives encoding.
func FuzzDecode(f *testing.F) {
	good, err := Encode([]Entry{entry(1, 1000)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good[bytes.IndexByte(good, '\n')+1:])
	f.Add([]byte(`{"kernel":"00","record":{"classes":[]}}` + "\n"))
	f.Add([]byte(`{"kernel":"00","record":{"classes":[{"why":"short"}]}}` + "\n"))
	f.Fuzz(func(t *testing.T, body []byte) {
		sum := fmt.Appendf(nil, "%s %d ", magic, Version)
		b := append(fmt.Appendf(sum, "%x\n", sha256.Sum256(body)), body...)
		all, err := Decode(b)
		if err != nil {
			return
		}
		again, err := Encode(all)
		if err != nil {
			t.Fatal(err)
		}
		same, err := Decode(again)
		// An empty list and none are equal, and none is encoded.
		if diff := cmp.Diff(all, same, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	})
}
