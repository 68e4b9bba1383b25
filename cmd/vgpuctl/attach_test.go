package main

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"vgpud/mediator/access"
	"vgpud/mediator/api"
	"vgpud/mediator/libvirt/qmp"
)

// serveAPI serves the API until the test ends.
func serveAPI(t *testing.T, h http.Handler) *api.Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: h}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	client := api.NewClient(path)
	t.Cleanup(func() {
		client.Close()
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		<-done
	})
	return client
}

// A virtual GPU that may still be in the VM stays; one without a connected VMM is deleted.
func TestAttachLeavesWhatIsConnected(t *testing.T) {
	h := &fixedHost{vms: []api.VM{{Name: "there", Attached: true}, {Name: "gone"}}}
	client := serveAPI(t, api.Handler(h, api.HandlerOptions{Caller: access.As(access.Operator), Log: slog.New(slog.DiscardHandler)}))
	for name, want := range map[string]string{
		"there": "its virtual GPU there stays until then", "gone": "its virtual GPU gone was not connected and has been deleted", "nobody": "nobody was not connected",
	} {
		err := stillPlugged(t.Context(), client, name, qmp.ErrStillPlugged)
		if !errors.Is(err, qmp.ErrStillPlugged) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if vms := h.VMs(); len(vms) != 1 || vms[0].Name != "there" {
		t.Errorf("left: %+v", vms)
	}
}

// A virtual GPU that the daemon created without answering is deleted.
func TestAttachTakesBackWhatNobodyAnsweredFor(t *testing.T) {
	h := &fixedHost{}
	answers := api.Handler(h, api.HandlerOptions{Caller: access.As(access.Operator), Log: slog.New(slog.DiscardHandler)})
	client := serveAPI(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			if _, err := h.CreateVM(access.As(access.Operator)(r), api.VMSpec{Name: "web1"}); err != nil {
				t.Error(err)
			}
			panic(http.ErrAbortHandler)
		}
		answers.ServeHTTP(w, r)
	}))
	if _, err := create(t.Context(), client, api.VMSpec{Name: "web1"}); err == nil {
		t.Error("made, without an answer")
	}
	if vms := h.VMs(); len(vms) != 0 {
		t.Errorf("left: %+v", vms)
	}
}
