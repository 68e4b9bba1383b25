package daemon

import (
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"vgpud/mediator/access"
)

// TestSocketFollowsItsGroup: the API's socket is its owner's alone, or the configured group's too,
// also after a reload.
func TestSocketFollowsItsGroup(t *testing.T) {
	d := startDaemon(t, runDir(t))
	check := func(mode uint32, gid int) {
		t.Helper()
		var st unix.Stat_t
		if err := unix.Stat(d.config.Socket, &st); err != nil {
			t.Fatal(err)
		}
		if st.Mode&0o777 != mode || int(st.Gid) != gid {
			t.Errorf("the socket has mode %o and group %d, want %o and %d", st.Mode&0o777, st.Gid, mode, gid)
		}
	}
	check(0o600, os.Getegid())
	group := os.Getegid()
	if os.Geteuid() == 0 {
		group = 54321 // root may give it to any group
	}
	config := d.config
	config.Access = access.Config{Group: strconv.Itoa(group)}
	if _, err := d.service.Reload(config); err != nil {
		t.Fatal(err)
	}
	check(0o660, group)
	bad := d.config
	bad.Access = access.Config{Group: "no-such-group"}
	if _, err := d.service.Reload(bad); err == nil {
		t.Error("a group that does not exist is accepted")
	}
	check(0o660, group)
	if _, err := d.service.Reload(d.config); err != nil {
		t.Fatal(err)
	}
	check(0o600, os.Getegid())
}
