package main

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"vgpud/mediator/access"
	"vgpud/mediator/access/accesstest"
	"vgpud/mediator/api"
	"vgpud/mediator/daemon"
)

// serveTLS has a script's daemon answer over TLS, too, as a daemon does whose operator is the
// certificate ops and whose viewer is watcher. In the script, TLS is its address, PLAIN one that
// speaks no TLS, CLOSED one where nobody listens, and certs has certificates of its authority and,
// under others, of another one.
func serveTLS(t *testing.T, e *testscript.Env, h api.Host) error {
	dir := filepath.Join(e.WorkDir, "certs")
	others := filepath.Join(dir, "others")
	if err := os.MkdirAll(others, 0o755); err != nil {
		return err
	}
	ours := accesstest.NewAuthority(t, dir)
	for i, name := range []string{"server", "ops", "watcher", "nobody"} {
		ours.Issue(name, int64(10+i))
	}
	ours.IssueUntil("late", 20, time.Now().Add(-time.Hour))
	accesstest.NewAuthority(t, others).Issue("ops", 11)
	config := daemon.TLSConfig{Cert: ours.File("server.pem"), Key: ours.File("server.key"), ClientCA: ours.File("ca.pem")}
	tlsConfig, err := config.Load()
	if err != nil {
		return err
	}
	who := access.Config{Operators: access.Subjects{Certificates: []string{"cn:ops"}}, Viewers: access.Subjects{Certificates: []string{"cn:watcher"}}}
	rules, err := who.Rules()
	if err != nil {
		return err
	}
	var listeners [3]net.Listener
	for i, name := range []string{"TLS", "PLAIN", "CLOSED"} {
		if listeners[i], err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return err
		}
		e.Setenv(name, listeners[i].Addr().String())
	}
	if err := listeners[2].Close(); err != nil {
		return err
	}
	log := slog.New(slog.DiscardHandler)
	handler := api.Handler(h, api.HandlerOptions{Caller: rules.Caller, Events: fixedEvents(), Log: log})
	for _, l := range []net.Listener{tls.NewListener(listeners[0], tlsConfig), listeners[1]} {
		s := api.NewServer(handler, log)
		done := make(chan error, 1)
		go func() { done <- s.Serve(l) }()
		e.Defer(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if err := <-done; !errors.Is(err, http.ErrServerClosed) {
				t.Error(err)
			}
		})
	}
	return nil
}
