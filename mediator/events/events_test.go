package events

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func messages(events []Event) (all []string) {
	for _, e := range events {
		all = append(all, e.Message)
	}
	return all
}

// TestRing: a reader gets each event once and in order, and is told of what it missed.
func TestRing(t *testing.T) {
	start := time.UnixMilli(1700000000123)
	r := NewRing(4, start)
	if all, missed, _ := r.Since(""); len(all) != 0 || missed != "" {
		t.Errorf("an empty ring has %v, %q", all, missed)
	}
	for i := range 3 {
		r.add(Event{Message: fmt.Sprint(i)})
	}
	all, missed, more := r.Since("")
	if diff := cmp.Diff([]string{"0", "1", "2"}, messages(all)); diff != "" || missed != "" {
		t.Errorf("%q, %s", missed, diff)
	}
	if all[1].ID != "1700000000123-1" {
		t.Errorf("the second event has id %s", all[1].ID)
	}
	last := all[2].ID
	if rest, missed, _ := r.Since(last); len(rest) != 0 || missed != "" {
		t.Errorf("after the last: %v, %q", rest, missed)
	}
	select {
	case <-more:
		t.Error("there is said to be more before there is")
	default:
	}
	r.add(Event{Message: "3"})
	<-more
	rest, missed, _ := r.Since(last)
	if diff := cmp.Diff([]string{"3"}, messages(rest)); diff != "" || missed != "" {
		t.Errorf("%q, %s", missed, diff)
	}
	for i := 4; i < 9; i++ {
		r.add(Event{Message: fmt.Sprint(i)})
	}
	rest, missed, _ = r.Since(last) // which is 2
	if diff := cmp.Diff([]string{"5", "6", "7", "8"}, messages(rest)); diff != "" || missed != "2 events are no longer kept" {
		t.Errorf("%q, %s", missed, diff)
	}
	if rest, missed, _ = r.Since("1700000000123-4"); len(rest) != 4 || missed != "" {
		t.Errorf("with nothing between the ring and the reader: %v, %q", messages(rest), missed)
	}
	for _, id := range []string{"1600000000000-7", "1700000000123-9", "x", "-", "1700000000123--1", "a\nid: 3"} {
		rest, missed, _ := r.Since(id)
		if len(rest) != 4 || !strings.HasPrefix(missed, "the daemon has started anew since event ") || strings.Contains(missed, "\n") {
			t.Errorf("since %q: %v, %q", id, messages(rest), missed)
		}
	}
}

// TestHandler: log records with a kind are events, whatever level the log is at.
func TestHandler(t *testing.T) {
	ring := NewRing(8, time.UnixMilli(1))
	var out bytes.Buffer
	log := slog.New(NewHandler(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelError}), ring))
	log.Info("not an event", "guest", "a")
	log.Info("guest created", Kind(GuestCreated), "guest", "a", "gpu", "gpu0", "domain", "web", "weight", 2.5, "by", "user root (uid 0, pid 1)")
	log.With("domain", "web", "uuid", "u").WithGroup("x").Warn("read a domain", Kind(DomainProblem), "err", errors.New("a\nb"))
	log.Error("lost", Kind(GPUFailed), "gpu", "gpu1")
	log.Debug("a detail", Kind(GuestLeft))
	got, _, _ := ring.Since("")
	want := []Event{
		{ID: "1-0", Kind: GuestCreated, Severity: "info", VM: "a", GPU: "gpu0", Domain: "web", By: "user root (uid 0, pid 1)", Message: "guest created", Details: map[string]string{"weight": "2.5"}},
		{ID: "1-1", Kind: DomainProblem, Severity: "warning", Domain: "web", Message: "read a domain", Details: map[string]string{"uuid": "u", "err": `a\nb`}},
		{ID: "1-2", Kind: GPUFailed, Severity: "error", GPU: "gpu1", Message: "lost"},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Event{}, "Time")); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if s := out.String(); strings.Count(s, "\n") != 1 || !strings.Contains(s, "event=gpu-failed") {
		t.Errorf("the log has %q, want the error alone", s)
	}
}

// FuzzLine: whatever a guest's text is, it is one bounded line of printable characters.
func FuzzLine(f *testing.F) {
	for _, s := range []string{"plain", "a\nb", "\x1b[31m", "\u2028", "\u202e", "\xff", strings.Repeat("ä", maxText), "data: x\r\n\r\nid: 1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		l := Line(s)
		if len(l) > maxText+16 {
			t.Errorf("%d bytes", len(l))
		}
		for _, r := range l {
			if !unicode.IsPrint(r) {
				t.Errorf("%q has %q", l, r)
			}
		}
	})
}
