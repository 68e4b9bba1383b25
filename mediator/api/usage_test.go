package api

import (
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestUsageQuery checks that a query reaches the host as it was asked.
func TestUsageQuery(t *testing.T) {
	q := UsageQuery{
		From: "2026-11-01", To: "now", By: "owner", VM: "a", Domain: "web & co", Owner: "älice/1+2", Project: "p", GPU: "gpu0",
		GPUHourPrice: 1.25, Currency: "EUR", Resolution: "hour",
	}
	got, err := parseUsageQuery(q.values())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(q, got); diff != "" {
		t.Errorf("query (-want +got):\n%s", diff)
	}
	for _, c := range []struct{ query, want string }{
		{"from=1d&from=2d", "from: given 2 times"},
		{"form=1d", `parameter "form" is not known: want from, to`},
		{"gpu_hour_price=cheap", "want a number such as 1.5"},
	} {
		v, err := url.ParseQuery(c.query)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parseUsageQuery(v); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.query, err, c.want)
		}
	}
}

func TestUsageTour(t *testing.T) {
	c := serve(t, &host{})
	u, err := c.Usage(t.Context(), UsageQuery{By: "owner", Owner: "alice"})
	if err != nil || u.By != "owner" || len(u.Rows) != 1 || u.Rows[0].Owner != "alice" {
		t.Errorf("Usage = %+v, %v", u, err)
	}
	if _, err := c.Usage(t.Context(), UsageQuery{By: "week"}); !errors.Is(err, ErrInvalid) {
		t.Errorf("by week: %v", err)
	}
	costs, err := c.UsageCosts(t.Context(), UsageQuery{Currency: "EUR", GPUHourPrice: 2})
	var all []struct {
		Currency string
		Price    float64
	}
	if err == nil {
		err = json.Unmarshal(costs, &all)
	}
	if err != nil || len(all) != 1 || all[0].Currency != "EUR" || all[0].Price != 2 {
		t.Errorf("UsageCosts = %s, %v", costs, err)
	}
}
