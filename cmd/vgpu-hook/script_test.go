package main

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"vgpud/mediator/access"
	"vgpud/mediator/api"
	"vgpud/mediator/libvirt/domain"
)

var update = flag.Bool("update", false, "write what the scripts in testdata expect anew")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"vgpu-hook": main})
}

// plain is a domain without virtual GPUs.
const plain = `<domain type='kvm'>
  <name>web1</name>
  <uuid>5d4b2f6e-0b0a-4c56-9d3f-6b1f0a0e7c11</uuid>
  <memory unit='KiB'>1048576</memory>
  <os>
    <type arch='x86_64' machine='pc-q35-10.1'>hvm</type>
  </os>
  <seclabel type='static' model='dac'>
    <label>+64055:+109</label>
  </seclabel>
</domain>
`

// TestScripts runs the scripts in testdata, each with a daemon of its own and two domains: one with
// virtual GPUs, web1.xml, and one without, plain.xml.
func TestScripts(t *testing.T) {
	deploy, err := filepath.Abs("../../deploy")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata", UpdateScripts: *update, RequireExplicitExec: true, RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			d, err := startDaemon()
			if err != nil {
				return err
			}
			e.Values[daemonKey{}] = d
			e.Defer(func() {
				if err := d.stop(); err != nil {
					t.Error(err)
				}
			})
			e.Setenv("VGPUD_SOCKET", d.socket)
			e.Setenv("VGPUD_HOOK_CONFIG", filepath.Join(e.WorkDir, "hook.yaml"))
			e.Setenv("VGPUD_NO_SYSLOG", "1")
			e.Setenv("DEPLOY", deploy)
			if err := setUpNova(e, d); err != nil {
				return err
			}
			web1, err := domain.Define([]byte(plain), domain.Devices{
				{Weight: 2, Cap: 0.5, Guarantee: 0.25, PriorityCeiling: 3, Memory: 1 << 30, GPU: "gpu0", KernelTimeLimit: 1e9, BAR2: 64 << 20}, {},
			}, "/run/vgpud")
			return errors.Join(err, os.WriteFile(filepath.Join(e.WorkDir, "web1.xml"), web1, 0o600),
				os.WriteFile(filepath.Join(e.WorkDir, "plain.xml"), []byte(plain), 0o600))
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"replace": replace, "guests": guests, "make": makeGuest, "attach": attach, "requests": requests, "refuse": refuse, "hang": hang, "stop": stop,
			"allocate": allocate, "answer": answer, "arguments": arguments, "directory": directory,
		},
	})
}

type daemonKey struct{}

func daemonOf(ts *testscript.TestScript) *fakeDaemon {
	d, ok := ts.Value(daemonKey{}).(*fakeDaemon)
	if !ok {
		ts.Fatalf("no daemon")
	}
	return d
}

// replace IN OUT OLD NEW… writes a file with each OLD replaced.
func replace(ts *testscript.TestScript, _ bool, args []string) {
	x := ts.ReadFile(args[0])
	for i := 2; i+1 < len(args); i += 2 {
		if !strings.Contains(x, args[i]) {
			ts.Fatalf("no %q in %s", args[i], args[0])
		}
		x = strings.ReplaceAll(x, args[i], args[i+1])
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(x), 0o600))
}

// guests writes what the daemon has been asked to make to guests.txt.
func guests(ts *testscript.TestScript, _ bool, _ []string) {
	var b strings.Builder
	for _, s := range daemonOf(ts).specs() {
		fmt.Fprintf(&b, "%s domain=%s uuid=%s gpu=%s weight=%v cap=%v guarantee=%v priority=%d bar2=%d memory=%d limit=%v\n",
			s.Name, s.Domain, s.DomainUUID, s.GPU, s.Weight, s.Cap, s.Guarantee, s.PriorityCeiling, s.BAR2Bytes, s.MemoryLimitBytes, s.KernelTimeLimit)
		if s.Engine != "" {
			fmt.Fprintf(&b, "    engine=%s owner=%s project=%s budget=%v\n", s.Engine, s.Owner, s.Project, s.Budget)
			continue
		}
		if s.UID != nil && s.GID != nil && s.Peer != nil {
			fmt.Fprintf(&b, "    socket=%s owner=%d:%d peer=%s\n", s.Socket, *s.UID, *s.GID, s.Peer.PIDFile)
		}
	}
	ts.Check(os.WriteFile(ts.MkAbs("guests.txt"), []byte(b.String()), 0o600))
}

// make NAME UUID makes a guest that is there already.
func makeGuest(ts *testscript.TestScript, _ bool, args []string) {
	d := daemonOf(ts)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.vms = append(d.vms, &fakeVM{spec: api.VMSpec{Name: args[0], DomainUUID: args[1]}})
}

// attach NAME has a VMM connect to a guest.
func attach(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(daemonOf(ts).attach(args[0]))
}

// requests N is how many the daemon has had.
func requests(ts *testscript.TestScript, _ bool, args []string) {
	if got := fmt.Sprint(daemonOf(ts).requests.Load()); got != args[0] {
		ts.Fatalf("%s requests, want %s", got, args[0])
	}
}

// refuse N has the daemon refuse the N-th guest that it is asked for from now.
func refuse(ts *testscript.TestScript, _ bool, args []string) {
	d := daemonOf(ts)
	d.mu.Lock()
	defer d.mu.Unlock()
	_, err := fmt.Sscan(args[0], &d.refuse)
	ts.Check(err)
}

// hang has the daemon not answer when it is asked for a guest.
func hang(ts *testscript.TestScript, _ bool, _ []string) { daemonOf(ts).hang.Store(true) }

// stop ends the daemon.
func stop(ts *testscript.TestScript, _ bool, _ []string) { ts.Check(daemonOf(ts).stop()) }

// startDaemon serves the API of a fake host.
func startDaemon() (*fakeDaemon, error) {
	// Paths of sockets are short.
	dir, err := os.MkdirTemp("", "vgpu-hook-")
	if err != nil {
		return nil, err
	}
	d := &fakeDaemon{dir: dir, socket: filepath.Join(dir, "vgpud.sock"), quit: make(chan struct{}), done: make(chan error, 1)}
	l, err := net.Listen("unix", d.socket)
	if err != nil {
		return nil, err
	}
	h := api.Handler(d, api.HandlerOptions{Caller: access.As(access.Operator), Log: slog.New(slog.DiscardHandler)})
	d.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.requests.Add(1)
		h.ServeHTTP(w, r)
	})}
	go func() { d.done <- d.server.Serve(l) }()
	return d, nil
}
