package sandbox

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"vgpud/mediator/ipc"
)

func TestParseUIDs(t *testing.T) {
	for text, want := range map[string]UIDs{
		"1879048192-1879052287": DefaultUIDs, "61184 - 65519": {First: 61184, Last: 65519},
		"": {}, "5": {}, "100-200": {}, "2000-2000": {}, "2000-1000": {}, "1-x": {}, "1000-4294967295": {},
	} {
		got, err := ParseUIDs(text)
		if got != want || (err == nil) != (want != UIDs{}) {
			t.Errorf("ParseUIDs(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
}

// TestUsersAreUnique checks that, whatever guests come and go and whatever users an earlier daemon
// gave out, no two guests share a user and none has the group's number.
func TestUsersAreUnique(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPool(UIDs{First: 5000, Last: 5000 + rapid.IntRange(1, 6).Draw(t, "users")})
		live := make(map[int]bool)
		t.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) {},
			"take": func(t *rapid.T) {
				uid, err := p.take()
				switch full := len(live) == p.of.Last-p.of.First; {
				case full != (err != nil):
					t.Fatalf("%d of %v are taken: %v", len(live), p.of, err)
				case err != nil:
				case live[uid] || uid <= p.of.First || uid > p.of.Last:
					t.Fatalf("user %d of %v, while there are %v", uid, p.of, live)
				default:
					live[uid] = true
				}
			},
			"adopt": func(t *rapid.T) {
				uid := rapid.IntRange(p.of.First+1, p.of.Last).Draw(t, "uid")
				p.claim(uid)
				live[uid] = true
			},
			"release": func(t *rapid.T) {
				uid := rapid.IntRange(p.of.First+1, p.of.Last).Draw(t, "uid")
				p.release(uid)
				delete(live, uid)
			},
		})
	})
}

// TestUsersWithProcesses checks that a user with processes, known or not, is not given to a guest.
func TestUsersWithProcesses(t *testing.T) {
	if !hasProcesses(os.Getuid()) || hasProcesses(maxUID) {
		t.Error("hasProcesses does not ask the kernel")
	}
	w, err := NewManager(Options{Mode: Off, UIDs: UIDs{First: 5000, Last: 5003}})
	if err != nil {
		t.Fatal(err)
	}
	if w.pool.runs == nil {
		t.Fatal("the pool does not check for processes")
	}
	w.pool.runs = func(uid int) bool { return uid != 5002 }
	if uid, err := w.pool.take(); uid != 5002 || err != nil {
		t.Errorf("user %d, %v", uid, err)
	}
	if uid, err := w.pool.take(); err == nil {
		t.Errorf("user %d has processes", uid)
	}
}

