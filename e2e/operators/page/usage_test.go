package page

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"vgpud/mediator/access"
	"vgpud/mediator/api"
	"vgpud/mediator/events"
)

// budgetOf returns a budget as the API shows it, in seconds of GPU time.
func budgetOf(hard, soft, used int) map[string]any {
	return map[string]any{
		"budget":     map[string]any{"period": "week", "hard_nanos": hard * 1e9, "soft_nanos": soft * 1e9, "at_hard": "hold"},
		"used_nanos": used * 1e9, "ends": "2026-11-30T00:00:00Z",
	}
}

// billed answers what the page asks of the API about the host of [day].
func billed(t *testing.T) http.Handler {
	at := func(minute int) time.Time { return time.Date(2026, 11, 24, 14, minute, 12, 0, time.UTC) }
	var usage api.Usage
	for i, h := range []float64{11.2, 18.4, 17.9, 20.1, 6.3, 4.8, 19.2, 21.7, 22.4, 21.1, 19.8, 7.5, 5.1, 13.6} {
		usage.Rows = append(usage.Rows, api.UsageRow{
			Day: time.Date(2026, 11, 11+i, 0, 0, 0, 0, time.UTC).Format(time.DateOnly),
			UsageSums: api.UsageSums{
				GPUSeconds: h * 3600, Kernels: uint64(h * 410000), Evictions: uint64(h * 90), SuspendedSeconds: h * 300,
			},
		})
		usage.Total.GPUSeconds += h * 3600
	}
	answers := map[string]any{
		"/v1/usage": usage,
		"/v1/vms": []any{
			map[string]any{"name": "training", "owner": "ml", "budget": budgetOf(60*3600, 48*3600, 51*3600), "owner_budget": budgetOf(90*3600, 80*3600, 63*3600)},
			map[string]any{"name": "rendering", "owner": "studio", "budget": budgetOf(7200, 0, 7200)},
		},
		"/v1/events": []events.Event{
			{ID: "1-0", Time: at(1), Kind: events.DaemonStarted, Severity: "info", Message: "serving"},
			{ID: "1-1", Time: at(3), Kind: events.GuestCreated, Severity: "info", VM: "notebook-anna", By: "libvirt", Message: "guest created"},
			{ID: "1-2", Time: at(5), Kind: events.GPUWarning, Severity: "warning", VM: "training", Message: "a kernel did not leave the GPU when told to"},
			{ID: "1-3", Time: at(8), Kind: events.SettingsChanged, Severity: "info", VM: "rendering", By: "user carol (uid 1004, pid 8122)", Message: "cap 0.15, before 0.3"},
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := answers[r.URL.Path]
		if r.URL.Path == "/v1/events" && r.URL.Query().Get("since") != "" {
			a = []any{}
		}
		if err := json.NewEncoder(w).Encode(a); err != nil {
			t.Error(err)
		}
	})
}

// TestUsage: usage by day is drawn, and a table says the same; budgets say how much is left and what
// happens at their limits.
func TestUsage(t *testing.T) {
	b := openBrowser(t)
	s := serve(t, day(), 10, access.Viewer, billed(t))
	b.size(1180, 900, 1, false)
	b.open(s.url)
	b.until("the usage", `!document.getElementById("usage").hidden && document.querySelector("#usage-chart canvas") !== null`)
	b.click("#usage-details summary")
	b.until("the table", `document.querySelectorAll("#usage-details tbody tr").length === 14`)
	if got := eval[string](b, `document.querySelector("#usage-details tbody tr").innerText`); strings.Join(strings.Fields(got), " ") != "2026-11-11 11.2 h 4 592 000 1 007 56.0 min" {
		t.Errorf("the first day: %q", got)
	}
	got := eval[[]string](b, `[...document.querySelectorAll("#budgets li")].map((e) => e.innerText.replace(/\s+/g, " "))`)
	for i, want := range []string{"training guest · 51.0 h of 60.0 h a week above its soft limit", "ml owner · 63.0 h of 90.0 h a week within its budget", "rendering guest · 2.0 h of 2.0 h a week held"} {
		if i >= len(got) || !strings.HasPrefix(got[i], want) {
			t.Errorf("budgets %q, want %q", got, want)
		}
	}
	if events := eval[string](b, `document.getElementById("events").innerText`); !strings.Contains(events, "cap 0.15, before 0.3 by user carol") {
		t.Errorf("events %q", events)
	}
	// Without a record the sections are not there.
	s = serve(t, day(), 10, access.Viewer, nil)
	b.open(s.url)
	s.pass()
	if visible := eval[string](b, `["usage", "budgets"].filter((id) => !document.getElementById(id).hidden).join()`); visible != "" {
		t.Error(fmt.Sprint("without a record there is ", visible))
	}
}
