package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/prometheus/common/model"

	"vgpud/cmd/internal/cli"
	"vgpud/cmd/vgpuctl/internal/fleet"
)

// prometheusLimit bounds Prometheus's answer, in bytes: that of some ten thousand guests.
const prometheusLimit = 64 << 20

// fromPrometheus returns what Prometheus knows of the hosts.
func (w *fleetFlags) fromPrometheus(ctx context.Context, o *options) ([]fleet.Answer, error) {
	if len(w.names) > 0 || o.flags.Changed("socket") || o.flags.Changed("host") {
		return nil, cli.Usagef("--prometheus shows all targets of its job: leave out --hosts, --host and --socket")
	}
	u, err := url.Parse(w.prometheus)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, cli.Usagef("--prometheus %q: want http://HOST:PORT or https://HOST:PORT", w.prometheus)
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	series, err := queryPrometheus(ctx, u, fleet.SeriesQuery(w.job))
	if err != nil {
		return nil, fmt.Errorf("ask Prometheus at %s: %w", u.Redacted(), err)
	}
	all := fleet.FromSeries(series)
	if len(all) == 0 {
		return nil, fmt.Errorf("no targets of the job %q in Prometheus at %s: name the one that scrapes the daemons with --job", w.job, u.Redacted())
	}
	return all, nil
}

// queryPrometheus returns the present values of the series that a query selects (Prometheus's HTTP
// API, "Instant queries").
func queryPrometheus(ctx context.Context, u *url.URL, query string) (all model.Vector, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, u.JoinPath("api/v1/query").String(), strings.NewReader(url.Values{"query": {query}}.Encode()))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, prometheusLimit+1))
	if err != nil {
		return nil, err
	}
	if len(text) > prometheusLimit {
		return nil, fmt.Errorf("the answer is longer than %d bytes", prometheusLimit)
	}
	var a struct {
		Status string `json:"status"`
		Error  string `json:"error"`
		Data   struct {
			Type   string       `json:"resultType"`
			Result model.Vector `json:"result"`
		} `json:"data"`
	}
	if jerr := json.Unmarshal(text, &a); jerr != nil || resp.StatusCode != http.StatusOK || a.Status != "success" || a.Data.Type != "vector" {
		if a.Error != "" {
			return nil, errors.New(a.Error)
		}
		return nil, fmt.Errorf("%s: the answer is not that of a query: is this Prometheus?", resp.Status)
	}
	return a.Data.Result, nil
}
