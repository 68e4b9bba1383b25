package systemd

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"vgpud/e2e/operators"
)

// maxLeftOff is how many of systemd's settings that harden a service the unit may leave off.
const maxLeftOff = 5

// settings are those that the unit leaves off, but for RestrictRealtime=, of which the VM does not show
// what it breaks: the value that turns each on, and what the journal, vgpuctl or a connection to the page says then.
var settings = map[string]struct{ on, fails string }{
	"ProtectControlGroups": {"yes", `control groups of their own.*read-only file system`},
	"PrivateUsers":         {"yes", `lchown /run/vgpud/gpu0.sock: invalid argument`},
	"PrivateNetwork":       {"yes", `(?i)connection refused`},
	"ProcSubset":           {"pid", `actions_avail: no such file or directory`},
}

// leftOff: the unit names each setting that it leaves off, and with any of them the service fails in
// some way.
func (m *machine) leftOff(t *testing.T) {
	unit, err := os.ReadFile(filepath.Join(operators.Tree, "deploy/vgpud.service"))
	if err != nil {
		t.Fatal(err)
	}
	var named []string
	for _, match := range regexp.MustCompile(`(?m)^# (\w+)= +\S.*: E[A-Z]+$`).FindAllSubmatch(unit, -1) {
		named = append(named, string(match[1]))
	}
	slices.Sort(named)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(settings)), named); diff != "" || len(named)+1 > maxLeftOff {
		t.Errorf("settings that are tried here (-) and that the unit names as left off (+), at most %d:\n%s", maxLeftOff, diff)
	}
	m.run(t, "sed -i 's/^# web:/web:/' /etc/vgpud/vgpud.yaml; systemctl stop vgpud")
	for name, s := range settings {
		if out := m.with(t, name, s.on); !regexp.MustCompile(s.fails).MatchString(out) {
			t.Errorf("with %s=%s nothing says %q, so it need not be off:\n%s", name, s.on, s.fails, out)
		}
	}
	if out := m.with(t, "", ""); regexp.MustCompile(`Connection refused|not permitted|missing=`).MatchString(out) {
		t.Errorf("as the unit is, something fails, too:\n%s", out)
	}
}

// with starts the daemon with a setting in addition to the unit's, tries what the service is for, and
// returns what it and the daemon's journal say. Then it stops the daemon.
func (m *machine) with(t *testing.T, setting, value string) string {
	t.Helper()
	line := ""
	if setting != "" {
		line = setting + "=" + value
	}
	return m.run(t, `
mkdir -p /run/systemd/system/vgpud.service.d
printf '[Service]\nRestart=no\n%s\n' '`+line+`' >/run/systemd/system/vgpud.service.d/try.conf
systemctl daemon-reload
echo "--- start"
systemctl start vgpud || true
vgpuctl get gpus -o json | grep real_time || true
vgpuctl create vm try || true
vgpuctl delete vm try --force || true
bash -c 'echo </dev/tcp/127.0.0.1/9877' || true
echo "--- journal"
journalctl --no-pager -o cat _SYSTEMD_INVOCATION_ID=$(systemctl show -P InvocationID vgpud)
systemctl stop vgpud
systemctl reset-failed vgpud || true`)
}
