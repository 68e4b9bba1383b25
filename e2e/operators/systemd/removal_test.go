package systemd

import "testing"

// TestRemoval: the package's removal ends the guests' virtual GPUs, which would go on without the daemon,
// also when no daemon runs.
func TestRemoval(t *testing.T) {
	m := boot(t)
	m.run(t, patient)
	remove := func(before string) {
		t.Helper()
		m.run(t, "dpkg --force-unsafe-io -i "+packagesDir+"/new.deb; systemctl start vgpud-softgpu@gpu0 vgpud; vgpuctl create vm web1; "+before)
		m.run(t, "pgrep -a -x vgpud | grep ' vm$'")
		m.run(t, "dpkg -r vgpud; while pgrep -a -x vgpud; do sleep 0.5; done")
	}
	remove("")
	m.run(t, `journalctl --no-pager -u vgpud -o cat | grep 'msg="guest deleted".*guest=web1'`)
	remove("systemctl stop vgpud")
}
