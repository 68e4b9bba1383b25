package instance

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"vgpud/mediator/capacity"
	"vgpud/mediator/libvirt/domain"
	"vgpud/mediator/nova"
)

const uuid = "22222222-2222-4222-8222-222222222222"

var at = time.Date(2026, 11, 29, 9, 0, 0, 0, time.UTC)

func TestKnown(t *testing.T) {
	k := Known{Dir: filepath.Join(t.TempDir(), "known")}
	if _, _, err := k.Recall(uuid); !errors.Is(err, errUnknown) {
		t.Errorf("of an instance that was never seen: %v", err)
	}
	grants := []nova.Grant{{GPU: "gpu1", Share: 60, MemoryMiB: 2048}}
	for _, want := range [][]nova.Grant{grants, nil, grants} {
		if err := k.Remember(uuid, want, at); err != nil {
			t.Fatal(err)
		}
		got, when, err := k.Recall(uuid)
		if diff := cmp.Diff(want, got); diff != "" || err != nil || !when.Equal(at) {
			t.Errorf("Recall: %v, %v (-want +got):\n%s", when, err, diff)
		}
	}
	for _, bad := range []string{"", "../x", uuid + "/..", strings.ToUpper("a" + uuid[1:])} {
		if err := k.Remember(bad, grants, at); err == nil {
			t.Errorf("remembered %q", bad)
		}
		if _, _, err := k.Recall(bad); err == nil {
			t.Errorf("recalled %q", bad)
		}
	}
	// A link is not followed.
	if err := errors.Join(os.Remove(k.path(uuid)), os.Symlink("/etc/passwd", k.path(uuid))); err != nil {
		t.Fatal(err)
	}
	if _, _, err := k.Recall(uuid); err == nil || !strings.Contains(err.Error(), "link") {
		t.Errorf("Recall of a link: %v", err)
	}
}

