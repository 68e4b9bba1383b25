package daemon

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"

	"vgpud/mediator/access"
	"vgpud/mediator/api"
	"vgpud/mediator/web"
)

// checkWeb returns an error if the page's address is one that other machines reach, since everybody
// who reaches it may read.
func checkWeb(address string) error {
	if address == "" {
		return nil
	}
	name, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("web %q: want an address and a port, such as 127.0.0.1:9877: %w", address, api.ErrInvalid)
	}
	if !web.Loopback(name) {
		return fmt.Errorf("web %q: want an address of this machine alone, such as 127.0.0.1:%s, since everybody who reaches it may read: %w", address, port, api.ErrInvalid)
	}
	return nil
}

// newPage returns the page, for the callers that caller names.
func (s *Service) newPage(caller func(*http.Request) access.Caller) http.Handler {
	name, err := os.Hostname()
	if err != nil {
		s.log.Warn("the page does not name the host", "err", err)
	}
	return web.Handler(web.Options{Recorder: s.recorder, Caller: caller, Host: name, Log: s.log})
}

// withPage serves the page beside the API, for the same callers.
func (s *Service) withPage(h http.Handler, caller func(*http.Request) access.Caller) http.Handler {
	if s.recorder == nil {
		return h
	}
	mux := http.NewServeMux()
	page := s.newPage(caller)
	mux.Handle("/{$}", page)
	mux.Handle("/page/", page)
	mux.Handle("/", h)
	return mux
}

// anybody is the caller of whoever reaches the page's own address.
func anybody(r *http.Request) access.Caller {
	return access.Caller{Role: access.Viewer, Address: r.RemoteAddr, Part: "the page"}
}

// listenPage opens the page's own address, if one is configured.
func (s *Service) listenPage() (net.Listener, error) {
	if s.o.Config.Web == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", s.o.Config.Web)
	if err != nil {
		return nil, fmt.Errorf("listen for readers of the page: %w", err)
	}
	return access.Limit(l), nil
}

// servePage answers readers of the page on its own address. They are viewers.
func (s *Service) servePage(l net.Listener, h http.Handler, fail func(error)) *http.Server {
	server := api.NewServer(web.Guard(s.withPage(h, anybody), web.Loopback), s.log)
	s.wg.Go(func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			fail(fmt.Errorf("serve the page: %w", err))
		}
	})
	return server
}
