package placement

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/gophercloud/gophercloud/v2"
)

// Errors of Placement's answers. Errors that wrap none of them mean that it could not be asked.
var (
	// ErrConflict means that a provider has changed since it was read: read it again.
	ErrConflict = errors.New("the provider has changed meanwhile")
	// ErrExists means that another provider has the name, or the UUID.
	ErrExists = errors.New("another provider has the name or the UUID")
	// ErrInUse means that instances have allocations there.
	ErrInUse = errors.New("instances have allocations there")
	// ErrNotFound means that there is no such provider.
	ErrNotFound = errors.New("no such resource provider")
	// ErrRefused means that Placement does not accept a request.
	ErrRefused = errors.New("the request is refused by Placement")
	// ErrDenied means that the credential has not the rights.
	ErrDenied = errors.New("the credential lacks the right")
	// ErrNonsense means an answer that Placement could not have given.
	ErrNonsense = errors.New("the answer is not Placement's")
)

// codes maps the codes of Placement's errors (placement/errors.py) to ours.
var codes = map[string]error{
	"placement.concurrent_update":           ErrConflict,
	"placement.inventory.inuse":             ErrInUse,
	"placement.resource_provider.inuse":     ErrInUse,
	"placement.duplicate_name":              ErrExists,
	"placement.resource_provider.not_found": ErrNotFound,
}

// explain returns the error of an answer.
func (c *Client) explain(doing string, err error) error {
	e, answered := errors.AsType[gophercloud.ErrUnexpectedResponseCode](err)
	if !answered {
		if _, syntax := errors.AsType[*json.SyntaxError](err); syntax {
			return fmt.Errorf("%s: %w: %w", doing, ErrNonsense, err)
		}
		if _, kind := errors.AsType[*json.UnmarshalTypeError](err); kind {
			return fmt.Errorf("%s: %w: %w", doing, ErrNonsense, err)
		}
		return fmt.Errorf("%s: %w", doing, err)
	}
	if e.Actual == http.StatusUnauthorized || e.Actual == http.StatusForbidden {
		return fmt.Errorf("%s: %w to do that: it needs the role service, or the rules of docs/placement.md in Placement's policy", doing, ErrDenied)
	}
	detail, code := problem(e.Body)
	if known := codes[code]; known != nil && e.Actual >= 400 && e.Actual < 500 {
		return fmt.Errorf("%s: %w: %s", doing, known, detail)
	}
	switch e.Actual {
	case http.StatusNotFound:
		return fmt.Errorf("%s: %w: %s", doing, ErrNotFound, detail)
	case http.StatusConflict:
		return fmt.Errorf("%s: %w: %s", doing, ErrConflict, detail)
	case http.StatusBadRequest:
		return fmt.Errorf("%s: %w: %s", doing, ErrRefused, detail)
	}
	return fmt.Errorf("%s: Placement answers %d: %s", doing, e.Actual, detail)
}

// problem returns the first error in an answer, or its beginning.
func problem(body []byte) (detail, code string) {
	var answer struct {
		Errors []struct {
			Detail string `json:"detail"`
			Code   string `json:"code"`
		} `json:"errors"`
	}
	if json.Unmarshal(body, &answer) == nil && len(answer.Errors) > 0 {
		return shown(answer.Errors[0].Detail), answer.Errors[0].Code
	}
	return shown(string(body)), ""
}
