package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"vgpud/mediator/api"
	"vgpud/mediator/nova"
	"vgpud/mediator/nova/placement/placementtest"
	"vgpud/mediator/nova/reservation"
)

var update = flag.Bool("update", false, "write what the scripts in testdata expect anew")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"vgpu-placement": main})
}

const node = "0c8bd1e8-7a4b-4a45-9d3b-4f4a1d2b3c4d"

type serverKey struct{}

// TestScripts runs the scripts in testdata, each with a Placement and a daemon of its own: host1 with
// two GPUs, gpu1 with a guest that somebody made and one of Nova's.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata", UpdateScripts: *update, RequireExplicitExec: true, RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			s := placementtest.New()
			s.AddProvider(nova.Provider{UUID: node, Name: "host1"})
			h := httptest.NewServer(s)
			e.Defer(h.Close)
			e.Values[serverKey{}] = s
			e.Setenv("KEYSTONE", h.URL+"/v3")
			// Paths of sockets are short.
			dir, err := os.MkdirTemp("", "vgpu-placement-")
			if err != nil {
				return err
			}
			e.Defer(func() {
				if err := os.RemoveAll(dir); err != nil {
					t.Error(err)
				}
			})
			e.Setenv("SOCKET", filepath.Join(dir, "vgpud.sock"))
			if err := serveDaemon(e, filepath.Join(dir, "vgpud.sock")); err != nil {
				return err
			}
			config := fmt.Sprintf("keystone: {url: %q, username: vgpud, password_file: %q}\nhost: host1\ncompute_id_file: /nonexistent\nsocket: %q\nstate_dir: %q\npoll: 10ms\nagent_socket: %q\n",
				h.URL+"/v3", filepath.Join(e.WorkDir, "password"), filepath.Join(dir, "vgpud.sock"), e.WorkDir, filepath.Join(dir, "agent.sock"))
			e.Setenv("AGENT", filepath.Join(dir, "agent.sock"))
			return errors.Join(os.WriteFile(filepath.Join(e.WorkDir, "placement.yaml"), []byte(config), 0o600),
				os.WriteFile(filepath.Join(e.WorkDir, "password"), []byte(placementtest.Password+"\n"), 0o600))
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"providers": providersOf, "offered": offered, "allocate": allocate, "same": same, "change": change, "reserve": reserve, "room": room},
	})
}

// serveDaemon serves what the agent asks of a daemon.
func serveDaemon(e *testscript.Env, socket string) error {
	answers := map[string]any{
		"/v1/health": api.Health{Version: "test", Healthy: true},
		"/v1/gpus": []api.GPU{
			{Name: "gpu0", Kind: "soft", Model: "Soft", MemoryBytes: 16 << 30, Healthy: true, Cordoned: true},
			{Name: "gpu1", Kind: "soft", Model: "Soft", MemoryBytes: 16 << 30, Healthy: true, EventKernels: true},
		},
		"/v1/vms": []api.VM{
			{Name: "local", GPU: "gpu1", Weight: 10, MemoryLimitBytes: 1 << 30},
			{Name: "instance-00000001", GPU: "gpu1", Weight: 25, Guarantee: 0.25, MemoryLimitBytes: 2 << 30, Engine: nova.EngineNova, DomainUUID: "5d4b2f6e-0b0a-4c56-9d3f-6b1f0a0e7c11"},
		},
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, ok := answers[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		if err := json.NewEncoder(w).Encode(v); err != nil {
			panic(err)
		}
	})}
	go func() { _ = server.Serve(l) }() // until Close
	e.Defer(func() { _ = server.Close() })
	return nil
}

func placementOf(ts *testscript.TestScript) *placementtest.Server {
	s, ok := ts.Value(serverKey{}).(*placementtest.Server)
	if !ok {
		ts.Fatalf("no Placement")
	}
	return s
}

// providers writes what Placement has to providers.txt.
func providersOf(ts *testscript.TestScript, _ bool, _ []string) {
	var b strings.Builder
	for _, p := range placementOf(ts).Providers() {
		share, memory := p.Inventories[nova.ClassShare], p.Inventories[nova.ClassMemory]
		fmt.Fprintf(&b, "%s: %d-%d shares, %d-%d MiB, %s\n", p.Name, share.Total, share.Reserved, memory.Total, memory.Reserved, strings.Join(p.Traits, " "))
	}
	ts.Check(os.WriteFile(ts.MkAbs("providers.txt"), []byte(b.String()), 0o600))
}

// offered waits until Placement has both GPUs.
func offered(ts *testscript.TestScript, _ bool, _ []string) {
	await(ts, func(s *placementtest.Server) bool {
		n := 0
		for _, p := range s.Providers() {
			n += len(p.Inventories)
		}
		return n == 4
	})
}

// await waits until something holds of Placement, which can only come to hold with a request.
func await(ts *testscript.TestScript, holds func(s *placementtest.Server) bool) {
	s := placementOf(ts)
	limit := time.After(2 * time.Minute) // ends a failed test only
	for {
		next := s.Answered()
		if holds(s) {
			return
		}
		select {
		case <-next:
		case <-limit:
			ts.Fatalf("Placement has %+v", s.Providers())
		}
	}
}

// allocate gives the instance its allocation on a GPU.
func allocate(ts *testscript.TestScript, _ bool, args []string) {
	placementOf(ts).Allocate("5d4b2f6e-0b0a-4c56-9d3f-6b1f0a0e7c11", nova.ProviderUUID(node, args[0]), map[string]int{nova.ClassShare: 25, nova.ClassMemory: 2048})
}

// same checks that no request since the last call changed anything.
func same(ts *testscript.TestScript, _ bool, _ []string) {
	for _, r := range placementOf(ts).TakeRequests() {
		if !strings.HasPrefix(r, "GET ") {
			ts.Fatalf("%s", r)
		}
	}
}

// change IN OUT OLD NEW writes a file with OLD replaced.
func change(ts *testscript.TestScript, _ bool, args []string) {
	x := ts.ReadFile(args[0])
	if !strings.Contains(x, args[2]) {
		ts.Fatalf("no %q in %s", args[2], args[0])
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(strings.ReplaceAll(x, args[2], args[3])), 0o600))
}

// reserve GPU SHARES asks the agent for a guest that Nova does not place; "! reserve" checks that
// they are sold.
func reserve(ts *testscript.TestScript, not bool, args []string) {
	var shares float64
	_, err := fmt.Sscan(args[1], &shares)
	ts.Check(err)
	err = reservation.Client{Socket: ts.Getenv("AGENT")}.Reserve(context.Background(), reservation.Request{Guest: "g" + args[1], GPU: args[0], Weight: shares, MemoryLimitBytes: 1 << 30})
	if not != errors.Is(err, reservation.ErrSold) || !not && err != nil {
		ts.Fatalf("%v", err)
	}
}

// room GPU SHARES waits until so many shares are not reserved.
func room(ts *testscript.TestScript, _ bool, args []string) {
	await(ts, func(s *placementtest.Server) bool {
		p, ok := s.Provider(nova.ProviderUUID(node, args[0]))
		i := p.Inventories[nova.ClassShare]
		return ok && fmt.Sprint(i.Total-i.Reserved) == args[1]
	})
}
