// Package api is the daemon's interface to programs and people: HTTP and JSON over a unix socket
// that only its owner may use. openapi.yaml describes it; a test compares that page with the
// routes.
//
// The package has three parts: the types, the [Handler] that serves a [Host], and the [Client].
package api
