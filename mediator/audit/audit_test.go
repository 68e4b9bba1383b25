package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"vgpud/mediator/access"
)

// record returns a record of an operator's request.
func record(path string) Record {
	return NewRecord(access.Caller{Role: access.Operator, Process: &access.Process{PID: 7, UID: 1000, User: "alice"}}, "PATCH", path, []byte("{\"weight\":\n 2}\n"))
}

// lines returns the records of a file.
func lines(t *testing.T, path string) (all []Record) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		var r Record
		if err := json.Unmarshal(s.Bytes(), &r); err != nil {
			t.Fatalf("%s: %v", s.Text(), err)
		}
		all = append(all, r)
	}
	return all
}

func newLog(t *testing.T, o Options) (*Log, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	o.Log = slog.New(slog.NewTextHandler(&out, nil))
	l := New(o)
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l, &out
}

func TestRecordInAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l, out := newLog(t, Options{File: path, MaxBytes: 1 << 20, Keep: 1})
	r := record("/v1/vms/a\nlevel=ERROR")
	r.Status, r.Error = 404, "not found"
	l.Write(r)
	got := lines(t, path)
	if len(got) != 1 {
		t.Fatalf("%+v", got)
	}
	g := got[0]
	if g.By != "user alice (uid 1000, pid 7)" || *g.UID != 1000 || g.PID != 7 || g.User != "alice" || g.Role != "operator" ||
		g.Path != `/v1/vms/a\nlevel=ERROR` || string(g.Arguments) != `{"weight":2}` || g.Status != 404 || g.Error != "not found" {
		t.Errorf("%+v", g)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if out.Len() != 0 {
		t.Errorf("the log has %s", out)
	}
	// Another logrotate moves the file away: the next record is in a new one.
	if err := os.Rename(path, path+".moved"); err != nil {
		t.Fatal(err)
	}
	l.Write(record("/v1/vms/b"))
	if got := lines(t, path); len(got) != 1 || got[0].Path != "/v1/vms/b" {
		t.Errorf("after a move: %+v", got)
	}
}

// TestRotation: the files take no more than their bound, and hold the newest records.
func TestRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	const size = 2000
	l, _ := newLog(t, Options{File: path, MaxBytes: size, Keep: 2})
	const n = 100
	for i := range n {
		l.Write(record(fmt.Sprint(i)))
	}
	var paths []string
	for _, p := range []string{path + ".2", path + ".1", path} {
		info, err := os.Stat(p)
		if err != nil || info.Size() > size {
			t.Errorf("%s: %v, %v", p, info, err)
		}
		for _, r := range lines(t, p) {
			paths = append(paths, r.Path)
		}
	}
	for i, p := range paths {
		if want := fmt.Sprint(n - len(paths) + i); p != want {
			t.Fatalf("record %d of %v is %s, want %s", i, paths, p, want)
		}
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 3 || len(paths) < 10 {
		t.Errorf("%d files with %d records, %v", len(entries), len(paths), err)
	}
}

// TestUnwritableFile: records are in the daemon's log while they can't be in the file, and the daemon
// says so once.
func TestUnwritableFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gone", "audit.log")
	l, out := newLog(t, Options{File: path, MaxBytes: 1 << 20})
	l.Write(record("/v1/vms/a"))
	l.Write(record("/v1/vms/b"))
	s := out.String()
	if strings.Count(s, "can't be recorded") != 1 || strings.Count(s, "msg=audit") != 2 || !strings.Contains(s, `request="PATCH /v1/vms/b"`) || l.Problem() == "" {
		t.Errorf("%s, problem %q", s, l.Problem())
	}
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	l.Write(record("/v1/vms/c"))
	if got := lines(t, path); len(got) != 1 || l.Problem() != "" {
		t.Errorf("%+v, problem %q", got, l.Problem())
	}
	// A pipe without a reader holds nobody.
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	l, _ = newLog(t, Options{File: pipe, MaxBytes: 1 << 20})
	l.Write(record("/v1/vms/a"))
	if l.Problem() == "" {
		t.Error("a pipe is taken for a file")
	}
}

// TestRefusalsAreLimited: a caller without rights can't push other records out of the files.
func TestRefusalsAreLimited(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l, _ := newLog(t, Options{File: path, MaxBytes: 1 << 20})
	for range 10_000 {
		l.Write(NewRecord(access.Caller{Role: access.Viewer}, "DELETE", "/v1/vms/a", nil))
	}
	l.Write(record("/v1/vms/a"))
	got := lines(t, path)
	last := got[len(got)-1]
	if len(got) > 1000 || last.Role != "operator" || last.Unrecorded == 0 {
		t.Errorf("%d records, the last %+v", len(got), last)
	}
}

// FuzzArguments: whatever a body is, a record is one bounded line of JSON.
func FuzzArguments(f *testing.F) {
	for _, s := range []string{"", "{}", "{\"a\":\n1}", "\xff", "\"\n", "{\"a\":1}{\"b\":2}", strings.Repeat("[", 5000), "{\"a\":\"\\u2028\"}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		b, err := json.Marshal(NewRecord(access.Caller{}, "PATCH", "/v1/vms/"+string(body), body))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.ContainsAny(b, "\n\r") || len(b) > 64<<10 {
			t.Errorf("%d bytes: %q", len(b), b)
		}
	})
}
