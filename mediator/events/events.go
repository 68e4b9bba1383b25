// Package events keeps the newest of what happened to guests and GPUs, for readers that follow it.
//
// An event is a log record that names its kind ([Kind]). [Handler] stands in front of the log's own
// handler: it passes every record on, and adds those with a kind to a [Ring], which holds a bounded
// number of events. A reader keeps the id of the last event that it has, and asks [Ring.Since] for
// the later ones.
//
// Texts come from guests, too: whatever a text holds, it is one line of printable characters.
package events

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"
)

// The kinds of events.
const (
	DaemonStarted   = "daemon-started"
	DaemonStopping  = "daemon-stopping"
	Reloaded        = "configuration-reloaded"
	NotReloaded     = "configuration-refused"
	GuestCreated    = "guest-created"
	GuestDeleted    = "guest-deleted"
	GuestLeft       = "guest-left"
	GuestAdopted    = "guest-adopted"
	GuestSilent     = "guest-silent"
	GuestKilled     = "guest-killed"
	GuestReleased   = "guest-released"
	GuestLost       = "guest-lost"
	GuestMoved      = "guest-moved"
	GuestProcess    = "guest-process"
	SettingsChanged = "settings-changed"
	PolicyChanged   = "policy-changed"
	CordonChanged   = "cordon-changed"
	GPUFailed       = "gpu-failed"
	GPURecovered    = "gpu-recovered"
	GPUWarning      = "gpu-warning"
	GPUError        = "gpu-error"
	DomainProblem   = "domain-problem"
	AuditProblem    = "audit-problem"
	UsageProblem    = "usage-problem"
	UsageRecovered  = "usage-recovered"
	BudgetLimit     = "budget-limit"
	GuestSuspended  = "guest-suspended"
	GuestResumed    = "guest-resumed"
)

// Kinds are all of them.
var Kinds = []string{
	DaemonStarted, DaemonStopping, Reloaded, NotReloaded, GuestCreated, GuestDeleted, GuestLeft,
	GuestAdopted, GuestSilent, GuestKilled, GuestReleased, GuestLost, GuestMoved, GuestProcess,
	SettingsChanged, PolicyChanged, CordonChanged, GPUFailed, GPURecovered, GPUWarning, GPUError,
	DomainProblem, AuditProblem, UsageProblem, UsageRecovered, BudgetLimit,
	GuestSuspended, GuestResumed,
}

// Event is something that happened.
type Event struct {
	// ID names the event: the daemon's start, and the event's number since then.
	ID       string    `json:"id"`
	Time     time.Time `json:"time"`
	Kind     string    `json:"kind"`
	Severity string    `json:"severity"` // info, warning or error
	GPU      string    `json:"gpu,omitempty"`
	VM       string    `json:"vm,omitempty"`
	Domain   string    `json:"domain,omitempty"`
	// By is the caller that asked for a change.
	By      string `json:"by,omitempty"`
	Message string `json:"message"`
	// Details are other values, such as a guest's new weight.
	Details map[string]string `json:"details,omitempty"`
}

// Ring holds the newest events. It is safe for concurrent use.
type Ring struct {
	epoch string

	mu     sync.Mutex
	events []Event // as long as the ring; event n is at n modulo its length
	next   uint64
	more   chan struct{} // closed when an event is added
}

// NewRing returns a ring of so many events. start distinguishes its ids from those of an earlier
// daemon's ring.
func NewRing(size int, start time.Time) *Ring {
	return &Ring{epoch: strconv.FormatInt(start.UnixMilli(), 10), events: make([]Event, size), more: make(chan struct{})}
}

// add adds an event and gives it its id.
func (r *Ring) add(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.ID = fmt.Sprintf("%s-%d", r.epoch, r.next)
	r.events[r.next%uint64(len(r.events))] = e
	r.next++
	close(r.more)
	r.more = make(chan struct{})
}

// Since returns the events after the one with that id, or all of them if id is empty. missed says why
// there are others that it can't return, and is empty if there are none. more is closed when there
// are later events than those that it returns.
func (r *Ring) Since(id string) (events []Event, missed string, more <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := uint64(0)
	if n := uint64(len(r.events)); r.next > n {
		first = r.next - n
	}
	from := first
	if id != "" {
		epoch, text, _ := strings.Cut(id, "-")
		n, err := strconv.ParseUint(text, 10, 64)
		switch {
		case epoch != r.epoch, err != nil, n >= r.next:
			missed = "the daemon has started anew since event " + Line(id)
		case n+1 < first:
			missed = fmt.Sprintf("%d events are no longer kept", first-n-1)
		default:
			from = n + 1
		}
	}
	for i := from; i < r.next; i++ {
		events = append(events, r.events[i%uint64(len(r.events))])
	}
	return events, missed, r.more
}

// maxText bounds a text of an event, in bytes.
const maxText = 1 << 10

// Line returns a text as one line of bounded length: characters that are not printable are escaped
// as in Go.
func Line(s string) string {
	printable := true
	for _, r := range s {
		printable = printable && r != utf8.RuneError && unicode.IsPrint(r)
	}
	if printable && len(s) <= maxText {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		if b.Len() > maxText {
			b.WriteString("…")
			break
		}
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			_, size := utf8.DecodeRuneInString(s[i:])
			q := strconv.QuoteToASCII(s[i : i+size])
			b.WriteString(q[1 : len(q)-1])
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}
