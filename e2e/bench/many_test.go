package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"vgpud/e2e/host"
	"vgpud/mediator/api"
)

// BenchmarkManyGuests measures what a daemon with 1,000 idle guests, real processes all, takes to
// answer a request for its metrics as Prometheus sends it, and how much memory it has: all that is
// resident, its part of what it shares with others, and what is its own. It takes about a minute,
// and 3 GB of memory.
func BenchmarkManyGuests(b *testing.B) {
	const guests = 1000
	h := host.Start(b, "dfq")
	for i := range guests {
		h.NewVM(api.VMSpec{Name: fmt.Sprint("guest", i), BAR2Bytes: 4 << 20})
	}
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", h.Config.Socket)
		},
		DisableCompression: true, // the header below asks for it, and nothing is unpacked
	}}
	defer client.CloseIdleConnections()
	scrape := func() {
		r, err := http.NewRequestWithContext(b.Context(), "GET", "http://vgpud/metrics", nil)
		if err != nil {
			b.Fatal(err)
		}
		r.Header.Set("Accept-Encoding", "gzip")
		answer, err := client.Do(r)
		if err != nil {
			b.Fatal(err)
		}
		defer answer.Body.Close()
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			b.Fatal(err)
		}
	}
	scrape()
	var times []time.Duration
	for b.Loop() {
		begin := time.Now()
		scrape()
		times = append(times, time.Since(begin))
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[0])/1e6, "ms-least")
	b.ReportMetric(float64(quantile(times, 0.5))/1e6, "ms-median")
	for _, field := range []string{"Rss", "Pss", "Anonymous"} {
		b.ReportMetric(memory(b, h.Daemon.PID(), field), field+"-MB")
	}
	b.ReportMetric(0, "ns/op")
}

// memory returns a field of a process's /proc/PID/smaps_rollup in MB.
func memory(b *testing.B, pid int, field string) float64 {
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ":")
		if kb, ok := strings.CutSuffix(strings.TrimSpace(value), " kB"); ok && name == field {
			n, err := strconv.ParseFloat(kb, 64)
			if err != nil {
				b.Fatal(err)
			}
			return n * 1024 / 1e6
		}
	}
	b.Fatalf("process %d has no %s", pid, field)
	return 0
}
