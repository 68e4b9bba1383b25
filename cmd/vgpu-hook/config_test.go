package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vgpud/mediator/nova/instance"
)

// TestShippedConfig reads the installed configuration with all keys uncommented.
func TestShippedConfig(t *testing.T) {
	b, err := os.ReadFile("../../deploy/libvirt/hook.yaml")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "hook.yaml")
	if err := os.WriteFile(path, regexp.MustCompile(`(?m)^#( *[a-z_.]+:)`).ReplaceAll(b, []byte("$1")), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(configVariable, path)
	t.Setenv(socketVariable, "")
	got, err := readConfig()
	if err != nil {
		t.Fatal(err)
	}
	want := config{
		Socket: "/run/vgpud/vgpud.sock", User: "libvirt-qemu", Group: "libvirt-qemu", Timeout: 45 * time.Second, RunDir: "/run/vgpud",
		PIDDir: "/run/libvirt/qemu", SaveDir: "/var/lib/libvirt/qemu/save", QEMUConf: "/etc/libvirt/qemu.conf",
		Nova: &novaConfig{
			Placement: "/etc/vgpud/placement.yaml", Share: instance.ShareBoth, EmulatorDir: "/usr/local/bin", StateDir: "/var/lib/vgpud/nova",
			Flavors: instance.Flavors{"gpu.urgent": {"priority": "3"}, "gpu.small": {"cap": "0.5", "budget": "10h/day"}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("shipped configuration (-want +got):\n%s", diff)
	}
	t.Setenv(configVariable, filepath.Join(t.TempDir(), "none.yaml"))
	if got, err = readConfig(); err != nil {
		t.Fatal(err)
	}
	want.User, want.Group = "", "" // found out for each domain
	want.Nova = nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
}

// TestNovaDefaults: an empty section turns Nova's mode on.
func TestNovaDefaults(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hook.yaml")
	if err := os.WriteFile(path, []byte("nova: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(configVariable, path)
	c, err := readConfig()
	want := &novaConfig{Placement: "/etc/vgpud/placement.yaml", Share: instance.ShareBoth, EmulatorDir: "/usr/local/bin", StateDir: "/var/lib/vgpud/nova"}
	if diff := cmp.Diff(want, c.Nova); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestLimit(t *testing.T) {
	c := config{Timeout: defaultTimeout}
	for gpus, want := range map[int]time.Duration{0: 45 * time.Second, 1: 45 * time.Second, 2: time.Minute, 16: 270 * time.Second} {
		if got := c.limit(gpus); got != want {
			t.Errorf("%d virtual GPUs: %v, want %v", gpus, got, want)
		}
	}
}
