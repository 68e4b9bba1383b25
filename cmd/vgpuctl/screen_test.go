package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/creack/pty"
	"github.com/google/go-cmp/cmp"

	"log/slog"

	"vgpud/mediator/access"
	"vgpud/mediator/api"
)

// screenSamples returns two samples, a second apart, of a host with guests of every kind.
func screenSamples() (before, now sample) {
	guest := func(name string, seconds float64, change func(*api.VM)) api.VM {
		v := api.VM{Name: name, GPU: "gpu0", Weight: 1, Attached: true, GPUSeconds: seconds}
		change(&v)
		return v
	}
	vms := func(t float64) []api.VM {
		return []api.VM{
			guest("idle", 3, func(*api.VM) {}),
			guest("lost", 9, func(v *api.VM) { v.Attached, v.Lost = false, "its process 7 ended (signal: killed)" }),
			guest("over", 50+0.625*t, func(v *api.VM) {
				v.Entitled, v.Active, v.Weight, v.Kernels, v.MemoryUsedBytes = 0.5, true, 2, uint64(1000*t), 3<<30
			}),
			guest("under-and-with-a-long-name", 20+0.125*t, func(v *api.VM) {
				v.Entitled, v.Suspended, v.SuspendedSeconds, v.Kernels = 0.25, true, 0.75*t, uint64(250000*t)
			}),
			guest("evil\x1b[2J\u202e", 0, func(v *api.VM) { v.Attached = false }),
		}
	}
	celsius, watts := 61., 402.
	gpus := []api.GPU{
		{Name: "gpu0", Model: "NVIDIA H100 80GB HBM3", Policy: "dfq", Healthy: true, VMs: 5, BusyRatio: 0.75, Hardware: &api.Hardware{TemperatureCelsius: &celsius, PowerWatts: &watts}},
		{Name: "gpu1", Model: "vgpud soft GPU", Policy: "none", Healthy: true, Cordoned: true, Draining: true},
	}
	at := time.Unix(1000, 0)
	return sample{at, vms(1), gpus}, sample{at.Add(time.Second), vms(2), gpus}
}

// testScreen returns a screen that shows both samples.
func testScreen(t *testing.T, colors bool) *screen {
	t.Helper()
	before, now := screenSamples()
	s := newScreen(func() (sample, error) { return now, nil }, time.Second, byShare, colors)
	s.now = before
	s.Update(sampled{sample: now})
	return s
}

// press sends keys.
func press(s *screen, keys ...string) {
	for _, k := range keys {
		m := tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune(k)}
		switch k {
		case "enter":
			m = tea.KeyMsg{Type: tea.KeyEnter}
		case "esc":
			m = tea.KeyMsg{Type: tea.KeyEsc}
		case "down":
			m = tea.KeyMsg{Type: tea.KeyDown}
		}
		s.Update(m)
	}
}

// TestScreens compares screens with those in testdata/screens.
func TestScreens(t *testing.T) {
	for name, c := range map[string]struct {
		width, height int
		colors        bool
		do            func(*screen)
	}{
		"share":    {80, 24, false, func(*screen) {}},
		"name":     {80, 24, false, func(s *screen) { press(s, "N", "down") }},
		"reversed": {80, 24, false, func(s *screen) { press(s, "U", "r") }},
		"detail":   {80, 24, false, func(s *screen) { press(s, "enter") }},
		"scrolled": {80, 24, false, func(s *screen) { press(s, "enter", "G") }},
		"back":     {80, 24, false, func(s *screen) { press(s, "down", "enter", "esc") }},
		"low":      {80, 8, false, func(s *screen) { press(s, "G") }},
		"narrow":   {40, 12, false, func(*screen) {}},
		"wide":     {120, 12, false, func(*screen) {}},
		"colors":   {80, 12, true, func(*screen) {}},
		"paused": {80, 12, false, func(s *screen) {
			press(s, " ")
			_, now := screenSamples()
			now.vms[2].GPUSeconds = 1e6
			s.Update(sampled{sample: now})
		}},
		"daemon-away": {80, 12, false, func(s *screen) { s.Update(sampled{err: errors.New("no daemon listens on \x1b/run/vgpud/vgpud.sock")}) }},
		"no-guests": {80, 12, false, func(s *screen) {
			_, now := screenSamples()
			s.Update(sampled{sample: sample{at: now.at.Add(time.Second), gpus: now.gpus}})
		}},
		"guest-gone": {80, 12, false, func(s *screen) {
			press(s, "enter")
			_, now := screenSamples()
			now.vms, now.at = now.vms[:2], now.at.Add(time.Second)
			s.Update(sampled{sample: now})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := testScreen(t, c.colors)
			s.Update(tea.WindowSizeMsg{Width: c.width, Height: c.height})
			c.do(s)
			got := s.View() + "\n"
			lines := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
			if len(lines) > c.height {
				t.Errorf("%d lines on a screen of %d", len(lines), c.height)
			}
			for _, l := range lines {
				if n := len([]rune(l)); !c.colors && n > c.width {
					t.Errorf("%d columns on a screen of %d: %q", n, c.width, l)
				}
			}
			if strings.Contains(got, "\x1b[2J") || !c.colors && strings.Contains(got, "\x1b") {
				t.Errorf("a guest's name, or a colour, reaches the terminal: %q", got)
			}
			path := filepath.Join("testdata", "screens", name+".txt")
			if *update {
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(got), 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("(-want +got; go test -update writes them anew):\n%s", diff)
			}
		})
	}
}

