package libvirt

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"vgpud/clock"
)

// roleVariable makes this binary vgpu-libvirt, with a given behaviour.
const roleVariable = "VGPUD_TEST_LIBVIRT"

func TestMain(m *testing.M) {
	role := os.Getenv(roleVariable)
	switch role {
	case "":
		os.Exit(m.Run())
	case "garbage":
		fmt.Println("{")
		os.Exit(0)
	case "dies":
		fmt.Fprintln(os.Stderr, "a line before\nsegmentation fault")
		os.Exit(139)
	case "hangs":
		hang()
	case "stuck": // connected, and then in the library for good
		fmt.Println("{}")
		hang()
	}
	err := Serve(context.Background(), os.Stdin, os.Stdout, func() (Hypervisor, error) {
		if role == "missing" {
			return nil, fmt.Errorf("no library: %w", ErrUnavailable)
		}
		return newFake(), nil
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// hang blocks in the kernel, like a stuck library. Without any other goroutine that could run, Go's
// runtime would end the program.
func hang() {
	for {
		_ = unix.Pause() // until a signal, which changes nothing
	}
}

// fake is a hypervisor that stores definitions. Defining "change NAME" changes metadata, and "end"
// ends the connection.
type fake struct {
	*EventQueue
	mu      sync.Mutex
	domains []Domain
}

func newFake() *fake {
	return &fake{EventQueue: NewEventQueue(), domains: []Domain{{Name: "web1", UUID: "u1", Active: true, XML: "<domain/>"}}}
}

func (f *fake) Domain(key string, v View) (Domain, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range f.domains {
		if d.UUID == key || d.Name == key {
			d.XML += string(v)
			return d, nil
		}
	}
	return Domain{}, fmt.Errorf("%w: %s", ErrNoDomain, key)
}

func (f *fake) Define(xml string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch name, change := strings.CutPrefix(xml, "change "); {
	case change:
		f.Add(Event{UUID: name, Metadata: true})
	case xml == "end":
		f.Fail(fmt.Errorf("%w: its daemon ended it", ErrClosed))
	case xml == "":
		return errors.New("XML error: document is empty")
	default:
		f.domains = append(f.domains, Domain{Name: xml, UUID: "of " + xml})
		f.Add(Event{UUID: "of " + xml})
	}
	return nil
}

func (f *fake) Domains() ([]Domain, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.domains), nil
}

func (f *fake) Close() error { return nil }

// dial opens a connection to this binary in a role.
func dial(t *testing.T, role string) (*Conn, error) {
	t.Helper()
	t.Setenv(roleVariable, role)
	c, err := Open(t.Context(), Options{URI: "fake:///", Program: os.Args[0]})
	if err == nil {
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return c, err
}

func TestCalls(t *testing.T) {
	c, err := dial(t, "fake")
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	d, err := c.Domain(ctx, "web1", Persistent)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Domain{Name: "web1", UUID: "u1", Active: true, XML: "<domain/>persistent"}, d); diff != "" {
		t.Errorf("domain, -want +got:\n%s", diff)
	}
	if _, err := c.Domain(ctx, "web9", Current); !errors.Is(err, ErrNoDomain) || err.Error() != `domain "web9": no such domain: web9` {
		t.Errorf("another domain: %v", err)
	}
	if err := c.Define(ctx, nil); err == nil || err.Error() != "define the domain: XML error: document is empty" {
		t.Errorf("define nothing: %v", err)
	}
	big := strings.Repeat("x", 1<<20)
	if err := c.Define(ctx, []byte(big)); err != nil {
		t.Errorf("define much: %v", err)
	}
	all, err := c.Domains(ctx)
	if err != nil || len(all) != 2 || all[1].Name != big {
		t.Errorf("%d domains: %v", len(all), err)
	}
	if e, err := c.Next(ctx); err != nil || e.UUID != "of "+big {
		t.Errorf("event of %.10q: %v", e.UUID, err)
	}
}

func TestEventsOfADomainAreOne(t *testing.T) {
	p := NewEventQueue()
	p.Add(Event{UUID: "a"})
	p.Add(Event{UUID: "b", Metadata: true})
	for range 1000 {
		p.Add(Event{UUID: "a", Metadata: true})
		p.Add(Event{UUID: "b"})
	}
	p.Fail(ErrClosed)
	for _, want := range []string{"a", "b"} {
		e, err := p.Next(t.Context())
		if diff := cmp.Diff(Event{UUID: want, Metadata: true}, e); diff != "" || err != nil {
			t.Errorf("%v, -want +got:\n%s", err, diff)
		}
	}
	for range 2 {
		if e, err := p.Next(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("%v: %v", e, err)
		}
	}
}

func TestEndOfTheConnection(t *testing.T) {
	c, err := dial(t, "fake")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Define(t.Context(), []byte("change u1")); err != nil {
		t.Fatal(err)
	}
	// The end may be there before the answer.
	if err := c.Define(t.Context(), []byte("end")); err != nil && !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
	if e, err := c.Next(t.Context()); err != nil || e != (Event{UUID: "u1", Metadata: true}) {
		t.Errorf("%v: %v", e, err)
	}
	if _, err := c.Next(t.Context()); !errors.Is(err, ErrClosed) || !strings.Contains(err.Error(), "its daemon ended it") {
		t.Errorf("after the end: %v", err)
	}
	<-c.ended
	if _, err := c.Domains(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("a call after the end: %v", err)
	}
}

func TestProgramsThatDoNotConnect(t *testing.T) {
	for role, want := range map[string]string{
		"missing": "connect to libvirt at fake:///: no library: libvirt is not available here",
		"dies":    "vgpu-libvirt ended: exit status 139: segmentation fault",
		"garbage": "decode a line: unexpected end of JSON input",
	} {
		t.Run(role, func(t *testing.T) {
			_, err := dial(t, role)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v; want %s", err, want)
			}
			if missing := errors.Is(err, ErrUnavailable); missing != (role == "missing") {
				t.Errorf("%v: unavailable: %v", err, missing)
			}
		})
	}
	t.Run("not there", func(t *testing.T) {
		if _, err := Open(t.Context(), Options{Program: "/nowhere/vgpu-libvirt"}); !errors.Is(err, ErrUnavailable) {
			t.Errorf("%v", err)
		}
	})
}

func TestAProgramThatHangsIsGivenUp(t *testing.T) {
	t.Setenv(roleVariable, "hangs")
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("waited long enough")
	cancel(reason)
	if _, err := Open(ctx, Options{Program: os.Args[0]}); !errors.Is(err, reason) {
		t.Errorf("%v", err)
	}
}

// TestAProgramThatTakesNothingIn checks that calls end with their contexts while the program reads
// nothing, whether they wait for the pipe or for one another.
func TestAProgramThatTakesNothingIn(t *testing.T) {
	c, err := dial(t, "stuck")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 4)
	for range 4 {
		go func() { done <- c.Define(ctx, make([]byte, 1<<20)) }()
	}
	reason := errors.New("waited long enough")
	for len(c.writing) == 0 { // until one has the pipe
		select {
		case err := <-done:
			t.Fatalf("a call ends by itself: %v", err)
		default:
			runtime.Gosched()
		}
	}
	cancel(reason)
	for range 4 {
		if err := <-done; !errors.Is(err, reason) && !errors.Is(err, ErrClosed) {
			t.Errorf("%v", err)
		}
	}
	c.mu.Lock()
	if len(c.calls) != 0 {
		t.Errorf("%d calls are kept", len(c.calls))
	}
	c.mu.Unlock()
}

