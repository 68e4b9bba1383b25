package domain

import (
	"strings"
	"testing"

	"vgpud/mediator/api"
)

func TestSetTerms(t *testing.T) {
	const gpus = `<v:gpu weight='2' memory='4GiB'/><v:gpu xmlns:v = 'urn:vgpud:domain:1' cap="0.5"></v:gpu>`
	domain := func(gpus string) string {
		return minimal("", "", `<!-- kept --><metadata><v:devices xmlns:v='urn:vgpud:domain:1' owner="alice">`+gpus+`</v:devices></metadata>`)
	}
	set := func(n int, change func(*api.Terms)) (string, error) {
		out, err := SetTerms([]byte(domain(gpus)), n, func(t api.Terms) api.Terms { change(&t); return t })
		return string(out), err
	}
	for name, c := range map[string]struct {
		n      int
		change func(*api.Terms)
		want   string
	}{
		"nothing":   {1, func(*api.Terms) {}, gpus},
		"the first": {0, func(t *api.Terms) { t.Weight, t.Cap = 3, 0.25 }, `<v:gpu weight="3" cap="0.25" memory="4GiB"/><v:gpu xmlns:v = 'urn:vgpud:domain:1' cap="0.5"></v:gpu>`},
		"another":   {1, func(t *api.Terms) { t.KernelTimeLimit, t.Cap = -1, 0 }, `<v:gpu weight='2' memory='4GiB'/><v:gpu xmlns:v = 'urn:vgpud:domain:1' kernel-time-limit="none"/>`},
	} {
		if got, err := set(c.n, c.change); err != nil || got != domain(c.want) {
			t.Errorf("%s: %v\n%s\nwant\n%s", name, err, got, domain(c.want))
		}
	}
	for want, change := range map[string]func(*api.Terms){
		"more than the cap":   func(t *api.Terms) { t.Guarantee = 0.75 },
		"want a whole number": func(t *api.Terms) { t.PriorityCeiling = 99 },
	} {
		if _, err := set(1, change); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := set(2, func(*api.Terms) {}); err == nil || !strings.Contains(err.Error(), "no virtual GPU 2") {
		t.Errorf("a virtual GPU that isn't there: %v", err)
	}
}
