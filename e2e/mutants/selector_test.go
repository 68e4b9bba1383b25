package main

import "testing"

func TestSelector(t *testing.T) {
	for _, c := range []struct {
		run, test      string
		selected, runs bool
	}{
		{"X", "TestX", true, true},
		{"X", "TestX/y", true, true},
		{"X", "TestY", false, false},
		{"^X$/^y z$", "X", false, true},
		{"^X$/^y z$", "X/y_z", true, true},
		{"^X$/^y z$", "X/y_z/w", true, true},
		{"^X$/^y z$", "X/y", false, false},
		{"^X$/y|^Z$", "X", false, true},
		{"^X$/y|^Z$", "X/y", true, true},
		{"^X$/y|^Z$", "Z", true, true},
		{"(X/y|Z)/[/|]", "Z/|", true, true},
		{"(X/y|Z)/[/|]", "Z/y", false, false},
		{`^a\|b$`, "a|b", true, true},
	} {
		s, err := parseSelector(c.run)
		if err != nil {
			t.Errorf("%s: %v", c.run, err)
			continue
		}
		if selected, runs := s.selects(c.test); selected != c.selected || runs != c.runs {
			t.Errorf("%s selects %s: got %v, %v, want %v, %v", c.run, c.test, selected, runs, c.selected, c.runs)
		}
	}
}
