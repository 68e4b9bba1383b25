package api

import (
	"log/slog"
	"net/http"
	"time"

	"vgpud/mediator/access"
)

// Bounds of one connection. A caller that is slower is disconnected.
const (
	maxHeaderBytes = 16 << 10
	headerLimit    = 10 * time.Second // for a request's header, and for the handshake under TLS
	bodyLimit      = 30 * time.Second // for a whole request
	answerLimit    = 2 * time.Minute  // for carrying it out and taking the answer
	idleLimit      = 2 * time.Minute  // between two requests
)

// NewServer returns an HTTP server with bounds, for listeners of [access.Limit].
func NewServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: h, ConnContext: access.ConnContext,
		MaxHeaderBytes: maxHeaderBytes, ReadHeaderTimeout: headerLimit, ReadTimeout: bodyLimit, WriteTimeout: answerLimit, IdleTimeout: idleLimit,
		// Anybody who can connect can cause these messages, at any rate.
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}
