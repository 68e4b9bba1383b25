package main

import (
	"testing"

	"vgpud/mediator/libvirt/domain"
)

func TestResolve(t *testing.T) {
	for _, test := range []struct {
		who      domain.Owner
		uid, gid int
		ok       bool
	}{
		{domain.Owner{User: "root", Group: "root"}, 0, 0, true},
		{domain.Owner{User: "root"}, 0, 0, true},
		{domain.Owner{User: "+0", Group: "+0"}, 0, 0, true},
		{domain.Owner{User: "12345", Group: "54321"}, 12345, 54321, true},
		{domain.Owner{User: "+12345"}, 12345, 0, true},
		{domain.Owner{User: "+root"}, 0, 0, false},
		{domain.Owner{User: "root", Group: "+root"}, 0, 0, false},
		{domain.Owner{User: "-1"}, 0, 0, false},
		{domain.Owner{User: "99999999999"}, 0, 0, false},
		{domain.Owner{User: "no such user"}, 0, 0, false},
	} {
		uid, gid, err := resolve(test.who)
		if (err == nil) != test.ok || err == nil && (uid != test.uid || gid != test.gid) {
			t.Errorf("resolve(%+v) = %d, %d, %v, want %d, %d, %v", test.who, uid, gid, err, test.uid, test.gid, test.ok)
		}
	}
}

func TestOwnerWithoutConfiguration(t *testing.T) {
	c := config{QEMUConf: "/nonexistent"}
	if uid, gid, err := c.owner(nil); err != nil || uid < 0 || gid < 0 {
		t.Errorf("owner: %d, %d, %v", uid, gid, err)
	}
	uid, gid, err := c.owner(&domain.Owner{User: "+7", Group: "+8"})
	if uid != 7 || gid != 8 || err != nil {
		t.Errorf("owner of a domain with a label: %d, %d, %v", uid, gid, err)
	}
}
