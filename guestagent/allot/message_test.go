package allot

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"vgpud/mediator/vgpu/abi"
)

// pair returns both ends of a connection.
func pair(t testing.TB) (client, server Conn) {
	t.Helper()
	// Paths of sockets are short.
	dir, err := os.MkdirTemp("", "allot-")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "s")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	if client, err = Dial(path); err != nil {
		t.Fatal(err)
	}
	c, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	server = Conn{c}
	t.Cleanup(func() {
		_, _, _ = client.Close(), server.Close(), l.Close()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return client, server
}

func openFiles(t testing.TB) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

func TestGrantWithDescriptors(t *testing.T) {
	client, server := pair(t)
	want := Grant{
		Address: "0000:00:10.0", Access: "vfio", BARs: [2]Region{{0, 1 << 16}, {2 << 40, 1 << 26}},
		Allotment: Whole(2, 3, 1, abi.Window{Offset: 4096, Size: 8192}, abi.Window{Offset: 12288, Size: 4096}),
	}
	fd, err := unix.MemfdCreate("bar", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		var r Request
		_, err := server.Receive(&r)
		if err == nil && r.Op != OpOpen {
			t.Errorf("received %+v", r)
		}
		if err = server.Send(Reply{Grant: &want}, fd, fd, fd); err != nil {
			t.Error(err)
		}
	}()
	reply, files, err := client.Question(Request{Op: OpOpen}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&want, reply.Grant); diff != "" || len(files) != 3 {
		t.Errorf("%d files, grant (-want +got):\n%s", len(files), diff)
	}
	CloseAll(files)
	if err := unix.Close(fd); err != nil {
		t.Error(err)
	}
}

// TestRefusedMessages checks that refused messages leave no descriptors open.
func TestRefusedMessages(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	client, server := pair(t)
	before := openFiles(t)
	for name, c := range map[string]struct {
		text  string
		files int
		want  string
	}{
		"no JSON":              {"{", 2, "decode a message"},
		"too long":             {strings.Repeat(" ", maxMessage+1), 1, "a message of more than"},
		"too many descriptors": {"{}", maxFiles + 3, "descriptors"},
	} {
		fds := make([]int, c.files)
		for i := range fds {
			fds[i] = int(null.Fd())
		}
		if _, _, err := client.WriteMsgUnix([]byte(c.text), unix.UnixRights(fds...), nil); err != nil {
			t.Fatal(err)
		}
		var r Request
		if files, err := server.Receive(&r); err == nil || !strings.Contains(err.Error(), c.want) || files != nil {
			t.Errorf("%s: %v, %d files; want %q", name, err, len(files), c.want)
		}
	}
	if n := openFiles(t); n != before {
		t.Errorf("%d descriptors are open, %d before", n, before)
	}
	if err := client.Send(Reply{Error: strings.Repeat("x", maxMessage)}); err == nil {
		t.Error("a message that is too long was sent")
	}
}

func TestQuestionTimesOut(t *testing.T) {
	client, _ := pair(t)
	if _, _, err := client.Question(Request{Op: OpStatus}, time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Question: %v", err)
	}
}

// FuzzRequest has a tenant request anything.
func FuzzRequest(f *testing.F) {
	for _, s := range []string{
		`{"op":"open","ask":{"contexts":2,"channels":4,"shared_bytes":1048576}}`,
		`{"op":"set","offset":4096,"value":1}`, `{"op":"open","ask":{"contexts":-1}}`, `{"ask":{"shared_bytes":18446744073709551615}}`, `null`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var r Request
		if json.Unmarshal(b, &r) != nil {
			return
		}
		rings := abi.Window{Offset: uint64(abi.HeaderBytes(16)), Size: 1 << 20}
		windows := abi.Window{Offset: rings.Offset + rings.Size, Size: 4 << 20}
		table := NewTable(4, 16, 4, rings, windows)
		a, err := table.Allot(r.Ask)
		if err != nil {
			return
		}
		end, ok := a.Shared.End()
		ringsEnd, _ := a.Rings.End()
		if len(a.Contexts) == 0 || len(a.Contexts) > 4 || len(a.Channels) > 16 || !ok || end > windows.Offset+windows.Size ||
			a.Rings.Offset < rings.Offset || a.Rings.Size == 0 || ringsEnd > windows.Offset || a.Shared.Offset < windows.Offset {
			t.Errorf("%s is given %+v", b, a)
		}
	})
}