// hierarchy makes a directory that resembles a delegated control group.
func hierarchy(t *testing.T, controllers string) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Join(dir, guestsGroup)} {
		if err := errors.Join(os.MkdirAll(d, 0o755), os.WriteFile(filepath.Join(d, "cgroup.controllers"), []byte(controllers+"\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestGroups(t *testing.T) {
	dir := hierarchy(t, "cpuset cpu io memory pids")
	g, err := newGroups(dir, Limits{MemoryBytes: 1 << 30, CPUWeight: 200})
	if err != nil {
		t.Fatal(err)
	}
	own, err := g.create()
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Dir(own) != filepath.Join(dir, "guests") || !g.has(own) {
		t.Errorf("group %s", own)
	}
	got := make(map[string]string)
	entries, err := os.ReadDir(own)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(own, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		got[e.Name()] = string(b)
	}
	if diff := cmp.Diff(map[string]string{"memory.max": "1073741824", "pids.max": "max", "cpu.weight": "200"}, got); diff != "" {
		t.Errorf("limits (-want +got):\n%s", diff)
	}
	// One group is empty, as an ended guest leaves it; the other is in use, as a directory with
	// files is.
	if err := os.Mkdir(filepath.Join(g.dir, "vm-gone"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := g.sweep(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(g.dir, "vm-gone")); err == nil {
		t.Error("an empty group is left")
	}
	if _, err := newGroups(hierarchy(t, "cpu memory"), Limits{}); err == nil || !strings.Contains(err.Error(), `"pids"`) {
		t.Errorf("without a controller: %v", err)
	}
}

// TestRealGroups checks that the kernel accepts what is written, if this process may make a control
// group of version 2 with these controllers.
func TestRealGroups(t *testing.T) {
	const root = "/sys/fs/cgroup"
	have, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
	if err != nil {
		t.Skip("no unified hierarchy at /sys/fs/cgroup")
	}
	for _, c := range controllers {
		if !strings.Contains(" "+strings.TrimSpace(string(have))+" ", " "+c+" ") {
			t.Skipf("the hierarchy has no controller %q", c)
		}
	}
	dir := filepath.Join(root, "vgpud-test")
	if err := os.Mkdir(dir, 0o755); errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS) {
		t.Skip(err)
	}
	defer unix.Rmdir(dir)
	g, err := newGroups(dir, Limits{MemoryBytes: 1 << 30, Processes: 100})
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Rmdir(g.dir)
	own, err := g.create()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"memory.max": "1073741824", "pids.max": "100"} {
		if b, err := os.ReadFile(filepath.Join(own, name)); strings.TrimSpace(string(b)) != want {
			t.Errorf("%s is %q, %v; want %s", name, b, err, want)
		}
	}
	// Sweeping keeps a group with a process in it; clearing it kills the process.
	sleeper := exec.Command("/bin/sleep", "600")
	if err := Start(sleeper, &ipc.Sandbox{Cgroup: own}); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(own, "cgroup.procs")); strings.TrimSpace(string(b)) != strconv.Itoa(sleeper.Process.Pid) {
		t.Errorf("the group holds %q, %v; want process %d", b, err, sleeper.Process.Pid)
	}
	if err := g.sweep(); err != nil {
		t.Error(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- sleeper.Wait() }()
	if err := clearGroup(own); err != nil {
		t.Error(err)
	}
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("a process of a group that is cleared: %v", err)
	}
}

// TestDelegatedGroup checks that only a group that systemd has marked is used, and only from a
// child of it.
func TestDelegatedGroup(t *testing.T) {
	root := t.TempDir()
	unit := filepath.Join(root, "system.slice", "vgpud.service")
	if err := os.MkdirAll(filepath.Join(unit, "serve"), 0o755); err != nil {
		t.Fatal(err)
	}
	const inside, itself = "1:name=systemd:/x\n0::/system.slice/vgpud.service/serve\n", "0::/system.slice/vgpud.service\n"
	if _, err := delegatedGroup(root, inside); err == nil || !strings.Contains(err.Error(), "Delegate=yes") {
		t.Errorf("not delegated: %v", err)
	}
	if err := unix.Setxattr(unit, delegated, []byte("1"), 0); err != nil {
		t.Skip("no extended attributes here: ", err)
	}
	if dir, err := delegatedGroup(root, inside); dir != unit || err != nil {
		t.Errorf("delegated: %q, %v", dir, err)
	}
	if _, err := delegatedGroup(root, itself); err == nil || !strings.Contains(err.Error(), "DelegateSubgroup=") {
		t.Errorf("the daemon in the delegated group itself: %v", err)
	}
	if _, err := delegatedGroup(root, "4:memory:/x\n"); err == nil {
		t.Error("a process in groups of version 1 alone has a delegated group")
	}
}

func TestDevicesOf(t *testing.T) {
	const information = "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 18\nGPU UUID: \t GPU-%s\nBus Type: \t PCIe\nDevice Minor: \t %s\nGPU Excluded:\t No\n"
	about := func(uuid, minor string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte(strings.Replace(strings.Replace(information, "%s", uuid, 1), "%s", minor, 1))}
	}
	host := fstest.MapFS{
		"proc/driver/nvidia/gpus/0000:00:05.0/information": about("aaaa", "1"),
		"proc/driver/nvidia/gpus/0000:00:06.0/information": about("bbbb", "0"),
	}
	for _, c := range []struct {
		gpu   ipc.GPU
		want  []string
		wrong string
	}{
		{gpu: ipc.GPU{Kind: "soft"}},
		{gpu: ipc.GPU{Kind: "nvidia", Device: "GPU-bbbb"}, want: []string{"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0"}},
		{gpu: ipc.GPU{Kind: "nvidia", Device: "GPU-aaaa"}, want: []string{"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia1"}},
		{gpu: ipc.GPU{Kind: "nvidia", Device: "GPU-cccc"}, wrong: "no NVIDIA GPU GPU-cccc"},
	} {
		got, err := devicesOf(host, c.gpu)
		if diff := cmp.Diff(c.want, got); diff != "" || (c.wrong == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%+v: %v (-want +got):\n%s", c.gpu, err, diff)
		}
	}
	if _, err := devicesOf(fstest.MapFS{}, ipc.GPU{Kind: "nvidia"}); err == nil || !strings.Contains(err.Error(), "driver loaded") {
		t.Errorf("without the driver: %v", err)
	}
}