func TestAProgramThatCanNotBeStartedNow(t *testing.T) {
	for _, c := range []struct {
		err  error
		good bool
	}{{syscall.EAGAIN, false}, {syscall.ENOMEM, false}, {syscall.EMFILE, false}, {syscall.ENOENT, true}, {syscall.EACCES, true}} {
		err := unavailable(&os.PathError{Op: "fork/exec", Path: "/x", Err: c.err})
		if errors.Is(err, ErrUnavailable) != c.good || !errors.Is(err, c.err) {
			t.Errorf("%v: unavailable for good: want %v", err, c.good)
		}
	}
}

// scripted is a source that ends at once, and counts.
type scripted struct{ *fake }

func (s scripted) Domain(context.Context, string, View) (Domain, error) { return Domain{}, nil }

type recorder struct {
	connected int
	events    []Event
	then      func()
}

func (r *recorder) Connected(context.Context, Source) { r.connected++ }

func (r *recorder) Changed(_ context.Context, _ Source, e Event) {
	r.events = append(r.events, e)
	if r.then != nil {
		r.then()
	}
}

func TestFollowConnectsAgain(t *testing.T) {
	var sim clock.Sim
	ctx, cancel := context.WithCancel(t.Context())
	r := &recorder{}
	tries := 0
	opened := []time.Duration{}
	open := func(context.Context) (Source, error) {
		opened = append(opened, sim.Now())
		tries++
		if tries == 2 || tries == 3 {
			return nil, errors.New("connection refused")
		}
		f := newFake()
		f.Add(Event{UUID: fmt.Sprint(tries)})
		f.Fail(ErrClosed)
		if tries == 4 {
			r.then = cancel
		}
		return scripted{f}, nil
	}
	done := make(chan error, 1)
	go func() { done <- Follow(ctx, &sim, slog.New(slog.DiscardHandler), open, r) }()
	for _, pause := range []time.Duration{firstPause, firstPause * 2, firstPause * 4} {
		sim.AwaitWaiters(1)
		sim.Advance(pause)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Event{{UUID: "1"}, {UUID: "4"}}, r.events); diff != "" || r.connected != 2 {
		t.Errorf("%d connections; events, -want +got:\n%s", r.connected, diff)
	}
	if want := []time.Duration{0, firstPause, 3 * firstPause, 7 * firstPause}; !slices.Equal(opened, want) {
		t.Errorf("opened at %v, want %v", opened, want)
	}
}

func TestFollowGivesUpWhereThereIsNoLibvirt(t *testing.T) {
	err := Follow(t.Context(), &clock.Sim{}, slog.New(slog.DiscardHandler), func(context.Context) (Source, error) {
		return nil, fmt.Errorf("no program: %w", ErrUnavailable)
	}, &recorder{})
	if !errors.Is(err, ErrUnavailable) {
		t.Errorf("%v", err)
	}
}
