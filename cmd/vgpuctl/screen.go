package main

import (
	"errors"
	"os"
	"slices"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/spf13/cobra"

	"vgpud/mediator/api"
)

// runScreen shows the guests' use on a screen of its own until the user quits.
func runScreen(c *cobra.Command, o *options, every time.Duration, by order) error {
	s := newScreen(func() (sample, error) { return takeSample(c, o) }, every, by, useColors(os.Getenv))
	first, err := s.take()
	if err != nil {
		return err // rather than a screen that shows nothing
	}
	s.now = first
	p := tea.NewProgram(s, tea.WithAltScreen(), tea.WithContext(c.Context()), tea.WithInput(c.InOrStdin()), tea.WithOutput(c.OutOrStdout()))
	_, err = p.Run()
	if c.Context().Err() != nil || errors.Is(err, tea.ErrInterrupted) {
		return nil
	}
	return err
}

// useColors reports whether a terminal is to be shown colours: see https://no-color.org.
func useColors(env func(string) string) bool {
	return env("NO_COLOR") == "" && env("TERM") != "dumb"
}

// screen is the state of a full-screen `vgpuctl top`.
type screen struct {
	take   func() (sample, error)
	every  time.Duration
	colors bool

	width, height int
	now, before   sample
	usage         []usage
	problem       error // of the last attempt to take a sample

	by       order
	reversed bool
	paused   bool
	// selected is the name of the selected guest, and top the first row that is shown.
	selected string
	top      int
	// detail reports whether the selected guest's details are shown, from line scroll on.
	detail bool
	scroll int
}

func newScreen(take func() (sample, error), every time.Duration, by order, colors bool) *screen {
	return &screen{take: take, every: every, by: by, colors: colors, width: 80, height: 24}
}

// sampled is the message that a sample was taken, or failed.
type sampled struct {
	sample
	err error
}

// Init implements [tea.Model].
func (s *screen) Init() tea.Cmd { return s.next() }

// next returns the command that takes a sample a little later.
func (s *screen) next() tea.Cmd {
	return tea.Tick(s.every, func(time.Time) tea.Msg {
		now, err := s.take()
		return sampled{now, err}
	})
}

// Update implements [tea.Model].
func (s *screen) Update(m tea.Msg) (tea.Model, tea.Cmd) {
	switch m := m.(type) {
	case tea.WindowSizeMsg:
		s.width, s.height = m.Width, m.Height
	case sampled:
		s.problem = m.err
		if m.err == nil && !s.paused {
			s.advance(m.sample)
		}
		return s, s.next()
	case tea.KeyMsg:
		return s, s.key(m.String())
	}
	return s, nil
}

// advance shows a new sample.
func (s *screen) advance(now sample) {
	s.before, s.now = s.now, now
	s.usage = between(s.before.vms, now.vms, max(now.at.Sub(s.before.at), time.Millisecond))
	s.sort()
}

func (s *screen) sort() {
	slices.SortFunc(s.usage, func(a, b usage) int { return orders[byName].compare(&a, &b) })
	sortUsage(s.usage, s.by, s.reversed)
	if s.index() < 0 && len(s.usage) > 0 {
		s.selected, s.detail = s.usage[0].Name, false
	}
}

// index returns the selected guest's place, or -1.
func (s *screen) index() int {
	return slices.IndexFunc(s.usage, func(u usage) bool { return u.Name == s.selected })
}

// key handles a key.
func (s *screen) key(key string) tea.Cmd {
	switch key {
	case "q", "ctrl+c":
		return tea.Quit
	case "esc", "left":
		s.detail = false
	case "enter", "right":
		s.detail, s.scroll = s.index() >= 0, 0
	case " ":
		s.paused = !s.paused
	case "r":
		s.reversed = !s.reversed
		s.sort()
	case "up", "k":
		s.move(-1)
	case "down", "j":
		s.move(1)
	case "pgup":
		s.move(-s.rows())
	case "pgdown":
		s.move(s.rows())
	case "home", "g":
		s.move(-len(s.usage))
	case "end", "G":
		s.move(len(s.usage))
	default:
		for i, o := range orders {
			if o.key == key {
				s.by, s.reversed = order(i), false
				s.sort()
			}
		}
	}
	return nil
}

// move moves the selection, or scrolls the details.
func (s *screen) move(by int) {
	if s.detail {
		s.scroll = max(s.scroll+by, 0)
		return
	}
	if len(s.usage) > 0 {
		s.selected = s.usage[min(max(s.index()+by, 0), len(s.usage)-1)].Name
	}
}

// guest returns the selected guest.
func (s *screen) guest() *api.VM {
	for i := range s.now.vms {
		if s.now.vms[i].Name == s.selected {
			return &s.now.vms[i]
		}
	}
	return nil
}
