package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vgpud/mediator/nova/placement"
)

// TestShippedConfig reads the installed configuration with all keys uncommented.
func TestShippedConfig(t *testing.T) {
	b, err := os.ReadFile("../../deploy/placement.yaml")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "placement.yaml")
	if err := os.WriteFile(path, regexp.MustCompile(`(?m)^#( *[a-z_]+:)`).ReplaceAll(b, []byte("$1")), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := placement.ReadConfig(path)
	if err != nil {
		t.Fatal(err)
	}
	want := placement.Config{
		Keystone: placement.Keystone{
			URL: "http://controller:5000/v3", Username: "vgpud", UserDomain: "Default", Project: "service", ProjectDomain: "Default",
			PasswordFile: "/etc/vgpud/placement.password", Region: "RegionOne", Interface: "internal",
		},
		Endpoint: "http://controller:8778", CAFile: "/etc/ssl/certs/ca-certificates.crt", Timeout: 5 * time.Second,
		ComputeIDFile: "/var/lib/nova/compute_id", Host: "compute1.example.org", ComputeNode: "0c8bd1e8-7a4b-4a45-9d3b-4f4a1d2b3c4d",
		Socket: "/run/vgpud/vgpud.sock", StateDir: "/var/lib/vgpu-placement", Metrics: "127.0.0.1:9878", AgentSocket: "/run/vgpu-placement/agent.sock",
		Poll: time.Second, Heartbeat: time.Minute, DaemonGrace: 10 * time.Second,
	}
	want.Keep.Share, want.Keep.MemoryMiB = 10, 512
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("shipped configuration (-want +got):\n%s", diff)
	}
}
