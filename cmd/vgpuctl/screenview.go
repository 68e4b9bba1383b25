package main

import (
	"fmt"
	"math"
	"strings"

	"vgpud/cmd/internal/output"
	"vgpud/mediator/api"
)

// The screen fits minWidth columns. On a wider terminal names and bars get the rest.
const (
	minWidth = 80
	minName  = 14
	maxName  = 32
	minBar   = 16
	maxBar   = 60
)

// View implements [tea.Model].
func (s *screen) View() string {
	lines := []string{s.titleLine()}
	for i := range s.now.gpus {
		lines = append(lines, s.gpuLine(&s.now.gpus[i]))
	}
	lines = append(lines, "")
	if v := s.guest(); s.detail && v != nil {
		lines = append(lines, s.detailLines(v)...)
	} else {
		lines = append(lines, s.guestLines()...)
	}
	last := "q quit  ↑↓ select  Enter details  N S E U K M sort  r reverse  Space pause"
	if s.detail {
		last = "q quit  ↑↓ scroll  Esc back"
	}
	if s.problem != nil {
		last = s.paint(red, s.fit("daemon: "+output.Printable(s.problem.Error())))
	}
	for len(lines) < s.height-1 {
		lines = append(lines, "")
	}
	lines = append(lines[:max(min(len(lines), s.height-1), 0)], last)
	for i := range lines {
		if !strings.Contains(lines[i], "\x1b") {
			lines[i] = s.fit(lines[i])
		}
	}
	return strings.Join(lines, "\n")
}

func (s *screen) titleLine() string {
	t := fmt.Sprintf("vgpuctl top   guests: %d   sorted by %s   every %v", len(s.now.vms), orders[s.by].name, s.every)
	if s.reversed {
		t += "   reversed"
	}
	if s.paused {
		t += "   PAUSED"
	}
	return s.paint(bold, s.fit(t))
}

// gpuLine describes a GPU.
func (s *screen) gpuLine(g *api.GPU) string {
	line := fmt.Sprintf("%-8s %5s busy  %s  %s  %s  guests %d", output.Printable(g.Name), percent(g.BusyRatio), gpuStatus(*g), g.Policy, output.Printable(g.Model), g.VMs)
	if h := g.Hardware; h != nil {
		if h.TemperatureCelsius != nil {
			line += fmt.Sprintf("  %.0f °C", *h.TemperatureCelsius)
		}
		if h.PowerWatts != nil {
			line += fmt.Sprintf("  %.0f W", *h.PowerWatts)
		}
	}
	color := noColor
	switch {
	case !g.Healthy:
		color = red
	case g.Cordoned:
		color = yellow
	}
	return s.paint(color, s.fit(line))
}

// layout returns the widths of names and bars.
func (s *screen) layout() (name, bar int) {
	extra := max(s.width-minWidth, 0)
	name = min(minName+extra/3, maxName)
	return name, min(minBar+extra-(name-minName), maxBar)
}

// rows returns how many guests fit.
func (s *screen) rows() int { return max(s.height-len(s.now.gpus)-4, 1) }

// guestLines are the table of guests.
func (s *screen) guestLines() []string {
	name, bar := s.layout()
	head := fmt.Sprintf("%-*s %-6s %-9s %6s %-*s %6s %6s %8s", name, "NAME", "GPU", "STATE", "SHARE", bar, "  (| entitled)", "ENTITL", "SUSP", "KERN/S")
	lines := []string{s.paint(bold, s.fit(head))}
	i, rows := s.index(), s.rows()
	s.top = min(max(s.top, i-rows+1), max(i, 0))
	for j := s.top; j < len(s.usage) && j < s.top+rows; j++ {
		lines = append(lines, s.guestLine(&s.usage[j], j == i, name, bar))
	}
	if len(s.usage) == 0 {
		text := "no guests"
		if len(s.now.vms) > 0 {
			text = "measuring…"
		}
		lines = append(lines, text)
	}
	return lines
}

func (s *screen) guestLine(u *usage, selected bool, name, bar int) string {
	line := fmt.Sprintf("%s %s %-9s %6s %s %6s %6s %8s", pad(u.Name, name), pad(u.GPU, 6), u.State, percent(u.Busy), shareBar(u.Busy, u.Entitled, bar),
		percent(u.Entitled), percent(u.Suspended), compact(u.Kernels))
	if selected {
		return s.paint(reverse, s.fit(line))
	}
	color := noColor
	switch u.State {
	case "active":
		color = green
	case "suspended":
		color = yellow
	case "lost", "silent":
		color = red
	}
	return s.paint(color, s.fit(line))
}

// shareBar draws a share of the GPU's time, with a mark at what the guest is entitled to.
func shareBar(share, entitled float64, width int) string {
	cells := make([]rune, width)
	filled := int(math.Round(min(max(share, 0), 1) * float64(width)))
	for i := range cells {
		cells[i] = '·'
		if i < filled {
			cells[i] = '█'
		}
	}
	if entitled > 0 {
		cells[min(max(int(math.Round(entitled*float64(width)))-1, 0), width-1)] = '|'
	}
	return string(cells)
}

// compact formats a rate in at most 8 characters.
func compact(x float64) string {
	switch {
	case x >= 1e6:
		return fmt.Sprintf("%.1fM", x/1e6)
	case x >= 1e5:
		return fmt.Sprintf("%.0fk", x/1e3)
	}
	return fmt.Sprintf("%.1f", x)
}

// detailLines describe the selected guest.
func (s *screen) detailLines(v *api.VM) []string {
	var all []string
	if i := s.index(); i >= 0 {
		u := &s.usage[i]
		_, bar := s.layout()
		all = append(all, fmt.Sprintf("%s  %s of the GPU's time  %s  entitled to %s", output.Printable(v.Name), percent(u.Busy), shareBar(u.Busy, u.Entitled, bar), percent(u.Entitled)),
			fmt.Sprintf("%s kernels/s  %s evictions/s  suspended %s of the time", compact(u.Kernels), compact(u.Evictions), percent(u.Suspended)), "")
	}
	all = append(all, describeVM(v)...)
	room := max(s.height-len(s.now.gpus)-3, 1)
	s.scroll = min(s.scroll, max(len(all)-room, 0))
	return all[s.scroll:min(s.scroll+room, len(all))]
}

// pad fits a name into so many columns.
func pad(name string, width int) string {
	r := []rune(output.Printable(name))
	if len(r) > width {
		r = append(r[:width-1], '…')
	}
	return string(r) + strings.Repeat(" ", width-len(r))
}

// fit cuts a line without colours to the screen's width.
func (s *screen) fit(line string) string {
	r := []rune(line)
	if len(r) > s.width {
		return string(r[:max(s.width-1, 0)]) + "…"
	}
	return line
}

// paint is a way of showing a line, by the parameter of SGR.
type paint string

const (
	noColor paint = ""
	bold    paint = "1"
	reverse paint = "7"
	red     paint = "31"
	green   paint = "32"
	yellow  paint = "33"
)

// paint shows a line in a colour. Without colours the selected line has a mark in place of its last
// column.
func (s *screen) paint(p paint, line string) string {
	if !s.colors {
		if p == reverse {
			r := []rune(line)
			r = append(r, []rune(strings.Repeat(" ", max(s.width-1-len(r), 0)))...)
			return string(r[:min(len(r), max(s.width-1, 0))]) + "<"
		}
		return line
	}
	if p == noColor {
		return line
	}
	return "\x1b[" + string(p) + "m" + line + "\x1b[0m"
}
