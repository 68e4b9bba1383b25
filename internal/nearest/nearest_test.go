package nearest

import (
	"strings"
	"testing"
)

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"weight", "weight", 0}, {"wieght", "weight", 1}, {"weigth", "weight", 1}, {"cap", "", 3}, {"cpa", "cap", 1}, {"priorty", "priority", 1}, {"height", "weight", 1}, {"é", "e", 1}} {
		if got, back := Distance(c.a, c.b), Distance(c.b, c.a); got != c.want || back != c.want {
			t.Errorf("%q, %q: %d and back %d, want %d", c.a, c.b, got, back, c.want)
		}
	}
}

// TestName tests which names are near.
func TestName(t *testing.T) {
	for word, want := range map[string]string{
		"web2": "web1", "WEB-1": "web_1", "web10": "web1", "data-base": "database", "zebra": "", "": "", "w": "", strings.Repeat("x", 99): "",
	} {
		names := []string{"web1", "database", "web_1", strings.Repeat("x", 100)}
		if got, ok := Name(word, names); got != want || ok != (want != "") {
			t.Errorf("nearest to %q is %q, %t, want %q", word, got, ok, want)
		}
	}
}
