// Package api is how programs and people ask the daemon: HTTP and JSON over a
// unix socket that only its owner may use. openapi.yaml describes it; a test
// holds that page against the routes.
//
// The package has three parts: the types that travel, the [Handler] that serves
// them from a [Host], and the [Client] that asks.
package api