func TestUseColors(t *testing.T) {
	for name, c := range map[string]struct {
		env  map[string]string
		want bool
	}{
		"a terminal": {map[string]string{"TERM": "xterm"}, true}, "NO_COLOR": {map[string]string{"TERM": "xterm", "NO_COLOR": "1"}, false},
		"a dumb terminal": {map[string]string{"TERM": "dumb"}, false},
	} {
		if got := useColors(func(key string) string { return c.env[key] }); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestTopInATerminal: in a terminal `top` has a screen of its own, follows keys, and leaves the
// terminal as it was.
func TestTopInATerminal(t *testing.T) {
	client := serveAPI(t, api.Handler(newFixedHost(), api.HandlerOptions{Caller: access.As(access.Operator), Log: slog.New(slog.DiscardHandler)}))
	for _, noColor := range []bool{false, true} {
		t.Run(fmt.Sprintf("NO_COLOR=%v", noColor), func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "top", "-d", "10ms", "--socket", client.Socket())
			cmd.Env = append(os.Environ(), selfVariable+"=1", "TERM=xterm-256color")
			if noColor {
				cmd.Env = append(cmd.Env, "NO_COLOR=1")
			}
			f, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 80})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = f.Close() }()
			out := &transcript{changed: make(chan struct{}, 1)}
			go out.read(f)
			out.await(t, "\x1b[?1049h") // the alternate screen
			out.await(t, "sorted by share")
			out.await(t, "web1")
			for _, step := range []struct{ key, shows string }{{"N", "sorted by name"}, {"\r", "Memory of the GPU"}, {"\x1b", "KERN/S"}, {"q", "\x1b[?1049l"}} {
				out.forget()
				if _, err := f.WriteString(step.key); err != nil {
					t.Fatal(err)
				}
				out.await(t, step.shows)
			}
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
			if colored := strings.Contains(out.all(), "\x1b[1m"); colored == noColor {
				t.Errorf("colours: %v", colored)
			}
		})
	}
}

// transcript is what a terminal was sent.
type transcript struct {
	mu      sync.Mutex
	text    []byte
	from    int // what is awaited comes after this
	changed chan struct{}
}

func (s *transcript) read(f *os.File) {
	b := make([]byte, 4096)
	for {
		n, err := f.Read(b)
		s.mu.Lock()
		s.text = append(s.text, b[:n]...)
		s.mu.Unlock()
		select {
		case s.changed <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

func (s *transcript) all() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.text)
}

// forget lets await look only at what comes from now on.
func (s *transcript) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.from = len(s.text)
}

// await waits until the terminal was sent a text.
func (s *transcript) await(t *testing.T, want string) {
	t.Helper()
	limit := time.NewTimer(2 * time.Minute)
	defer limit.Stop()
	for {
		s.mu.Lock()
		found := strings.Contains(string(s.text[s.from:]), want)
		s.mu.Unlock()
		if found {
			return
		}
		select {
		case <-s.changed:
		case <-limit.C:
			t.Fatalf("never %q in %q", want, s.all())
		}
	}
}
