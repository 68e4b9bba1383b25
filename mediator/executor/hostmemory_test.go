package executor

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"vgpud/clock"
	"vgpud/gpu"
	"vgpud/mediator/link"
)

// registrar is a context that registers memory, or does not.
type registrar struct {
	gpu.Context
	refuse     error
	registered []byte
	closed     bool
	released   bool // after it was closed
}

func (r *registrar) RegisterHost(mem []byte) (func() error, error) {
	if r.refuse != nil {
		return nil, r.refuse
	}
	r.registered = mem
	return func() error { r.released = r.closed; return nil }, nil
}

func (r *registrar) Close() error {
	r.closed = true
	return nil
}

func TestStagingIsRegistered(t *testing.T) {
	mem := make([]byte, 16)
	var log bytes.Buffer
	r := &registrar{}
	s := register(r, mem[4:], slog.New(slog.NewTextHandler(&log, nil)))
	if err := s.close(r); err != nil || len(r.registered) != 12 || &r.registered[0] != &mem[4] || !r.released {
		t.Errorf("registered %d bytes, released %v, %v", len(r.registered), r.released, err)
	}
	r = &registrar{refuse: errors.New("no pages")}
	if err := register(r, mem, slog.New(slog.NewTextHandler(&log, nil))).close(r); err != nil || !strings.Contains(log.String(), "no pages") {
		t.Errorf("%v, logged %q", err, log.String())
	}
	plain := struct{ gpu.Context }{&registrar{}} // registers nothing
	if err := register(plain, mem, slog.New(slog.DiscardHandler)).close(plain); err != nil {
		t.Error(err)
	}
}

// A kernel's time is the guest's bill while the daemon is there, and the host's
// time while it is not.
func TestMeter(t *testing.T) {
	page, err := link.NewPage()
	if err != nil {
		t.Fatal(err)
	}
	defer page.Close()
	var c clock.Sim
	c.Advance(time.Hour)
	page.SetBill(link.Bill{Used: time.Minute})
	m := newMeter(page, &c)
	step := func(beats bool, used, d, want time.Duration) {
		t.Helper()
		before := m.elapsed()
		page.SetBill(link.Bill{Used: used})
		c.Advance(d)
		if beats {
			page.Beat(c.Now())
		}
		if got := m.elapsed() - before; got != want {
			t.Errorf("a bill of %v after %v: %v, want %v", used, d, got, want)
		}
	}
	page.Beat(c.Now())
	step(true, time.Minute+300*time.Millisecond, time.Second, 300*time.Millisecond)
	step(true, time.Minute+300*time.Millisecond, 32*time.Second, time.Second)
	step(true, 0, 32*time.Second, time.Second)
	step(false, 0, time.Second, time.Second)
}
