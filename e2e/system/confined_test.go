package system

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"vgpud/e2e/host"
	"vgpud/e2e/proc"
	"vgpud/mediator/api"
)

// statusOf returns the named lines of the status of a process or thread in /proc.
func statusOf(t *testing.T, path string, names ...string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path, "status"))
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		for _, want := range names {
			if name == want {
				got[name] = strings.Join(strings.Fields(value), " ")
			}
		}
	}
	return got
}

// TestGuestsAreConfined checks that two guests at work are two users without rights, whose
// executors' threads all have a filter; and that a daemon started later gives neither of these
// users to a third guest.
func TestGuestsAreConfined(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can have processes of other users")
	}
	h := host.Start(t, "none")
	health, err := h.Client.Health(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, missing := range health.Unconfined {
		// Another test covers what this machine's kernel and service manager don't provide.
		if !strings.HasPrefix(missing, "control groups") {
			t.Fatalf("guests are not confined: %v", health.Unconfined)
		}
	}
	users := make(map[string]string)
	for _, name := range []string{"a", "b"} {
		mem, err := newContext(t, h, api.VMSpec{Name: name}).Alloc(t.Context(), 1<<10)
		if err != nil || mem == 0 {
			t.Fatal(mem, err)
		}
		v := h.VM(name)
		uid := strconv.Itoa(v.Confinement.UID)
		if other, taken := users[uid]; taken {
			t.Errorf("%s and %s are both user %s", name, other, uid)
		}
		users[uid] = name
		same := strings.Join([]string{uid, uid, uid, uid}, " ")
		want := map[string]string{"Uid": same, "Gid": same, "CapPrm": "0000000000000000", "NoNewPrivs": "1"}
		if diff := cmp.Diff(want, statusOf(t, fmt.Sprintf("/proc/%d", v.PID), "Uid", "Gid", "CapPrm", "NoNewPrivs")); diff != "" {
			t.Errorf("%s's process (-want +got):\n%s", name, diff)
		}
		want["Seccomp"] = "2" // SECCOMP_MODE_FILTER
		executors, err := proc.Children(v.PID)
		if err != nil || len(executors) != 1 {
			t.Fatalf("%s has executors %v, %v", name, executors, err)
		}
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", executors[0]))
		if err != nil || len(threads) < 2 {
			t.Fatal(threads, err)
		}
		for _, thread := range threads {
			if diff := cmp.Diff(want, statusOf(t, thread, "Uid", "Gid", "CapPrm", "NoNewPrivs", "Seccomp")); diff != "" {
				t.Errorf("%s's executor's thread %s (-want +got):\n%s", name, filepath.Base(thread), diff)
			}
		}
	}
	if err := h.Daemon.Kill(); err != nil {
		t.Fatal(err)
	}
	h.StartDaemon()
	if v := h.NewVM(api.VMSpec{Name: "c"}); users[strconv.Itoa(v.Confinement.UID)] != "" {
		t.Errorf("after a restart c is user %d, as %s is", v.Confinement.UID, users[strconv.Itoa(v.Confinement.UID)])
	}
}
