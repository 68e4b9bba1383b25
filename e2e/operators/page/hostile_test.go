package page

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"vgpud/mediator/access"
	"vgpud/mediator/api"
)

// hostileNames are what a domain may be called, or worse.
var hostileNames = []string{
	`<img src=x onerror="window.pwned=1">`,
	`"'><script>window.pwned=1</script>`,
	`</bdi></td></tr></table><iframe srcdoc="<script>parent.pwned=1</script>">`,
	`{{constructor.constructor('window.pwned=1')()}} ${window.pwned=1}`,
	"javascript:window.pwned=1",
	"invoice\u202egnp.exe",
	"\u2067\u05d0\u05d1\u05d2\u2069 \u200b\u200d\ufeff",
	"\x00\x07\x1b[31mred\r\nnew line\u2028and another",
	"__proto__",
	"constructor",
	strings.Repeat("long", 1500),
	strings.Repeat("a\u0301\u0323", 400),
	"/../../v1/gpus/gpu0?x=#",
}

// TestHostileNames: whatever guests, GPUs, problems and events are called, the page shows it as text,
// runs nothing of it, and stays within its width.
func TestHostileNames(t *testing.T) {
	b := openBrowser(t)
	m := many(0)
	var events, budgets []map[string]any
	for i, name := range hostileNames {
		m.guests = append(m.guests, &modelGuest{api.VM{Name: name, Domain: name + name, GPU: "gpu0", Weight: 1, Attached: true, Contexts: 1, Silent: map[bool]string{true: name}[i%5 == 4]}, steady(0.05, 0.01, 0)})
		events = append(events, map[string]any{"id": "1-" + string(rune('a'+i)), "time": "2026-11-24T14:00:00Z", "kind": name, "severity": "warning", "vm": name, "by": name, "message": name})
		budgets = append(budgets, map[string]any{"name": name, "owner": name, "owner_budget": budgetOf(7200, 3600, 2400)})
		m.gpus = append(m.gpus, api.GPU{Name: name, Model: name, Kind: name, Policy: name, Problem: name, AccountingSource: name})
	}
	s := serve(t, m, 20, access.Operator, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answers := map[string]any{"/v1/events": events, "/v1/vms": budgets, "/v1/usage": map[string]any{"rows": []any{}}}
		if err := json.NewEncoder(w).Encode(answers[r.URL.Path]); err != nil {
			t.Error(err)
		}
	}))
	for _, width := range []int64{1180, 390} {
		b.size(width, 900, 1, false)
		b.open(s.url)
		b.until("events", `document.querySelectorAll("#events li").length === `+number(len(hostileNames)))
		b.until("budgets", `document.querySelectorAll("#budgets li").length === `+number(len(hostileNames)))
		if n := eval[int](b, `document.querySelectorAll("#guest-table tbody tr").length`); n != len(hostileNames) {
			t.Errorf("%d guests are shown, want %d", n, len(hostileNames))
		}
		if n := eval[int](b, `document.querySelectorAll("img, iframe, object, embed, main script, main style, main svg").length`); n != 0 {
			t.Errorf("a name became %d elements", n)
		}
		if n := eval[int](b, `document.scripts.length`); n != 2 {
			t.Errorf("the document has %d scripts, want the 2 of its file", n)
		}
		// A dialog's title and the chart's legend show names, too.
		for i := range hostileNames {
			row := `#guest-table tbody tr:nth-of-type(` + number(i+1) + `)`
			b.click(row + ` th button`)
			b.openDialog(row + ` .actions button`)
			b.click("#change-cancel")
			b.until("the end of the dialog", `!document.getElementById("change").open`)
		}
		if eval[bool](b, `"pwned" in window`) {
			t.Error("a name was run")
		}
		if over := eval[int](b, `document.documentElement.scrollWidth - innerWidth`); over > 0 {
			wide := eval[[]string](b, `[...document.querySelectorAll("main *, header *")].filter((e) => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest(".scroll")).map((e) => e.tagName + "#" + e.id + "." + e.className + " in " + e.parentElement.className).slice(0, 6)`)
			t.Errorf("%d pixels wide, the page is %d pixels wider than that: %q", width, over, wide)
		}
		// Nothing that turns text around or hides is left in it.
		if bad := eval[string](b, `document.body.innerText.match(/[\u0000-\u0008\u000e-\u001f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/)?.[0] ?? ""`); bad != "" {
			t.Errorf("the page shows %q as it is", bad)
		}
		if text := eval[string](b, `document.body.innerText`); !strings.Contains(text, "invoice⟨202E⟩gnp.exe") || !strings.Contains(text, hostileNames[0]) {
			t.Error("the page does not show the names as text")
		}
	}
}
