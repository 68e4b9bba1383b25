// Package api is the daemon's interface to programs and people: HTTP and JSON, over a unix socket and,
// where that is configured, over TLS. Package access gives callers their roles; each route says which
// role it needs. openapi.yaml describes the routes; a test compares that page with them.
//
// The package has three parts: the types, the [Handler] that serves a [Host], and the [Client].
package api