// TestKnownIsBounded: the instances of years do not fill the disk, and those that started last stay.
func TestKnownIsBounded(t *testing.T) {
	k := Known{Dir: t.TempDir(), Most: 3}
	id := func(n int) string { return fmt.Sprintf("%08d", n) + uuid[8:] }
	for n := range 10 {
		if err := k.Remember(id(n), nil, at); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(k.path(id(n)), at, at.Add(time.Duration(n)*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(k.Dir)
	if err != nil || len(entries) != 3 {
		t.Errorf("%d files, %v", len(entries), err)
	}
	if _, _, err := k.Recall(id(9)); err != nil {
		t.Error(err)
	}
}

func TestTerms(t *testing.T) {
	g := nova.Grant{GPU: "gpu1", Share: 25, MemoryMiB: 4096}
	base := domain.GPU{GPU: "gpu1", Memory: 4 << 30, Weight: 25, Guarantee: 0.25}
	flavors := Flavors{"small": {"cap": "0.5", "priority": "2"}}
	for name, test := range map[string]struct {
		v     domain.Instance
		share Share
		want  func(*domain.GPU)
		err   string
	}{
		"both":           {share: ShareBoth, want: func(*domain.GPU) {}},
		"weight":         {share: ShareWeight, want: func(g *domain.GPU) { g.Guarantee = 0 }},
		"guarantee":      {share: ShareGuarantee, want: func(g *domain.GPU) { g.Weight = 0 }},
		"another flavor": {v: domain.Instance{Flavor: "large"}, share: ShareBoth, want: func(*domain.GPU) {}},
		"flavor":         {v: domain.Instance{Flavor: "small"}, share: ShareBoth, want: func(g *domain.GPU) { g.Cap, g.PriorityCeiling = 0.5, 2 }},
		"extra specs": {v: domain.Instance{Flavor: "small", ExtraSpecs: map[string]string{"vgpud:priority": "7", "hw:cpu_policy": "shared"}},
			share: ShareBoth, want: func(g *domain.GPU) { g.PriorityCeiling = 7 }},
		"no extra specs": {v: domain.Instance{Flavor: "small", ExtraSpecs: map[string]string{}}, share: ShareBoth, want: func(*domain.GPU) {}},
		"cap below the share": {v: domain.Instance{ExtraSpecs: map[string]string{"vgpud:cap": "0.1"}}, share: ShareBoth,
			err: "a guarantee of 0.25 is more than the cap"},
		"cap below the weight alone": {v: domain.Instance{ExtraSpecs: map[string]string{"vgpud:cap": "0.1"}}, share: ShareWeight,
			want: func(g *domain.GPU) { g.Guarantee, g.Cap = 0, 0.1 }},
		"what Placement promises": {v: domain.Instance{ExtraSpecs: map[string]string{"vgpud:memory": "1TiB"}}, share: ShareBoth, err: "not known"},
		"nonsense":                {v: domain.Instance{ExtraSpecs: map[string]string{"vgpud:priority": "-1"}}, share: ShareBoth, err: "vgpud:priority"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Terms(g, &test.v, test.share, flavors)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("Terms: %+v, %v, want %q", got, err, test.err)
				}
				return
			}
			want := base
			test.want(&want)
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("Terms: %v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// TestSharesAddUp: what Placement can have sold of one GPU, the daemon can guarantee.
func TestSharesAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		left, guarantees, weights := capacity.Shares, 0.0, 0.0
		for left > 0 {
			g := nova.Grant{GPU: "gpu0", Share: rapid.IntRange(1, left).Draw(t, "share"), MemoryMiB: 1}
			left -= g.Share
			gpu, err := Terms(g, &domain.Instance{}, ShareBoth, nil)
			if err != nil {
				t.Fatal(err)
			}
			guarantees, weights = guarantees+gpu.Guarantee, weights+gpu.Weight
		}
		if guarantees > 1+1e-9 || weights != capacity.Shares { // the daemon's own tolerance
			t.Fatalf("guarantees of %v, weights of %v", guarantees, weights)
		}
	})
}

// runDir returns a daemon's directory with the domain's in it.
func runDir(t *testing.T) (string, string) {
	t.Helper()
	run := t.TempDir()
	dir := filepath.Join(run, "domains", uuid)
	if err := os.MkdirAll(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return run, dir
}

func TestArguments(t *testing.T) {
	run, dir := runDir(t)
	a := Arguments{RunDir: run, UUID: uuid}
	path := filepath.Join(dir, "qemu.args")
	for _, args := range [][]string{{"-device", `{"a":"b c"}`}, {"-x"}} { // the second replaces the first
		if err := a.Write(args, os.Getegid()); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		if err != nil || string(b) != strings.Join(args, "\n")+"\n" {
			t.Errorf("wrote %q, %v", b, err)
		}
	}
	if st, err := os.Stat(path); err != nil || st.Mode() != 0o640 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	if err := errors.Join(a.Remove(), a.Remove(), os.Remove(dir), a.Remove()); err != nil {
		t.Errorf("remove: %v", err)
	}
	if err := a.Write([]string{"-x"}, os.Getegid()); err == nil {
		t.Error("wrote without the domain's directory")
	}
	if err := (Arguments{RunDir: filepath.Join(run, "none"), UUID: uuid}).Remove(); err != nil {
		t.Errorf("without a daemon: %v", err)
	}
}

func TestArgumentsRefused(t *testing.T) {
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, []byte("as it was"), 0o600); err != nil {
		t.Fatal(err)
	}
	elsewhere := t.TempDir()
	for name, test := range map[string]struct {
		plant func(dir string) error
		args  []string
		ok    bool
	}{
		"a line's end":     {args: []string{"-device\n-monitor"}},
		"a zero":           {args: []string{"-x\x00"}},
		"nothing":          {args: []string{""}},
		"others may write": {plant: func(dir string) error { return os.Chmod(dir, 0o733) }},
		"a file":           {plant: func(dir string) error { return errors.Join(os.Remove(dir), os.WriteFile(dir, nil, 0o600)) }},
		"a link":           {plant: func(dir string) error { return errors.Join(os.Remove(dir), os.Symlink(elsewhere, dir)) }},
		"a link of domains": {plant: func(dir string) error {
			domains := filepath.Dir(dir)
			return errors.Join(os.RemoveAll(domains), os.Mkdir(filepath.Join(elsewhere, uuid), 0o711), os.Symlink(elsewhere, domains))
		}},
		"links in the place of files": {ok: true, plant: func(dir string) error {
			return errors.Join(os.Symlink(victim, filepath.Join(dir, "qemu.args")), os.Symlink(victim, filepath.Join(dir, "qemu.args.new")))
		}},
		"of another user": {plant: func(dir string) error {
			if os.Geteuid() != 0 {
				return os.Chmod(dir, 0o733) // only root can give it away
			}
			return os.Chown(dir, 1, 1)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			run, dir := runDir(t)
			if test.plant != nil {
				if err := test.plant(dir); err != nil {
					t.Fatal(err)
				}
			}
			args := test.args
			if args == nil {
				args = []string{"-x"}
			}
			if err := (Arguments{RunDir: run, UUID: uuid}).Write(args, os.Getegid()); (err == nil) != test.ok {
				t.Errorf("Write: %v", err)
			}
			if b, err := os.ReadFile(victim); err != nil || string(b) != "as it was" {
				t.Errorf("elsewhere %q was written, %v", b, err)
			}
			if _, err := os.Stat(filepath.Join(elsewhere, "qemu.args")); err == nil {
				t.Error("written through a link")
			}
		})
	}
	if err := (Arguments{RunDir: elsewhere, UUID: "../" + uuid}).Write([]string{"-x"}, 0); err == nil {
		t.Error("wrote for a UUID that is a path")
	}
}
