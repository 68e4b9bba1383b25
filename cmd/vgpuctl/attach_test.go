package main

import (
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"vgpud/mediator/api"
)

// A virtual GPU that the daemon made, and whose answer was lost, is taken back.
func TestAttachTakesBackWhatNobodyAnsweredFor(t *testing.T) {
	h := &fixedHost{}
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	answers := api.Handler(h, nil, slog.New(slog.DiscardHandler))
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			if _, err := h.CreateVM(api.VMSpec{Name: "web1"}); err != nil {
				t.Error(err)
			}
			panic(http.ErrAbortHandler)
		}
		answers.ServeHTTP(w, r)
	})}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	client := api.NewClient(path)
	if _, err := create(t.Context(), client, api.VMSpec{Name: "web1"}); err == nil {
		t.Error("made, without an answer")
	}
	if vms := h.VMs(); len(vms) != 0 {
		t.Errorf("left: %+v", vms)
	}
	client.Close()
	if err := server.Close(); err != nil {
		t.Error(err)
	}
	<-done
}
